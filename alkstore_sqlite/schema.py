"""The schema: created, upgraded or checked, safely for many processes at once and for a crash at any point (S-2, Z-13).

Each migration is one transaction with the version row that it leads to: DDL is transactional in SQLite, so that a
process killed half way leaves the schema as it was before that migration. Whoever gets the write lock first migrates;
those behind read the version again and find nothing left to do.
"""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Final

from alkstore import schema as versions
from alkstore.errors import SchemaError
from alkstore.schema import Migration, Version
from alkstore_sqlite import sql

CODE_VERSION: Final[Version] = (1, 3)
MIGRATIONS: Final = (
    Migration("001_jobs.sql", (1, 0)),
    Migration("002_enqueue.sql", (1, 1)),
    Migration("003_notifications.sql", (1, 2)),
    Migration("004_results.sql", (1, 3)),
)


def read_version(connection: sqlite3.Connection) -> Version | None:
    """Return the version of the schema in the database, or ``None`` where there is none; the driver's errors bare."""
    if not connection.execute(sql.SCHEMA_PRESENT).fetchone()[0]:
        return None
    row = connection.execute(sql.SCHEMA_READ).fetchone()
    return None if row is None else (row[0], row[1])


def is_current(version: Version | None, where: str) -> bool:
    """Say whether this code can use the schema as it is; raise ``SchemaError`` for one of a newer major (Z-13)."""
    return versions.is_current(version, CODE_VERSION, where)


def refuse(version: Version | None, where: str) -> SchemaError:
    """Return the error for a schema that isn't current and must not be migrated here."""
    return versions.refusal(version, where, f"--url {shlex.quote(where)}")


def migrate(connection: sqlite3.Connection, where: str, begin: Callable[[], None], commit: Callable[[], None]) -> None:
    """Bring the schema to this code's version, one transaction per migration.

    ``begin`` takes the write lock on the connection, and ``commit`` commits, both for as long as it takes; the driver's
    other errors come out bare, with the migration undone.
    """
    for migration in MIGRATIONS:
        begin()
        try:
            version = read_version(connection)
            if not is_current(version, where) and (version is None or version < migration.version):
                if version is None:
                    connection.execute(sql.SCHEMA_CREATE)
                for statement in statements(migration.file):
                    connection.execute(statement)
                connection.execute(sql.SCHEMA_WRITE, migration.version)
            commit()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # it must not hide what went wrong
                if connection.in_transaction:
                    connection.execute(sql.ROLLBACK)
            raise


def statements(file: str) -> Iterator[str]:
    """Yield the statements of a migration's file; ``executescript`` would commit before the first."""
    text = resources.files("alkstore_sqlite.migrations").joinpath(file).read_text("utf-8")
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
