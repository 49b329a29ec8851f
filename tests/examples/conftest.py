"""A place for each test, on each engine, and a store in it."""

from __future__ import annotations

from tests.integrations.conftest import place, postgres_database, store

__all__ = ["place", "postgres_database", "store"]
