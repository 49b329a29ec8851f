"""The schema's migrations, numbered, as plain SQL."""
