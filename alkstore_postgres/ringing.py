"""Connections for what is sent beside the application's own work: wakes, and echoes (clauses Q-ENQ-4, Z-14).

A wake that waited in line behind an exhausted pool would come when it isn't needed any more; and one that took the pool's last
connection would keep the application waiting. So it takes a connection of the pool where that has another one to give, and
else one of its own. That is kept for as long as it is needed time and again: a connection for each wake would cost the
server more than the wake.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import psycopg
from psycopg.pq import TransactionStatus

from alkstore.errors import StoreClosedError
from alkstore_postgres import fork
from alkstore_postgres.pool import Connection, Pool, PoolBusyError, cut, has_ended

_KEPT_FOR: Final = 10.0
"""Seconds that its own connection is kept while the pool has one to spare."""


class Ringer:
    """Lends connections to a runner, as the pool does. Nothing is locked: what is shared is changed in single steps."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._inherited: list[Connection] = []
        self._closed = False
        self._begin()
        fork.survive(self)

    def _begin(self) -> None:
        self._own: dict[Connection, None] = {}
        self._idle: deque[Connection] = deque()

    @property
    def closed(self) -> bool:
        """Whether it lends none any more."""
        return self._closed or self._pool.closed

    def acquire(self, *, fresh: bool = False, wait: bool = True) -> Connection:  # noqa: ARG002 - it never waits
        """Return a connection without waiting for anybody who has one.

        Raises ``EngineUnavailableError`` where none can be made, and ``StoreClosedError``.
        """
        try:
            connection = self._pool.acquire(fresh=fresh, wait=False, spare=True)
        except PoolBusyError:
            return self._take_own(fresh=fresh)
        if self._idle and self._idle[0].idle_since < time.monotonic() - _KEPT_FOR:
            self._end_idle()
        return connection

    def release(self, connection: Connection) -> None:
        """Give it back."""
        if connection not in self._own:
            self._pool.release(connection)
            return
        if self.closed or self._idle or connection.status is not TransactionStatus.IDLE:
            self.discard(connection)
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._closed:  # since it was asked
            self._end_idle()

    def discard(self, connection: Connection) -> None:
        """Close it."""
        if connection not in self._own:
            self._pool.discard(connection)
            return
        self._own.pop(connection, None)
        connection.close()

    def _take_own(self, *, fresh: bool) -> Connection:
        while not fresh:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() < connection.expires and not has_ended(connection):
                return connection
            self.discard(connection)
        with fork.connecting():
            connection = self._pool.make_beside()
            self._own[connection] = None
        if self.closed:
            self.discard(connection)
            raise StoreClosedError("the store is closed")
        return connection

    def _end_idle(self) -> None:
        while True:
            try:
                self.discard(self._idle.pop())
            except IndexError:
                return

    def close(self) -> None:
        """Close what is idle, and cut off what isn't."""
        self._closed = True
        self._end_idle()
        for connection in list(self._own):
            cut(connection)

    def descriptors(self) -> list[int]:
        """Return the descriptors of its own connections, for a fork's child."""
        found: list[int] = []
        for connection in list(self._own):
            try:
                found.append(connection.pgconn.socket)
            except psycopg.Error:
                continue  # libpq has closed it
        return found

    def begin_anew(self) -> None:
        """In a fork's child: its connections are the parent's."""
        self._inherited += self._own
        self._begin()
