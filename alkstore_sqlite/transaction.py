"""A transaction of the store's own (clauses T-1, T-5, T-6)."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from alkstore.errors import TransactionError
from alkstore_sqlite.errors import translate
from alkstore_sqlite.executor import Units
from alkstore_sqlite.operations import Operations
from alkstore_sqlite.pool import Pool
from alkstore_sqlite.sql import ROLLBACK

P = ParamSpec("P")
T = TypeVar("T")


class SqliteTransaction(Operations):
    """One open transaction, which has the write lock from the start; see ``alkstore.engine.EngineTransaction``.

    ``inside`` is held by whoever is inside SQLite with it. Its own thread never waits there; a fork and ``close`` do.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._writers: Final = pool.writers
        self._units: Final = pool.writers.begin()
        self.inside = threading.Lock()
        self._inherited = False
        self._over = False
        self._failed = False
        self._cursors: Final[weakref.WeakSet[sqlite3.Cursor]] = weakref.WeakSet()
        pool.hold(self)

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
            except (sqlite3.Error, OverflowError) as exc:
                self._failed = True
                raise translate(exc, self._pool.where) from exc
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
            cursor = self._units.execute(sql, cast("Sequence[object]", () if params is None else params))
            self._cursors.add(cursor)
            return cursor

    def commit(self) -> None:
        """Commit, and end the transaction (T-1)."""
        with self.inside:
            usable = self.usable
            if not self._over and not self._inherited:
                self._end()
                if usable:
                    self._writers.commit(self._units)
                else:
                    self._writers.abandon(self._units)
        if not usable:
            raise TransactionError("the transaction is over or has failed: nothing of it was committed")

    def rollback(self) -> None:
        """Roll back, and end the transaction; never raises."""
        if self._inherited:
            return
        with self.inside:
            if not self._over:
                self._end()
                self._writers.abandon(self._units)

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
        self.inside = threading.Lock()  # whoever held it is in the parent

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
            except sqlite3.Error as exc:
                self._failed = True
                raise translate(exc, self._pool.where) from exc

    def _check_usable(self) -> None:
        if not self.usable:
            raise TransactionError(
                "the transaction is the parent process's, from which this one was forked"
                if self._inherited
                else "the transaction is over, or has failed"
            )

    def _end(self) -> None:
        self._over = True
        for cursor in list(self._cursors):
            cursor.close()
        self._pool.let_go(self)
