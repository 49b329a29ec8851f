"""Operations on a connection of the application's own (clauses T-3, T-6).

**Nothing of the application's is changed, and nothing of it matters.** The operations run on cursors that know none of
the connection's row factories; a ``text_factory`` of ``bytes`` is undone row by row, and one that makes something else of
texts is refused.

**Who begins.** Within an open transaction each operation that writes is a savepoint, so that it is done whole or not at
all and the transaction stays usable. With none open it begins one, by ``BEGIN IMMEDIATE`` and not by the driver's own deferred
``BEGIN``: it may read first and write later. In auto-commit mode the operation commits it, else the application does.

**Waiting for the write lock.** The application's own busy timeout comes first, inside SQLite; then the operation waits in the
engine's line, like every other writer, until ``lock_timeout`` is over. What has the write lock already doesn't wait, whoever
stands in the line: those there wait for it.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from alkstore.errors import EngineBusyError, TransactionError, ValidationError
from alkstore_sqlite import sql
from alkstore_sqlite.errors import DRIVER_ERRORS, is_busy, is_stale, without_frames
from alkstore_sqlite.executor import Units
from alkstore_sqlite.operations import Operations
from alkstore_sqlite.pool import Pool

P = ParamSpec("P")
T = TypeVar("T")

_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which came with Python 3.12
_SAVEPOINT: Final = "alkstore_operation"
_TEXTS: Final = frozenset(
    {"name", "+queue", "state", "+codec", "+headers", "+worker_id", "+last_error", "last_error", "+outcome"}
)
"""The columns that hold texts, as ``sql`` calls them."""

_SAMPLE: Final = "\u00e9A"

_STALE: Final = (
    "the application's transaction has read already, and others have written since, so that SQLite lets it write no more: "
    "roll it back, and begin those that are to write with BEGIN IMMEDIATE (Django: the option transaction_mode)"
)


_UNREAD: Final = (
    "a statement on the connection has written, and what it returns isn't read to its end: read that first, as SQLite neither "
    "sets a savepoint nor commits meanwhile"
)


class _Decoding(sqlite3.Cursor):
    """A cursor of a connection that gives texts as bytes: they are texts again."""

    def _decode(self, row: Any) -> Any:
        if row is None:
            return None
        names = [column[0] for column in self.description]
        return tuple(
            value.decode() if isinstance(value, bytes | bytearray) and name in _TEXTS else value
            for name, value in zip(names, row, strict=True)
        )

    def fetchone(self) -> Any:
        """Return the next row, or ``None``."""
        return self._decode(super().fetchone())

    def fetchall(self) -> list[Any]:
        """Return the rest of the rows."""
        return [self._decode(row) for row in super().fetchall()]

    def __next__(self) -> Any:
        """Return the next row, or end."""
        return self._decode(super().__next__())


class _Units(Units):
    """The operations on the application's connection, by cursors that know nothing of its settings."""

    __slots__ = ()

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection, self._execute, self._executemany)

    def _cursor(self) -> sqlite3.Cursor:
        # Not connection.cursor(), which may be the application's own and takes the row factory over.
        factory: object = self.connection.text_factory
        if factory is str:
            return sqlite3.Cursor(self.connection)
        check_texts(self.connection)
        return _Decoding(self.connection)

    def _execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._cursor().execute(statement, parameters)

    def _executemany(self, statement: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        return self._cursor().executemany(statement, parameters)


def check_texts(connection: sqlite3.Connection) -> None:
    """Raise ``ValidationError`` for a ``text_factory`` that gives neither the text nor its bytes."""
    factory = cast("Callable[[bytes], object]", connection.text_factory)
    if factory is str:
        return
    try:
        made = factory(_SAMPLE.encode())
    except (TypeError, ValueError) as exc:
        raise ValidationError(f"connection has a text_factory that can't be used: {exc}") from exc
    if made not in (_SAMPLE, _SAMPLE.encode()):
        raise ValidationError("connection has a text_factory that changes texts; str and bytes will do")


class JoinedSqlite(Operations):
    """See ``alkstore.engine.JoinedConnection``."""

    def __init__(self, pool: Pool, connection: object) -> None:
        """Look at the connection, without beginning or ending anything on it."""
        self._pool: Final = pool
        self._connection: Final = _checked(connection)
        check_texts(self._connection)
        self._check_place()
        self._units: Final = _Units(self._connection)

    def _check_place(self) -> None:
        pool = self._pool
        pool.files.check()  # else names would be compared that stand for another file by now
        path = pool.location.path or ""  # a store in memory doesn't declare that it can join
        try:
            main = self._main_file()
        except sqlite3.ProgrammingError as exc:  # it is another thread's
            raise TransactionError(f"the connection can't be used here and now: {exc}") from exc
        except sqlite3.Error as exc:
            raise pool.failure(exc) from exc
        try:
            same = bool(main) and Path(main).samefile(path)
        except OSError:  # one of them is gone
            same = False
        if not same:
            raise ValidationError(
                f"connection must be to the store's own database, {pool.where}, not to {main or 'one in memory'}"
            )

    def _main_file(self) -> str:
        try:
            rows = self._cursor().execute(sql.FILES).fetchall()
        except sqlite3.OperationalError:  # a name that isn't UTF-8 is no text for the driver
            rows = self._cursor().execute(sql.FILES_IN_BYTES).fetchall()
        texts = ([each if isinstance(each, str) else os.fsdecode(bytes(each)) for each in row[1:]] for row in rows)
        return next((file for name, file in texts if name == "main"), "")

    @property
    def executor(self) -> JoinedSqlite:
        """The operations, on this connection."""
        return self

    @property
    def usable(self) -> bool:
        """Whether it is open: SQLite aborts no transaction without ending it."""
        try:
            _ = self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return False
        return True

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open on it."""
        try:
            return self._connection.in_transaction
        except sqlite3.ProgrammingError:  # it is closed
            return False

    @property
    def auto_commits(self) -> bool:
        """Whether none is open, and the driver opens none by itself."""
        connection = self._connection
        if self.in_transaction or not self.usable:
            return False
        control: object = getattr(connection, "autocommit", _LEGACY)  # since Python 3.12: True, False, or as before
        return connection.isolation_level is None if control == _LEGACY else bool(control)

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None) -> sqlite3.Cursor:
        """Run the application's own statement on its own kind of cursor; the driver's errors come out bare (T-1)."""
        return self._connection.execute(sql, cast("Sequence[object]", () if params is None else params))

    def ring(self, queue: str, count: int) -> None:
        """Do nothing: whoever waits sees each commit of the file (see ``notify``)."""

    # --- operations ----------------------------------------------------------------------------------------------

    def read(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit that is one SELECT: it begins nothing."""
        self._pool.files.check()
        return self._translated(lambda: unit(self._units, *args, **kwargs))

    def write(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit whole or not at all."""
        with self.atomic():
            return self._translated(lambda: unit(self._units, *args, **kwargs))

    @contextmanager
    def atomic(self) -> Generator[None]:
        """Within an open transaction a savepoint, else a transaction, which is left open where the driver would."""
        auto, within = self.auto_commits, self.in_transaction
        if within:
            self._take_lock(sql.LOCK)
            self.savepoint(_SAVEPOINT)
        try:
            if not within:  # what a signal's handler raises in the course of it leaves nothing open
                self._check_all_read()
                self._take_lock(sql.BEGIN)
            yield
            self._pool.files.check_whole()  # the application's own commit is beyond that
        except BaseException:
            self._undo(within=within)
            raise
        if within:
            self.release_savepoint(_SAVEPOINT)
        elif auto:
            self._commit()

    def _check_all_read(self) -> None:
        """Raise ``TransactionError`` where a transaction could not be committed, nor be undone without the application's write."""
        with _all_read():
            self._translated(lambda: self._cursor().execute("SAVEPOINT " + _SAVEPOINT))
            self._translated(lambda: self._cursor().execute("RELEASE " + _SAVEPOINT))

    def _take_lock(self, statement: str) -> None:
        """Run what takes the write lock, and wait for it (T-6)."""
        refusals: deque[sqlite3.Error] = deque(maxlen=1)

        def attempt() -> bool | None:
            self._pool.check_open()
            try:
                self._cursor().execute(statement)
            except sqlite3.OperationalError as exc:
                if is_stale(exc):
                    raise EngineBusyError(_STALE) from exc
                if not is_busy(exc):
                    raise
                refusals.append(without_frames(exc))
                return None
            return True

        pool, writers = self._pool, self._pool.writers
        try:
            if attempt() is None and writers.wait(attempt) is None:
                raise writers.locked_out() from refusals[0]
        except DRIVER_ERRORS as exc:
            raise pool.failure(exc) from exc

    def _undo(self, *, within: bool) -> None:
        """Undo what ``atomic`` has begun; the exception on its way up says why."""
        if not self.in_transaction:
            return  # SQLite has rolled back by itself, or the application has ended it
        try:
            if within:
                self.rollback_to_savepoint(_SAVEPOINT)
            else:
                self._cursor().execute(sql.ROLLBACK)
        except (sqlite3.Error, TransactionError):
            return  # it can't be used any more: what is open on it fails when it is committed

    def _commit(self) -> None:
        try:
            self._pool.patiently(lambda: self._cursor().execute(sql.COMMIT))
        except DRIVER_ERRORS as exc:
            self._undo(within=False)
            raise self._pool.failure(exc, at_commit=True) from exc

    # --- savepoints ----------------------------------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        """Set a savepoint; with no transaction open, begin one first, as the driver would for a statement."""
        if not self.in_transaction:
            self._take_lock(sql.BEGIN)
        with _all_read():
            self._command("SAVEPOINT " + name)

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        self._command("RELEASE " + name)

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since the savepoint, and drop it."""
        self._command("ROLLBACK TO " + name)
        self._command("RELEASE " + name)

    def _command(self, text: str) -> None:
        if not self.in_transaction:
            raise TransactionError("the application's transaction has ended, by itself or by a statement")
        self._translated(lambda: self._cursor().execute(text))

    def _cursor(self) -> sqlite3.Cursor:
        return sqlite3.Cursor(self._connection)

    def _translated(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except DRIVER_ERRORS as exc:
            raise self._pool.failure(exc) from exc


@contextmanager
def _all_read() -> Generator[None]:
    """Say what is wrong where a savepoint is refused: others' locks are never the reason."""
    try:
        yield
    except EngineBusyError as exc:
        raise TransactionError(_UNREAD) from exc


def _checked(connection: object) -> sqlite3.Connection:
    if not isinstance(connection, sqlite3.Connection):
        raise ValidationError(
            f"connection must be a sqlite3.Connection, or SQLAlchemy's or Django's with one, "
            f"not {type(connection).__module__}.{type(connection).__qualname__}"
        )
    try:
        _ = connection.in_transaction
    except sqlite3.ProgrammingError as exc:
        raise ValidationError(f"connection must be open: {exc}") from exc
    return connection
