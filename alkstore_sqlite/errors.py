"""SQLite's result codes to alkstore's errors: by code, never by message (clause S-5)."""

from __future__ import annotations

import shlex
import sqlite3
from typing import Final, TypeVar

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
    ValidationError,
)
from alkstore.schema import COMMAND

# Primary result codes: the low byte of the extended ones.
_STATEMENT: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA})
_TOOBIG: Final = sqlite3.SQLITE_TOOBIG
_IOERR: Final = sqlite3.SQLITE_IOERR

# A protocol error is a race for WAL's locks, lost too often in a row: locked by any other name.
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_CLASSES: Final[dict[int, type[EngineError]]] = {
    sqlite3.SQLITE_BUSY: EngineBusyError,
    sqlite3.SQLITE_LOCKED: EngineBusyError,
    sqlite3.SQLITE_PROTOCOL: EngineBusyError,
    sqlite3.SQLITE_FULL: StorageFullError,
    sqlite3.SQLITE_CORRUPT: StoreCorruptError,
    sqlite3.SQLITE_NOTADB: StoreCorruptError,
    sqlite3.SQLITE_FORMAT: StoreCorruptError,
    sqlite3.SQLITE_CANTOPEN: EngineUnavailableError,
    sqlite3.SQLITE_READONLY: EngineUnavailableError,
    sqlite3.SQLITE_PERM: EngineUnavailableError,
    sqlite3.SQLITE_AUTH: EngineUnavailableError,
    sqlite3.SQLITE_IOERR: EngineUnavailableError,
    sqlite3.SQLITE_NOMEM: EngineUnavailableError,
    sqlite3.SQLITE_NOLFS: EngineUnavailableError,
    sqlite3.SQLITE_INTERRUPT: EngineBusyError,  # cancelled: nothing happened, and it may be tried again
}

_HINTS: Final = {
    sqlite3.SQLITE_CANTOPEN: "; SQLite has to make and write the file and, beside it, its -wal and its -shm",
    sqlite3.SQLITE_READONLY: "; SQLite has to write the file and, beside it, its -wal and its -shm",
}

_LASTING: Final = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_MISUSE,
    }
)


DRIVER_ERRORS: Final = (sqlite3.Error, OverflowError, MemoryError)
"""What the driver raises: for a value that SQLite can't hold, and for SQLITE_NOMEM, Python's own exceptions."""


def primary_code(exc: BaseException) -> int | None:
    """Return the primary result code, or ``None`` for an error that the driver raised by itself."""
    if isinstance(exc, MemoryError):
        return sqlite3.SQLITE_NOMEM
    code: int | None = getattr(exc, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(exc: BaseException) -> bool:
    """Say whether the error is a lock held elsewhere, so that trying again makes sense."""
    return primary_code(exc) in _BUSY


def is_stale(exc: BaseException) -> bool:
    """Say whether the connection itself still reads an old snapshot, so that trying again on it makes no sense."""
    return getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT


def is_cut(exc: BaseException) -> bool:
    """Say whether the error is what closing a connection beneath its user looks like to him."""
    return primary_code(exc) in (sqlite3.SQLITE_INTERRUPT, None) and isinstance(exc, sqlite3.Error)


E = TypeVar("E", bound=BaseException)


def without_frames(exc: E) -> E:
    """Return the exception without the frames that it came through, to be kept for longer than it takes to raise it.

    They have their callers' frames, and all their variables: somebody's connection, say, or whoever keeps the exception, which is
    a circle then that only the collector ends.
    """
    exc.__context__ = None
    return exc.with_traceback(None)


def is_lasting(exc: BaseException) -> bool:
    """Say whether the connection had better not be used again."""
    return primary_code(exc) in _LASTING


def translate(exc: Exception, where: str, *, at_commit: bool = False) -> AlkstoreError:
    """Return alkstore's error for the driver's, to be raised ``from`` it; ``where`` names the database.

    ``at_commit`` says that the commit itself failed: an I/O error is then an ``OutcomeUnknownError``, because the
    commit's frames may have reached the disk although the answer says otherwise.
    """
    if isinstance(exc, OverflowError):
        return ValidationError(f"a value is too large for SQLite: {exc}")
    code = primary_code(exc)
    if code == _TOOBIG:
        return PayloadError("payload is too large for SQLite")
    if code in _STATEMENT:
        return SchemaError(
            f"the tables in {where} are not those that this version of alkstore expects ({exc}); "
            f"run: {COMMAND} --url {shlex.quote(where)}"
        )
    if at_commit and code == _IOERR:
        return OutcomeUnknownError(f"the commit in {where} was cut off: {_spell(exc)}")
    kind = EngineError if code is None else _CLASSES.get(code, EngineError)
    return kind(f"{where}: {_spell(exc)}{_HINTS.get(code or 0, '')}")


def _spell(exc: Exception) -> str:
    name: str | None = getattr(exc, "sqlite_errorname", None)
    return f"{exc} ({name})" if name else str(exc) or type(exc).__name__
