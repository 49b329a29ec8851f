"""A place for each test, on each engine, and stores in it, with hooks or without."""

from __future__ import annotations

from tests.integrations.conftest import place, postgres_database, sqlite_place
from tests.worker.conftest import open_store

__all__ = ["open_store", "place", "postgres_database", "sqlite_place"]
