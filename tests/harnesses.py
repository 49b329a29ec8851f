"""The harnesses of this repository's own engines, for the contract suite.

    pytest -p contract_tests.plugin --pyargs contract_tests.suite --harness tests.harnesses:SqliteHarness

The back doors read the tables with the bare drivers.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from psycopg import sql

import alkstore
from alkstore.protocols import Store
from contract_tests.harness import Harness, Row
from tests.support.poolers import Pooler, pooler_for, through
from tests.support.postgres_server import PostgresServer, session_server

_COLUMNS: Final = "id, queue, attempts, created_at, run_at, expires_at, last_error, codec, payload"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _row(record: tuple[Any, ...]) -> Row:
    """Make the record of a row of ``table, worker_id`` and the columns above."""
    table, worker_id, job_id, queue, attempts, created_at, run_at, expires_at, last_error, codec, payload = record
    return Row(
        table=table,
        worker_id=worker_id,
        id=job_id,
        queue=queue,
        attempts=attempts,
        created_at=_instant(created_at),
        run_at=_instant(run_at),
        expires_at=None if expires_at is None else _instant(expires_at),
        last_error=last_error,
        codec=codec,
        payload=bytes(payload),
    )


class SqliteHarness(Harness):
    """SQLite, each place a file in a directory of its own."""

    name = "sqlite"

    def __init__(self) -> None:
        self._directory = Path()
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Make a temporary directory."""
        self._directory = Path(tempfile.mkdtemp(prefix="alkstore-contract-"))

    def stop(self) -> None:
        """Remove the temporary directory."""
        shutil.rmtree(self._directory)

    def new_place(self) -> str:
        """Make a directory for a database file."""
        directory = self._directory / str(next(self._numbers))
        directory.mkdir()
        return f"sqlite:///{directory / 'store.db'}"

    def drop_place(self, place: str) -> None:
        """Remove the file, and whatever lies beside it."""
        shutil.rmtree(_file(place).parent)

    def connect(self, place: str, *, auto_commit: bool) -> sqlite3.Connection:
        """Connect with the driver's defaults, or in auto-commit mode."""
        file = _file(place)
        return sqlite3.connect(file, isolation_level=None) if auto_commit else sqlite3.connect(file)

    def disturb(self, place: str) -> None:
        """Take down all the bells."""
        shutil.rmtree(f"{_file(place)}-alkstore-bells", ignore_errors=True)

    def peek(self, place: str) -> list[Row]:
        """Read both tables in one snapshot."""
        # Through SQLite, in the library's own copy of it: the file is never opened by other means (that would drop its locks).
        connection = sqlite3.connect(_file(place), isolation_level=None, timeout=30)
        try:
            found = connection.execute(
                f"SELECT 'live', worker_id, {_COLUMNS} FROM alkstore_jobs"
                f" UNION ALL SELECT 'dead', NULL, {_COLUMNS} FROM alkstore_dead_jobs"
            ).fetchall()
        finally:
            connection.close()
        return [_row(record) for record in found]


def _file(place: str) -> Path:
    return Path(place.removeprefix("sqlite:///"))


class PostgresHarness(Harness):
    """PostgreSQL, each place a schema of its own in one throw-away database: ``postgresql://...#schema``."""

    name = "postgresql"

    def __init__(self) -> None:
        self._server: PostgresServer | None = None
        self._database = ""
        self._lock = threading.Lock()
        self._back_door: tuple[int, str, psycopg.Connection[Any]] | None = None

    def start(self) -> None:
        """Create a database on the session's server."""
        self._server = session_server()
        self._database = self._server.create_database()

    def stop(self) -> None:
        """Drop the database, with whatever is still connected to it."""
        if self._back_door is not None:
            self._back_door[2].close()
        if self._server is not None and self._database:
            self._server.drop_database(self._database)

    def new_place(self) -> str:
        """Make up the name of a schema; opening creates it."""
        # Quotes, a blank and capitals: every statement has to quote it.
        return f'{self._database}#Place "{secrets.token_hex(6)}"'

    def drop_place(self, place: str) -> None:
        """Drop the schema."""
        url, schema = _split(place)
        with self._lock:
            self._connection(url).execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))

    def open(self, place: str, **options: Any) -> Store:
        """Open with the schema that the place carries."""
        url, schema = _split(place)
        return cast(Store, alkstore.open(url, schema=schema, **options))

    def connect(self, place: str, *, auto_commit: bool) -> psycopg.Connection[Any]:
        """Connect with the driver's defaults, or in auto-commit mode."""
        return psycopg.connect(_split(place)[0], autocommit=auto_commit)

    def disturb(self, place: str) -> None:
        """Terminate the sessions that listen."""
        with self._lock:
            self._connection(_split(place)[0]).execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'alkstore' AND query ~ '^(LISTEN|UNLISTEN)'"
            )

    def peek(self, place: str) -> list[Row]:
        """Read both tables in one snapshot."""
        url, schema = _split(place)
        query = sql.SQL(
            "SELECT 'live', worker_id, {columns} FROM {live} UNION ALL SELECT 'dead', NULL, {columns} FROM {dead}"
        ).format(
            columns=sql.SQL(_COLUMNS), live=sql.Identifier(schema, "jobs"), dead=sql.Identifier(schema, "dead_jobs")
        )
        with self._lock:
            found = self._connection(url).execute(query).fetchall()
        return [_row(record) for record in found]

    def _connection(self, url: str) -> psycopg.Connection[Any]:
        """Return the back door's connection of this process: connecting for each look would take longer than the look."""
        if self._back_door is None or self._back_door[:2] != (os.getpid(), url) or self._back_door[2].closed:
            self._back_door = (os.getpid(), url, psycopg.connect(url, autocommit=True))
        return self._back_door[2]


def _split(place: str) -> tuple[str, str]:
    url, _, schema = place.rpartition("#")
    return url, schema


class PoolerHarness(PostgresHarness):
    """PostgreSQL through a pooler that lends sessions by the transaction; who listens goes around it.

    A place is that of ``PostgresHarness`` after the pooler's port.
    """

    name = "pooler"

    def __init__(self) -> None:
        super().__init__()
        self._pooler: Pooler | None = None

    def start(self) -> None:
        """Put a pooler before the database."""
        super().start()
        self._pooler = pooler_for(self._database)

    def stop(self) -> None:
        """End the pooler."""
        if self._pooler is not None:
            self._pooler.close()
        super().stop()

    def new_place(self) -> str:
        """Make up the name of a schema."""
        assert self._pooler is not None
        return f"{self._pooler.port} {super().new_place()}"

    def drop_place(self, place: str) -> None:
        """Drop the schema."""
        super().drop_place(_direct(place))

    def open(self, place: str, **options: Any) -> Store:
        """Open through the pooler."""
        url, schema = _split(_direct(place))
        pooled = through(url, int(place.partition(" ")[0]))
        return cast(Store, alkstore.open(pooled, schema=schema, pooler="transaction", listen_url=url, **options))

    def connect(self, place: str, *, auto_commit: bool) -> psycopg.Connection[Any]:
        """Connect around it."""
        return super().connect(_direct(place), auto_commit=auto_commit)

    def disturb(self, place: str) -> None:
        """Terminate the sessions that listen."""
        super().disturb(_direct(place))

    def peek(self, place: str) -> list[Row]:
        """Read both tables in one snapshot."""
        return super().peek(_direct(place))


def _direct(place: str) -> str:
    return place.partition(" ")[2]
