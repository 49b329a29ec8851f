"""Operations on a connection of the application's own (clause T-3).

**Nothing of the application's is changed, and nothing of it matters.** The operations run on a cursor of the engine's own,
with the driver's standard adapters and plain rows, whatever factories and adapters the connection has; and unprepared, as
its prepared statements are the application's. What the pool's sessions have set (planning, ``lock_timeout``) isn't set
here: waits for locks are as long as the application's session allows, and where it plans badly, a statement is slower and
nothing else.

**Who begins.** The driver, by its own rule: within an open transaction each statement is part of it, and aborts it where
it fails (T-1); outside of auto-commit mode it begins one; in auto-commit mode a statement is a transaction of its own, and
an operation of several is put into one.

**Which database.** The same server and database is what has the same start of the server and the same object id: both can be read
by everybody. They are read once for a connection, in a way that begins no transaction.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, TypeVar, cast

import psycopg
from psycopg import pq
from psycopg import sql as composing
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row

from alkstore.engine import JoinedConnection
from alkstore.errors import AlkstoreError, EngineBusyError, TransactionError, ValidationError
from alkstore_postgres import sql
from alkstore_postgres.errors import Sent, is_lost, translate
from alkstore_postgres.executor import PostgresExecutor
from alkstore_postgres.pool import Pool
from alkstore_postgres.runner import Parameters, Rows, Runner, aside

T = TypeVar("T")

_SAVEPOINT: Final = "alkstore_operation"


class _Cursor(psycopg.Cursor[TupleRow]):
    """A cursor that knows nothing of what the application has registered on its connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = AdaptersMap(psycopg.adapters)
        self.format = pq.Format.BINARY


def _check_free(connection: psycopg.Connection[Any], patience: float) -> None:
    """Wait until no statement runs on the connection; raise ``EngineBusyError`` after so many seconds.

    While rows are being streamed or copied, the driver keeps its lock until that is done: to wait for it in the thread that does
    it would be for ever.
    """
    if connection.pgconn.transaction_status != TransactionStatus.ACTIVE:
        return
    if not connection.lock.acquire(timeout=patience):
        raise EngineBusyError(
            f"the connection was in the middle of a statement for {patience:g} s: finish the COPY or the stream() first "
            f"(the option is lock_timeout)"
        )
    connection.lock.release()


def _check_encoding(connection: psycopg.Connection[Any], error: type[AlkstoreError]) -> None:
    if connection.info.encoding != "utf-8":
        raise error(f"connection must have client_encoding UTF8, and has {connection.info.encoding}")


