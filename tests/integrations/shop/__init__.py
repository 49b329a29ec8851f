"""A small application of Django's: one model, and views that enqueue."""
