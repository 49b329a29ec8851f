"""Alkstore on PostgreSQL, as docs/options.md has it by default: a pool of connections, each statement its own commit."""

from __future__ import annotations

from benchmarks.systems.alkstore_common import Alkstore


class AlkstorePostgres(Alkstore):
    """The library over a server."""

    engine = "postgresql"
