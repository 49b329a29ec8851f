"""A place for each test, on each engine, and a store in it."""

from __future__ import annotations

from tests.worker.conftest import open_store, place, postgres_database, postgres_place, sqlite_place, store

__all__ = ["open_store", "place", "postgres_database", "postgres_place", "sqlite_place", "store"]
