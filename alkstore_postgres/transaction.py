"""One open transaction of the store (clauses T-1, T-2, T-5)."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, LiteralString, TypeVar, cast

import psycopg
from psycopg import sql as composing
from psycopg.pq import TransactionStatus

from alkstore.engine import EngineTransaction
from alkstore.errors import StoreClosedError, TransactionError
from alkstore_postgres import sql
from alkstore_postgres.errors import Sent, is_lost, translate
from alkstore_postgres.executor import PostgresExecutor
from alkstore_postgres.pool import UNPLANNED, Connection, Pool, cut
from alkstore_postgres.runner import Parameters, Rows, Runner, aside, begin, commit, rows

T = TypeVar("T")


# What begins so, but for SET LOCAL and SET TRANSACTION, may change the session beyond the transaction's end. What a
# function of the application's changes isn't seen.
_SESSION: Final = re.compile(
    r"(?:^|;)\s*(?:SET(?!\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)\b)|RESET|DISCARD|LISTEN|UNLISTEN|PREPARE|LOAD)\b|\bset_config\b",
    re.IGNORECASE,
)


def _may_outlive(sql: object, connection: Connection) -> bool:
    if isinstance(sql, composing.Composable):
        text = sql.as_string(connection)
    else:
        text = bytes(sql).decode("utf-8", "replace") if isinstance(sql, bytes | bytearray) else str(sql)
    return _SESSION.search(text) is not None


class PostgresTransaction(EngineTransaction):
    """A transaction on a connection of the pool, which gets it back at the end."""

    def __init__(self, pool: Pool, statements: sql.Statements, ended: Callable[[PostgresTransaction], None]) -> None:
        """Take nothing yet (see ``begin``); ``ended`` is told of the end."""
        self._pool = pool
        self._ended = ended
        self._statements = statements
        self._process = os.getpid()
        self._over = False
        self._ending = False
        self._tainted = False
        """The application may have changed the session for longer than the transaction."""
        self._cursors: weakref.WeakSet[psycopg.Cursor[Any]] = weakref.WeakSet()
        self._planning_is_ours = True
        self._planning_at: dict[str, bool] = {}  # at each savepoint
        self._connection: Connection
        self._held: Final[list[Connection]] = []
        """The connection, until it is given back."""

    def begin(self) -> None:
        """Begin; whoever calls rolls it back for whatever comes out, also for what a signal's handler raises.

        A connection that turns out to be cut is replaced: nothing can have happened by a BEGIN.
        """
        if not self._has_begun(fresh=False):
            self._has_begun(fresh=True)

    def _has_begun(self, *, fresh: bool) -> bool:
        connection = self._connection = self._pool.acquire(fresh=fresh)
        self._held.append(connection)
        try:
            begin(connection)
        except psycopg.Error as exc:
            lost = is_lost(exc, connection)
            if lost:
                self._pool.discard(connection)
            self._pool.release_from(self._held)
            if fresh or not lost:
                raise translate(exc, Sent.HARMLESS, lost=lost) from exc
            return False
        return True

    @property
    def executor(self) -> PostgresExecutor:
        """The operations, within this transaction."""
        # Made anew each time: kept, it would be a circle, and what is left to nobody would stay open until the collector comes.
        return PostgresExecutor(self, self._statements.channels)

    @property
    def usable(self) -> bool:
        """Whether the database would still take a statement in it, by what the driver knows."""
        return not self._over and self._process == os.getpid() and self._connection.status is TransactionStatus.INTRANS

    # --- statements ----------------------------------------------------------------------------------------------

    def read(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement (see ``Runner``)."""
        self._check()
        # A plan that is made while the application's settings rule must not be kept for when the library's do.
        prepare = None if self._planning_is_ours else False
        try:
            return rows(self._connection, self._statements[statement], parameters, prepare=prepare)
        except psycopg.Error as exc:
            raise self._failed(exc) from exc

    write = read

    @property
    def bounded(self) -> bool:
        """Its locks last until the application ends it."""
        return False

    def unit(self, work: Callable[[Runner], T]) -> T:
        """Run within this transaction (see ``Runner``)."""
        return work(self)

    def aside(self, work: Callable[[Runner], bool]) -> bool:
        """Run beside it, on another connection of the pool (see ``Runner``)."""
        self._check()
        return aside(self._pool, self._statements, work)

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None) -> psycopg.Cursor[Any]:
        """Run the application's own statement, planned by its own settings; the driver's errors come out bare (T-1)."""
        self._check()
        if self._planning_is_ours:
            self._control(UNPLANNED)
            self._planning_is_ours = False
        if _may_outlive(sql, self._connection):
            self._tainted = True
        # The application's own words, whatever they are; the driver asks for a literal to keep others from being careless.
        cursor = self._connection.cursor()
        self._cursors.add(cursor)
        try:
            return cursor.execute(cast(LiteralString, sql), params)
        except psycopg.Error as exc:
            if self._pool.closed and is_lost(exc, self._connection):
                raise StoreClosedError("the store was closed, and the transaction was rolled back") from exc
            raise

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self._planning_at[name] = self._planning_is_ours
        self._control(composing.SQL("SAVEPOINT {}").format(composing.Identifier(name)))

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        self._control(composing.SQL("RELEASE SAVEPOINT {}").format(composing.Identifier(name)))

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since the savepoint, and drop it."""
        known = composing.Identifier(name)
        if self._over or self._process != os.getpid() or self._connection.closed:
            raise TransactionError("the transaction is over")
        self._run(composing.SQL("ROLLBACK TO SAVEPOINT {0}; RELEASE SAVEPOINT {0}").format(known))
        # What was SET LOCAL since the savepoint is undone with it, and what was before is not.
        self._planning_is_ours = self._planning_at.get(name, self._planning_is_ours)

    def _control(self, statement: LiteralString | composing.Composed) -> None:
        self._check()
        self._run(statement)

    def _run(self, statement: LiteralString | composing.Composed) -> None:
        try:
            self._connection.execute(statement, prepare=False)  # there may be several in it
        except psycopg.Error as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: psycopg.Error) -> Exception:
        lost = is_lost(exc, self._connection)
        if lost:
            self._connection.close()
            if self._pool.closed:
                return StoreClosedError("the store was closed, and the transaction was rolled back")
        return translate(exc, Sent.HARMLESS, lost=lost)

    def _check(self) -> None:
        if self._process != os.getpid():
            raise TransactionError("the transaction was begun before a fork, and belongs to the parent process")
        if not self.usable:
            raise TransactionError("the transaction is over, or was aborted by the database")

    # --- the end -------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit, and give the connection back."""
        try:
            self._check()
            self._ending = True
            commit(self._connection)
        finally:
            self._end()

    def rollback(self) -> None:
        """Roll back, and give the connection back; never raises for what is gone.

        Where it has ended that does nothing, and where a signal's handler kept it from ending, what is left to do.
        """
        self._end()

    def cut(self) -> None:
        """End it from another thread, unless it is just being committed: the store is being closed (S-3)."""
        if not self._over and not self._ending and self._process == os.getpid():
            cut(self._connection)

    def _end(self) -> None:
        self._over = True
        self._ended(self)
        for cursor in list(self._cursors):
            cursor.close()  # nothing of it may run outside
        if self._tainted and self._held:
            self._pool.discard(self._connection)  # which rolls back whatever is open
        self._pool.release_from(self._held)  # likewise


_RUNNER: Final[type[Runner]] = PostgresTransaction  # a transaction is the runner of its own executor
