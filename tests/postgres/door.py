"""The back door: what lies in a store's schema, by the bare driver and none of the product's methods."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from alkstore.store import Store
from alkstore_postgres.engine import PostgresEngine
from alkstore_postgres.notify import Ear
from alkstore_postgres.pool import Pool


class Door:
    """Statements on one schema; ``{jobs}``, ``{dead_jobs}`` and the like in them are its relations."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self._names = {
            name: sql.Identifier(schema, name)
            for name in (
                "jobs",
                "dead_jobs",
                "schema_version",
                "readable_jobs",
                "claim_tokens",
                "results",
                "readable_results",
            )
        }
        self._names["schema"] = sql.Identifier(schema)

    def ask(self, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self.do(statement, *values).fetchall()

    def do(self, statement: LiteralString, *values: Any) -> psycopg.Cursor[Any]:
        """Run a statement."""
        return self.connection.execute(sql.SQL(statement).format(**self._names), values or None)

    def live(self) -> set[int]:
        """Return the ids of the live jobs."""
        return {row[0] for row in self.ask("SELECT id FROM {jobs}")}

    def dead(self) -> set[int]:
        """Return the ids of the dead jobs."""
        return {row[0] for row in self.ask("SELECT id FROM {dead_jobs}")}

    def snapshot(self) -> tuple[set[int], set[int]]:
        """Return the ids of the live and of the dead jobs as of one moment."""
        rows = self.ask("SELECT id, true FROM {jobs} UNION ALL SELECT id, false FROM {dead_jobs}")
        return {key for key, live in rows if live}, {key for key, live in rows if not live}

    def sessions(self, state: str | None = None) -> list[tuple[int, str]]:
        """Return process id and state of the database's other sessions that the library has opened."""
        rows = self.ask(
            "SELECT pid, state FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'alkstore'"
        )
        return [(pid, found) for pid, found in rows if state in (None, found)]

    def waiting(self) -> int:
        """Return how many sessions of the database wait for a lock."""
        self.do("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
        return self.ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )[0][0]


def engine_of(store: Store) -> PostgresEngine:
    """Return the store's engine, as what it is."""
    engine = store.engine
    assert isinstance(engine, PostgresEngine)
    return engine


def pool_of(store: Store) -> Pool:
    """Return the pool of the store's engine."""
    return engine_of(store)._pool  # pyright: ignore[reportPrivateUsage]


def ear_of(store: Store) -> Ear:
    """Return what listens for the store."""
    return engine_of(store)._ear  # pyright: ignore[reportPrivateUsage]


def line_of(pool: Pool) -> int:
    """Return how many threads wait for a connection."""
    return len(pool._line)  # pyright: ignore[reportPrivateUsage]


def in_transaction(sessions: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return those that hold a transaction open while nobody asks them anything."""
    return [session for session in sessions if session[1].startswith("idle in transaction")]
