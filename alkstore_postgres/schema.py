"""The schema: created, upgraded or checked, safely for many processes at once and for a crash at any point (S-2, Z-13).

Each migration is one transaction with the version row that it leads to: DDL is transactional in PostgreSQL, so that a
process killed half way leaves the schema as it was. Whoever gets the advisory lock first migrates; those behind read the
version again and find nothing left to do. A current schema is only read: no lock, no DDL, and no right to either needed.
"""

from __future__ import annotations

import hashlib
import shlex
from importlib import resources
from typing import Final, LiteralString, cast

from psycopg import errors as pg
from psycopg import sql as composing

from alkstore import schema as versions
from alkstore.errors import SchemaError
from alkstore.schema import Migration, Version
from alkstore_postgres import sql
from alkstore_postgres.pool import Connection
from alkstore_postgres.runner import begin, commit

CODE_VERSION: Final[Version] = (1, 2)
OLDEST_SERVER: Final = 140000
MIGRATIONS: Final = (
    Migration("001_jobs.sql", (1, 0)),
    Migration("002_enqueue.sql", (1, 1)),
    Migration("003_results.sql", (1, 2)),
)


def check_server(connection: Connection, where: str) -> None:
    """Raise ``SchemaError`` for a server or a database that can't hold a store (Z-15)."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise SchemaError(f"{where} is PostgreSQL {version // 10000}: alkstore needs 14 or newer")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"the encoding of {where} is {encoding}: alkstore needs a database made with ENCODING 'UTF8', as no other "
            f"holds every text"
        )


def read_version(connection: Connection, statements: sql.Statements) -> Version | None:
    """Return the version of the schema in the database, or ``None`` where there is none; the driver's errors bare."""
    try:
        row = connection.execute(statements[sql.SCHEMA_READ], {}, prepare=False).fetchone()
    except (pg.UndefinedTable, pg.InvalidSchemaName):
        return None
    return None if row is None else (row[0], row[1])


def is_current(version: Version | None, where: str) -> bool:
    """Say whether this code can use the schema as it is; raise ``SchemaError`` for one of a newer major (Z-13)."""
    return versions.is_current(version, CODE_VERSION, where)


def refuse(version: Version | None, where: str, schema: str) -> SchemaError:
    """Return the error for a schema that isn't current and must not be migrated here."""
    # The URL is left to the reader: it may hold a password, and what is known of it here no longer does.
    return versions.refusal(version, f"{where}, schema {schema!r},", f"--url ... --schema {shlex.quote(schema)}")


def migrate(connection: Connection, statements: sql.Statements, schema: str, where: str) -> None:
    """Bring the schema to this code's version, one transaction per migration.

    Raises ``SchemaError`` where the role may not, or where something else of the same name is in the way; the driver's
    other errors come out bare, with the migration undone.
    """
    for migration in MIGRATIONS:
        try:
            begin(connection)
            connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s::bigint)", [lock_key(schema)], prepare=False)
            version = _read_in_transaction(connection, statements, schema)
            if not is_current(version, where) and (version is None or version < migration.version):
                _apply(connection, statements, schema, migration, version)
            commit(connection)
        except pg.InsufficientPrivilege as exc:
            raise SchemaError(
                f"the role may not create or upgrade the schema {schema!r} in {where}: {exc.diag.message_primary}; run "
                f"{versions.COMMAND} --schema {shlex.quote(schema)} with a role that may"
            ) from exc
        except (pg.DuplicateTable, pg.DuplicateObject, pg.DuplicateFunction) as exc:
            raise SchemaError(
                f"the schema {schema!r} in {where} has something of the same name already: {exc.diag.message_primary}; "
                f"choose another with schema="
            ) from exc


def lock_key(schema: str) -> int:
    """Return the key of the advisory lock that migrations of the schema take; such locks are a database's own."""
    digest = hashlib.blake2b(schema.encode(), digest_size=8, person=b"alkstore").digest()
    return int.from_bytes(digest, "big", signed=True)


def _read_in_transaction(connection: Connection, statements: sql.Statements, schema: str) -> Version | None:
    # Looked up first: an error would abort the transaction.
    found = connection.execute(sql.SCHEMA_PRESENT, {"schema": schema}, prepare=False).fetchone()
    return read_version(connection, statements) if found is not None and found[1] else None


def _apply(
    connection: Connection, statements: sql.Statements, schema: str, migration: Migration, version: Version | None
) -> None:
    if version is None:
        present = connection.execute(sql.SCHEMA_PRESENT, {"schema": schema}, prepare=False).fetchone()
        if present is None:
            # Not IF NOT EXISTS: that asks for the right to create schemas even where there is nothing to create.
            connection.execute(composing.SQL("CREATE SCHEMA {}").format(composing.Identifier(schema)))
        connection.execute(statements[sql.SCHEMA_CREATE], {})
    connection.execute(composing.SQL("SET LOCAL search_path TO {}").format(composing.Identifier(schema)))
    text = resources.files("alkstore_postgres.migrations").joinpath(migration.file).read_text("utf-8")
    connection.execute(cast(LiteralString, text), prepare=False)  # the package's own file, of many statements
    connection.execute(statements[sql.SCHEMA_WRITE], {"major": migration.version[0], "minor": migration.version[1]})
