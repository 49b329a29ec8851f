"""The driver's errors to alkstore's: by SQLSTATE and by how far the statement had got, never by text (clause S-5).

An error that the server reports undoes the statement, and so says by itself that nothing happened. A connection that
ends says nothing; what it means depends on what had been sent (``Sent``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import psycopg

from alkstore.errors import (
    AlkstoreError,
    EngineBusyError,
    EngineError,
    EngineUnavailableError,
    OutcomeUnknownError,
    PayloadError,
    SchemaError,
    StorageFullError,
    StoreCorruptError,
    TransactionError,
)
from alkstore.schema import COMMAND


class Sent(Enum):
    """What had been sent when an error came."""

    HARMLESS = "harmless"
    """Nothing that changes anything without a COMMIT, which had not been sent: a read, or part of a transaction."""

    DECISIVE = "decisive"
    """An auto-commit write, or the COMMIT."""


# Classes 08 and 57P0x, and the time-outs that end the session (25P03, 25P04): the connection is over, or about to be.
_ENDS: Final = frozenset(
    {
        "08000",
        "08001",
        "08003",
        "08004",
        "08006",
        "08007",
        "25P03",
        "25P04",
        "57P01",
        "57P02",
        "57P03",
        "57P04",
        "57P05",
    }
)

_MEND: Final = f"run: {COMMAND} (with --schema, where the store has one of its own)"

_AGAIN: Final = frozenset({"40001", "40P01"})  # serialisation failure, deadlock

_MEANINGS: Final[dict[str, tuple[type[AlkstoreError], str]]] = {
    # Of what the library sends, a standby refuses BEGIN ... READ WRITE so, and no server anything else.
    "0A000": (EngineUnavailableError, "the server takes no writes, it is a standby"),
    "25006": (EngineUnavailableError, "the server takes no writes: it is a standby, or set to read only"),
    "25P02": (TransactionError, "the transaction was aborted by an earlier error"),
    "26000": (
        EngineError,
        "a prepared statement is gone: behind a connection pooler, open with prepare_threshold=None",
    ),
    "3F000": (SchemaError, f"the schema is gone; {_MEND}"),
    "40001": (EngineBusyError, "others changed the same rows again and again"),
    "40P01": (EngineBusyError, "others locked the same rows in another order, again and again"),
    "42501": (EngineUnavailableError, "the role has not been granted what the store needs"),
    "42703": (SchemaError, f"the schema is not what this code needs; {_MEND}"),
    "42883": (SchemaError, f"the schema is not what this code needs; {_MEND}"),
    "42P01": (SchemaError, f"the schema's tables are gone; {_MEND}"),
    "53100": (StorageFullError, "the server's disk is full"),
    "53200": (EngineUnavailableError, "the server is out of memory"),
    "54000": (PayloadError, "a value is too large for the server"),
    "53300": (EngineUnavailableError, "the server has no connection to spare"),
    "55P03": (EngineBusyError, "a lock did not come within lock_timeout"),
    "57014": (EngineBusyError, "the statement was cancelled"),
    "58000": (EngineUnavailableError, "the server's system failed it"),
    "58030": (EngineUnavailableError, "the server could not read or write its disk"),
    "XX001": (StoreCorruptError, "the server found damaged data"),
    "XX002": (StoreCorruptError, "the server found a damaged index"),
}


def is_lost(exc: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Say whether the connection is over with this error."""
    return connection.closed or exc.sqlstate in _ENDS


def asks_again(exc: psycopg.Error) -> bool:
    """Say whether the same statement may well succeed when it is run again (Z-12)."""
    return exc.sqlstate in _AGAIN


def translate(exc: psycopg.Error, sent: Sent, *, lost: bool) -> AlkstoreError:
    """Return the error to raise from the driver's."""
    said = exc.diag.message_primary or str(exc).strip() or type(exc).__name__
    if lost:
        if sent is Sent.DECISIVE:
            return OutcomeUnknownError(f"the connection was cut after the write was sent: {said}")
        return EngineUnavailableError(f"the connection was cut, and nothing had been committed: {said}")
    kind, meaning = _MEANINGS.get(exc.sqlstate or "", (EngineError, "the database did not do it"))
    return kind(f"{meaning}: {said} (SQLSTATE {exc.sqlstate or 'none'})")