class PostgresJoined(JoinedConnection):
    """See ``alkstore.engine.JoinedConnection``; it is the runner of its own executor."""

    def __init__(self, pool: Pool, statements: sql.Statements, connection: psycopg.Connection[Any]) -> None:
        self._pool = pool
        self._statements = statements
        self._connection = connection
        self._cursor = _Cursor(connection)
        self._executor = PostgresExecutor(self, statements.channels)

    @property
    def executor(self) -> PostgresExecutor:
        """The operations, on this connection."""
        return self._executor

    @property
    def usable(self) -> bool:
        """Whether it is open, and no transaction on it aborted."""
        status = TransactionStatus(self._connection.pgconn.transaction_status)
        return status not in (TransactionStatus.INERROR, TransactionStatus.UNKNOWN)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open on it."""
        status = TransactionStatus(self._connection.pgconn.transaction_status)
        return status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)

    @property
    def auto_commits(self) -> bool:
        """Whether none is open, and the driver begins none by itself."""
        return self._connection.autocommit and not self.in_transaction

    def execute(self, sql: str, params: Sequence[object] | Mapping[str, object] | None) -> psycopg.Cursor[Any]:
        """Run the application's own statement on its own kind of cursor; the driver's errors come out bare (T-1)."""
        # The application's own words; the driver asks for a literal to keep others from being careless.
        return self._connection.execute(cast(LiteralString, sql), params)

    # --- statements ----------------------------------------------------------------------------------------------

    def read(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement (see ``Runner``)."""
        return self._run(statement, parameters, Sent.HARMLESS)

    def write(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement (see ``Runner``)."""
        return self._run(statement, parameters, Sent.DECISIVE if self.auto_commits else Sent.HARMLESS)

    def _run(self, statement: LiteralString, parameters: Parameters, sent: Sent) -> Rows:
        self._check()
        try:
            self._cursor.execute(self._statements[statement], parameters, prepare=False)
            return self._cursor.fetchall()
        except psycopg.Error as exc:
            raise self._failed(exc, sent) from exc

    @property
    def bounded(self) -> bool:
        """Whether a unit is a transaction of its own."""
        return self.auto_commits

    def unit(self, work: Callable[[Runner], T]) -> T:
        """Run within the open transaction, or in one that the application commits, or in one of its own."""
        if not self.auto_commits:
            return work(self)
        with self.atomic():
            return work(self)

    def aside(self, work: Callable[[Runner], bool]) -> bool:
        """Run beside the transaction that stays open, on a connection of the pool (see ``Runner``)."""
        return not self.auto_commits and aside(self._pool, self._statements, work)

    @contextmanager
    def atomic(self) -> Generator[None]:
        """In auto-commit mode a transaction of its own, else a savepoint."""
        if self.auto_commits:
            sent = Sent.HARMLESS
            try:
                with self._connection.transaction():
                    yield
                    sent = Sent.DECISIVE
            except psycopg.Error as exc:
                raise self._failed(exc, sent) from exc
            return
        self.savepoint(_SAVEPOINT)
        try:
            yield
        except BaseException:
            self._undo()
            raise
        self.release_savepoint(_SAVEPOINT)

    def _undo(self) -> None:
        """Undo what ``atomic`` has begun; the exception on its way up says why."""
        try:
            if self.in_transaction:
                self.rollback_to_savepoint(_SAVEPOINT)
        except AlkstoreError:
            return  # it can't be used any more: what is open on it fails when it is committed

    def ring(self, queue: str, count: int) -> None:
        """Notify within the transaction; of nobody, so that the store's own waiters are told, too."""
        channels = self._statements.channels
        self.write(sql.RING_WITHIN, {"channel": channels.wakes, "payloads": [channels.wake("", queue, count)]})

    # --- savepoints ----------------------------------------------------------------------------------------------

    def savepoint(self, name: str) -> None:
        """Set a savepoint; outside of auto-commit mode the driver begins a transaction for it."""
        self._control(composing.SQL("SAVEPOINT {}").format(composing.Identifier(name)))

    def release_savepoint(self, name: str) -> None:
        """Keep what was done since the savepoint."""
        self._check_open()
        self._control(composing.SQL("RELEASE SAVEPOINT {}").format(composing.Identifier(name)))

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since the savepoint, and drop it."""
        self._check_open()
        known = composing.Identifier(name)
        self._control(composing.SQL("ROLLBACK TO SAVEPOINT {}").format(known))
        self._control(composing.SQL("RELEASE SAVEPOINT {}").format(known))

    def _check_open(self) -> None:
        """Raise where the application has ended its transaction: the driver would begin another, only to have it fail."""
        if not self.in_transaction:
            raise TransactionError("the application's transaction has ended, by itself or by a statement")

    def _control(self, statement: composing.Composed) -> None:
        self._check()
        try:
            self._cursor.execute(statement, prepare=False)
        except psycopg.Error as exc:
            raise self._failed(exc, Sent.HARMLESS) from exc

    def _check(self) -> None:
        """Raise where the application has it in a state in which nothing should be sent."""
        _check_free(self._connection, self._pool.patience)
        _check_encoding(self._connection, TransactionError)  # as it was when it was joined

    def _failed(self, exc: psycopg.Error, sent: Sent) -> Exception:
        return translate(exc, sent, lost=is_lost(exc, self._connection))


class Doorkeeper:
    """Says which connections are to the store's own database, and remembers those that were."""

    def __init__(self, pool: Pool, statements: sql.Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._place: tuple[bytes | None, ...] | None = None
        # What a connection is to can't change as long as it lives.
        self._admitted: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()

    def admit(self, connection: object) -> psycopg.Connection[Any]:
        """Return the connection; raise ``ValidationError`` or ``TransactionError`` for one that can't be joined."""
        if not isinstance(connection, psycopg.Connection):
            raise ValidationError(
                f"connection must be a psycopg.Connection (of psycopg 3, not an asynchronous one), or SQLAlchemy's or "
                f"Django's with one, not {type(connection).__module__}.{type(connection).__qualname__}"
            )
        known = cast("psycopg.Connection[Any]", connection)
        if known.closed:
            raise ValidationError("connection must be open, and it is closed")
        if known.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            raise ValidationError("connection must not be in pipeline mode: operations need their answers at once")
        _check_encoding(known, ValidationError)
        _check_free(known, self._pool.patience)
        if known.pgconn.transaction_status == TransactionStatus.INERROR:
            raise TransactionError("the database has aborted the connection's transaction: roll it back first")
        if known not in self._admitted:
            self._check_place(known)
            self._admitted.add(known)
        return known

    def _check_place(self, connection: psycopg.Connection[Any]) -> None:
        found = self._ask(connection)
        if found != self._place:
            # The server may have been started anew since the store last looked.
            self._place = self._own_place()
            if found != self._place:
                location = self._pool.location
                raise ValidationError(f"connection must be to the store's own database, {location.where}")

    def _own_place(self) -> tuple[bytes | None, ...]:
        connection = self._pool.acquire()
        try:
            return self._ask(connection)
        finally:
            self._pool.release(connection)

    def _ask(self, connection: psycopg.Connection[Any]) -> tuple[bytes | None, ...]:
        # Beneath the driver, which would begin a transaction.
        with connection.lock:
            result = connection.pgconn.exec_(self._statements[sql.PLACE])
        if result.status != pq.ExecStatus.TUPLES_OK:
            exc = psycopg.errors.error_from_result(result)
            raise translate(exc, Sent.HARMLESS, lost=is_lost(exc, connection)) from exc
        return tuple(result.get_value(0, column) for column in range(result.nfields))


_RUNNER: Final[type[Runner]] = PostgresJoined  # it is the runner of its own executor
