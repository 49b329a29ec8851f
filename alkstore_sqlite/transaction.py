"""A transaction of the store's own (clauses T-1, T-5, T-6)."""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from alkstore.errors import TransactionError
from alkstore_sqlite.errors import DRIVER_ERRORS
from alkstore_sqlite.executor import Units
from alkstore_sqlite.locking import Inside
from alkstore_sqlite.operations import Operations
from alkstore_sqlite.pool import Pool
from alkstore_sqlite.sql import ROLLBACK
from alkstore_sqlite.writers import Turn

_CUT_STEP: Final = 0.005
"""Seconds between two interrupts: one that comes between two statements is lost."""

P = ParamSpec("P")
T = TypeVar("T")


class TransactionCursor(sqlite3.Cursor):
    """The driver's cursor, which enters SQLite as the transaction's operations do: seen by a fork and by ``close``.

    The driver's errors come out bare (T-1), but for what is the store's being closed (S-3).
    """

    transaction: SqliteTransaction
    _ahead: deque[Any] | None = None
    """Rows read ahead. SQLite has written everything before RETURNING gives its first row, but sets and releases no
    savepoint until the last is read."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        """Run a statement."""
        self._ahead = None
        self.transaction.guarded(super().execute, sql, parameters)
        if "returning" in sql.lower():  # or says so in a text, which does no harm
            self._ahead = deque(self.transaction.guarded(super().fetchall))
        return self

    def executemany(self, sql: str, seq_of_parameters: Iterable[Any], /) -> Self:
        """Run a statement for each of many parameters."""
        return self.transaction.guarded(super().executemany, sql, seq_of_parameters)

    def fetchone(self) -> Any:
        """Return the next row, or ``None``."""
        row = self.transaction.guarded(super().fetchone)
        return self._ahead.popleft() if self._ahead else row

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return the next rows."""
        count = self.arraysize if size is None else size
        rows = self.transaction.guarded(super().fetchmany, count)
        return [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))] if self._ahead else rows

    def fetchall(self) -> list[Any]:
        """Return the rest of the rows."""
        rows = self.transaction.guarded(super().fetchall)
        if self._ahead:
            rows = list(self._ahead)
            self._ahead.clear()
        return rows

    def __next__(self) -> Any:
        """Return the next row, or end."""
        if self._ahead:
            return self.fetchone()
        return self.transaction.guarded(super().__next__)


