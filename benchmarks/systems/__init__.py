"""What is measured: one module per system, and each says which documented way it goes."""

from __future__ import annotations

import importlib
from typing import Final

from benchmarks.system import System

_ADAPTERS: Final = (
    ("raw_postgres", "RawPostgres"),
    ("alkstore_postgres", "AlkstorePostgres"),
    ("pgqueuer", "PgQueuer"),
    ("awa", "Awa"),
    ("chancy", "Chancy"),
    ("oban", "Oban"),
    ("procrastinate", "Procrastinate"),
    ("raw_sqlite", "RawSqlite"),
    ("alkstore_sqlite", "AlkstoreSqlite"),
    ("honker", "Honker"),
    ("litequeue", "LiteQueue"),
    ("huey", "Huey"),
    ("persist_queue", "PersistQueue"),
)
"""The module and the class of each, in the order of the table: the limit, ours, then the peers, the best two first."""

RAW: Final = "raw"
OURS: Final = "alkstore"


def systems() -> list[type[System]]:
    """Return every adapter; none of what they adapt is imported."""
    return [getattr(importlib.import_module(f"{__name__}.{module}"), name) for module, name in _ADAPTERS]
