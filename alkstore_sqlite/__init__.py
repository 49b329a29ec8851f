"""Alkstore on SQLite: the standard library's driver, WAL, and nothing to run beside it.

``open_engine`` is what the entry point loads. The modules, in reading order: ``sql`` (with the essay on what the claim
reads) and the migrations; ``executor`` (the operations on one connection) and ``rows``; ``locking`` and ``writers`` (who
writes next); ``pool`` and ``fork`` (connections, with the essay on what a fork does to SQLite); ``operations``,
``engine`` and ``transaction`` (what the front sees); ``schema``, ``errors``, ``location``.
"""

from __future__ import annotations

from alkstore_sqlite.engine import SqliteEngine, open_engine

__all__ = ["SqliteEngine", "open_engine"]