class SqliteTransaction(Operations):
    """One open transaction, which has the write lock from the start; see ``alkstore.engine.EngineTransaction``.

    ``inside`` is held by whoever is inside SQLite with it. Its own thread never waits there; a fork and ``close`` do.
    """

    def __init__(self, pool: Pool) -> None:
        """Take nothing yet: see ``begin``."""
        self._pool: Final = pool
        self._writers: Final = pool.writers
        self.inside = Inside()
        self._inherited = False
        self._over = False
        self._failed = False
        self._cursors: Final[weakref.WeakSet[sqlite3.Cursor]] = weakref.WeakSet()
        self._turn: Turn | None = pool.writers.turn()
        """``None`` once it is given back."""
        self._units: Units

    def begin(self) -> None:
        """Begin; whoever calls rolls it back for whatever comes out, also for what a signal's handler raises."""
        assert self._turn is not None  # noqa: S101 - it is begun once
        self._units = self._writers.begin(self._turn)
        self._pool.files.check_whole()
        self._pool.hold(self)

    @property
    def executor(self) -> SqliteTransaction:
        """The operations, within this transaction."""
        return self

    @property
    def usable(self) -> bool:
        """Whether the database would still take a statement in it (T-5).

        SQLite rolls back by itself where the disk is full or fails, and ``execute`` can be made to end it: both show in the
        connection's own state. An operation that failed half way makes it unusable too, as it does on the twin.
        """
        return not (self._over or self._failed or self._inherited) and self._units.connection.in_transaction

    def read(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit within the transaction, where reading and writing are alike."""
        return self.write(unit, *args, **kwargs)

    def write(self, unit: Callable[Concatenate[Units, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit within the transaction; after one that failed, nothing of the transaction can be committed."""
        with self.inside:
            self._check_usable()
            try:
                return unit(self._units, *args, **kwargs)
            except DRIVER_ERRORS as exc:
                self._failed = True
                raise self._pool.failure(exc) from exc
            except BaseException:
                self._failed = True
                raise

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None) -> sqlite3.Cursor:
        """Run the application's own statement; the driver's errors come out bare (T-1).

        The cursor is to be read before the transaction ends, and is closed with it: a result that is still being read
        would keep the connection's view of the database from moving on.
        """
        with self.inside:
            self._check_usable()
            cursor = self._units.connection.cursor(TransactionCursor)
            cursor.transaction = self
            self._cursors.add(cursor)
            return cursor.execute(sql, cast("Sequence[object]", () if params is None else params))

    def guarded(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step of a cursor's; the driver's errors bare, but for those of ``close``."""
        with self.inside:
            try:
                return step(*args, **kwargs)
            except sqlite3.Error as exc:
                if self._pool.was_cut(exc):
                    self._failed = True
                    raise self._pool.closed_error() from exc
                raise

    def commit(self) -> None:
        """Commit, and end the transaction (T-1)."""
        with self.inside:
            usable = self.usable
            if not self._over and not self._inherited:
                if usable:
                    self._commit()
                else:
                    self._roll_back()
        if not usable:
            if not self._inherited:
                self._pool.check_open()
            raise TransactionError("the transaction is over or has failed: nothing of it was committed")

    def rollback(self) -> None:
        """Roll back, and end the transaction; never raises. Where it has ended that does nothing, and else what is left to do."""
        if self._inherited:
            return
        with self.inside:
            self._roll_back()

    def cut(self, deadline: float) -> None:
        """Interrupt it and roll it back, for ``close``; where it doesn't come out in time, its own thread will."""
        while not self.inside.acquire(timeout=_CUT_STEP):
            self._units.interrupt()
            if time.monotonic() >= deadline:
                return
        try:
            self._roll_back()
        finally:
            self.inside.release()

    def _commit(self) -> None:
        turn = self._turn
        if turn is not None:
            try:
                self._end()
                self._writers.commit(turn)
            except BaseException:  # an interrupt, say: it must not keep the write lock
                self._roll_back(keep=False)
                raise
            self._dismiss(turn)

    def _roll_back(self, *, keep: bool = True) -> None:
        turn = self._turn
        if turn is not None:
            is_free = False
            try:
                is_free = self._end()
            finally:
                self._writers.abandon(turn, keep=keep and is_free)
            self._dismiss(turn)

    def _dismiss(self, turn: Turn) -> None:
        self._turn = None  # before another transaction may have it
        self._writers.dismiss(turn)

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self._command("SAVEPOINT " + name)

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        self._command("RELEASE " + name)

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since the savepoint, and drop it; heals a transaction that failed since."""
        self._failed = False
        self._command("ROLLBACK TO " + name)
        self._command("RELEASE " + name)

    def disown(self) -> None:
        """In a forked child: refuse use from now on."""
        self._inherited = True
        self.inside = Inside()  # whoever held it is in the parent

    def clear(self) -> bool:
        """In a forked child: roll the copy back, which touches nothing that the parent shares (see ``fork``).

        That is so for a database in WAL mode that nothing was written to yet. Where the application has attached others,
        made temporary tables, or let the cache spill, the copy is left alone, and it was not possible.
        """
        execute = self._units.execute
        try:
            for cursor in list(self._cursors):
                cursor.close()
            databases = execute("PRAGMA database_list").fetchall()
            if len(databases) > 1 or execute("PRAGMA cache_spill").fetchone()[0]:
                return False
            if self._units.connection.in_transaction:
                execute(ROLLBACK)
        except sqlite3.Error:
            return False
        return True

    def _command(self, text: str) -> None:
        with self.inside:
            self._check_usable()
            try:
                self._units.execute(text)
            except DRIVER_ERRORS as exc:
                self._failed = True
                raise self._pool.failure(exc) from exc

    def _check_usable(self) -> None:
        if not self.usable:
            if not self._inherited:
                self._pool.check_open()
            raise TransactionError(
                "the transaction is the parent process's, from which this one was forked"
                if self._inherited
                else "the transaction is over, or has failed"
            )

    def _end(self) -> bool:
        """End it for its users, and say whether the connection is free of what they left on it."""
        self._over = True
        try:
            for cursor in list(self._cursors):
                cursor.close()
        except sqlite3.ProgrammingError:  # a function that the cursor's own statement calls ends the transaction
            return False
        finally:
            self._pool.let_go(self)
        return True
