"""How statements run: each in a transaction of its own, or within one that is open (Z-12).

``AutoRunner`` takes any connection of the pool, and runs again where nothing has happened and another run is worth it.
``WithinRunner`` runs on the connection that has the transaction, and does none of that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, LiteralString, Protocol, TypeAlias, TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus

from alkstore.errors import EngineUnavailableError, OutcomeUnknownError, StoreClosedError, TransactionError
from alkstore_postgres import sql
from alkstore_postgres.errors import Sent, asks_again, is_lost, translate
from alkstore_postgres.pool import Connection, Pool, PoolBusyError, has_ended

T = TypeVar("T")

Parameters: TypeAlias = Mapping[str, object]
Rows: TypeAlias = list[tuple[Any, ...]]

_ATTEMPTS: Final = 10
"""How often an auto-commit statement is run where the database asks for that."""

_PAUSE: Final = 0.005
"""Longest pause before the second run, in seconds; doubled from run to run."""


class Runner(Protocol):
    """How statements run."""

    def read(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement that changes nothing, and return its rows."""
        ...

    def write(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement that changes something, and return its rows."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether the transaction of a unit ends with it, and its locks with that."""
        ...

    def unit(self, work: Callable[[Runner], T]) -> T:
        """Run several statements in one transaction; ``work`` may be called again, with everything undone."""
        ...

    def aside(self, work: Callable[[Runner], bool]) -> bool:
        """Run in a transaction of its own beside the one that is open, committed at once, and return what it does.

        ``False`` where none is open, where that would have to wait for a connection, or where none can be had.
        """
        ...


class AutoRunner:
    """Each statement, or unit of several, is a transaction of its own."""

    def __init__(self, pool: Pool, statements: sql.Statements, *, wait: bool = True) -> None:
        """Without ``wait``, a pool that has no connection free is a ``PoolBusyError`` at once."""
        self._pool = pool
        self._statements = statements
        self._wait = wait

    def read(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run it; once more, on a new connection, where the connection is cut."""
        text = self._statements[statement]
        return self._run(lambda connection: rows(connection, text, parameters), Sent.HARMLESS)

    def write(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run it; a connection cut after it was sent is an ``OutcomeUnknownError``."""
        text = self._statements[statement]
        return self._run(lambda connection: rows(connection, text, parameters), Sent.DECISIVE)

    def unit(self, work: Callable[[Runner], T]) -> T:
        """Run it; once more, on a new connection, where the connection is cut before the COMMIT was sent."""
        return self._run(lambda connection: self._transaction(connection, work), Sent.HARMLESS)

    @property
    def bounded(self) -> bool:
        """Its transactions are its own."""
        return True

    def aside(self, work: Callable[[Runner], bool]) -> bool:  # noqa: ARG002 - see ``Runner``
        """There is none to be beside."""
        return False

    def _transaction(self, connection: Connection, work: Callable[[Runner], T]) -> T:
        begin(connection)
        result = work(WithinRunner(connection, self._statements))
        commit(connection)
        return result

    def _run(self, work: Callable[[Connection], T], sent: Sent) -> T:
        """Run on a connection of the pool, and again where nothing has happened and another run is worth it."""
        runs, cuts = 0, 0
        while True:
            connection = self._pool.acquire(fresh=cuts > 0, wait=self._wait)
            try:
                return work(connection)
            except psycopg.Error as exc:
                lost = is_lost(exc, connection)
                if lost:
                    self._pool.discard(connection)
                    if self._pool.closed:
                        raise StoreClosedError("the store was closed before the database had answered") from exc
                    cuts += 1
                    again = sent is Sent.HARMLESS and cuts == 1
                else:
                    runs += 1
                    again = asks_again(exc) and runs < _ATTEMPTS
                if not again:
                    raise translate(exc, sent, lost=lost) from exc
            finally:
                self._pool.release(connection)
            if runs:
                # Not for a signal that could come: for the others to get out of each other's way.
                time.sleep(random.uniform(0, min(0.5, _PAUSE * 2**runs)))


class WithinRunner:
    """Statements within one transaction, on the connection that has it; the driver's errors come out bare."""

    def __init__(self, connection: Connection, statements: sql.Statements) -> None:
        self._connection = connection
        self._statements = statements

    def read(self, statement: LiteralString, parameters: Parameters) -> Rows:
        """Run a statement."""
        return rows(self._connection, self._statements[statement], parameters)

    write = read

    @property
    def bounded(self) -> bool:
        """It is within a unit."""
        return True

    def unit(self, work: Callable[[Runner], T]) -> T:
        """Run within the same transaction."""
        return work(self)

    def aside(self, work: Callable[[Runner], bool]) -> bool:  # noqa: ARG002 - see ``Runner``
        """It is a unit's, and not asked."""
        return False


def aside(pool: Pool, statements: sql.Statements, work: Callable[[Runner], bool]) -> bool:
    """Run beside a transaction that is open elsewhere, without waiting for a connection; ``False`` where it can't.

    A connection that is awaited may be in a transaction that waits for one like this. Nor must the open transaction fail
    for it: a server that is gone, or takes no more connections, will say so there if it matters.
    """
    try:
        return AutoRunner(pool, statements, wait=False).unit(work)
    except (PoolBusyError, EngineUnavailableError, OutcomeUnknownError):
        return False


def rows(connection: Connection, text: bytes, parameters: Parameters, *, prepare: bool | None = None) -> Rows:
    """Run a statement and return its rows; the driver's errors come out bare.

    Where sessions are lent by the transaction, one by itself is put into a transaction that sets up what it needs: all of
    it in one round trip.
    """
    if connection.opening is None or connection.status is not TransactionStatus.IDLE:
        cursor = connection.cursor(binary=True)
        cursor.execute(text, parameters, prepare=prepare)
        return cursor.fetchall()
    # By the simple protocol, which takes several statements at a time, the values written into them. A pipeline of the
    # driver's would do too, but what it raises where it is cut or interrupted is its own trouble in leaving (3.3.9).
    parameters = {name: _writable(value) for name, value in parameters.items()}
    lent = psycopg.ClientCursor(connection)
    lent.execute(b"; ".join((connection.opening, text, b"COMMIT")), parameters)
    return lent.set_result(-2).fetchall()


def _writable(value: object) -> object:
    """Return what can be written into a statement for it, whatever the session's settings are.

    A negative number goes as a text: written bare, its cast would come before its sign. Bytes do too: the driver escapes them
    by what the session said last of ``standard_conforming_strings``, and those in a list twice where that is off (3.3.9); a
    text with backslashes it writes as ``E''``, which says by itself how it is meant.
    """
    if isinstance(value, int) and value < 0:
        return str(value)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, list):
        elements = cast(list[object], value)
        if any(isinstance(each, bytes) for each in elements):
            literals = (f'"\\\\x{each.hex()}"' if isinstance(each, bytes) else "NULL" for each in elements)
            return f"{{{','.join(literals)}}}"
        return elements
    return value


def begin(connection: Connection) -> None:
    """Begin a transaction, its isolation named whatever the defaults are (Z-12); the driver's errors come out bare."""
    if connection.opening is None:
        connection.execute(sql.BEGIN)
    else:
        connection.execute(connection.opening, prepare=False)


def commit(connection: Connection) -> None:
    """Commit, or raise an error of alkstore's: ``OutcomeUnknownError`` where the answer was cut off."""
    if has_ended(connection):
        connection.close()
        raise EngineUnavailableError("the connection had been cut before the commit was sent: nothing was committed")
    try:
        cursor = connection.execute("COMMIT")
    except psycopg.Error as exc:
        lost = is_lost(exc, connection)
        if lost:
            connection.close()
        raise translate(exc, Sent.DECISIVE, lost=lost) from exc
    if cursor.statusmessage != "COMMIT":
        # The server's way to commit an aborted transaction is to roll it back without an error.
        raise TransactionError("the transaction had been aborted, and was rolled back at its commit")
