"""`store.join` over what frameworks have open: SQLAlchemy and Django, each on every engine (clause T-3)."""
