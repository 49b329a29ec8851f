"""One session that listens: its statements, with a bounded time for each answer, and what arrives between them (W-1, W-3)."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import pq

from alkstore.errors import EngineUnavailableError
from alkstore_postgres.pool import Connection, cut, readable
from alkstore_postgres.proving import Proof

_ANSWERED_WITHIN: Final = 5.0
"""Seconds that the server has for an answer."""


class HearingSession:
    """A connection that only one thread uses; ``cut`` and ``knock`` are for any."""

    def __init__(self, connection: Connection, where: str, take: Callable[[HearingSession, str, str], None]) -> None:
        """``take`` is given each notification's channel and payload."""
        self.connection: Final = connection
        self._where = where
        self._take = take
        self._knocks, self._knock = socket.socketpair()
        self._knocks.setblocking(False)
        self._knock.setblocking(False)
        self.listened: Final[set[str]] = set()
        """The server's channels that certainly are listened to. Guarded by the lock of the ``Ear``."""
        self.proof: Final = Proof()
        """Whether anything arrives."""
        self.proved = False
        """The echo is listened to no more."""
        self.serves = False
        """It listened to all that was wanted."""

    def ask(self, statement: str) -> None:
        """Run a statement, whose answer has a bounded time: a session that went away without a word gives none."""
        pgconn = self.connection.pgconn
        pgconn.send_query(statement.encode())
        until = time.monotonic() + _ANSWERED_WITHIN
        while pgconn.flush():
            if not is_writable(pgconn.socket, until - time.monotonic()):
                raise EngineUnavailableError(f"{self._where}: the session that listens takes nothing any more")
        while True:
            while pgconn.is_busy():
                if not self.has_news(until - time.monotonic()):
                    raise EngineUnavailableError(f"{self._where} doesn't answer the session that listens")
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
                raise psycopg.errors.error_from_result(result)
        found = self._arrived()
        if found and not self.proof.heard:
            self.proof.spoiled()
        self._give(found)

    def has_news(self, seconds: float) -> bool:
        """Wait until something has arrived."""
        descriptor = self.connection.pgconn.socket
        return descriptor in readable([descriptor], seconds)

    def has_news_or_knocks(self, seconds: float) -> bool:
        """Wait for something to receive or a knock, and say whether there is something to receive."""
        descriptor, knocks = self.connection.pgconn.socket, self._knocks.fileno()
        found = readable([descriptor, knocks], seconds)
        if knocks in found:
            self._knocks.recv(4096)
        return descriptor in found

    def knock(self) -> None:
        """Have its thread look what is wanted; from any, with the lock of the ``Ear``."""
        with suppress(OSError):  # it has knocks enough
            self._knock.send(b"!")

    def receive(self, proved: Callable[[HearingSession], None]) -> bool:
        """Take what has arrived, and say whether that was a notification; ``proved`` is called before the first."""
        pgconn = self.connection.pgconn
        pgconn.consume_input()
        if pgconn.status != pq.ConnStatus.OK:
            raise EngineUnavailableError(f"{self._where} ended the session that listens")
        found = self._arrived()
        if found and not self.proof.heard:
            proved(self)
        self._give(found)
        return bool(found)

    def _arrived(self) -> list[pq.PGnotify]:
        pgconn = self.connection.pgconn
        found: list[pq.PGnotify] = []
        while (notify := pgconn.notifies()) is not None:
            found.append(notify)
        return found

    def _give(self, found: list[pq.PGnotify]) -> None:
        for notify in found:
            # A server whose encoding isn't UTF-8 may send any bytes, and anybody may have sent them there.
            self._take(self, notify.relname.decode(errors="replace"), notify.extra.decode(errors="replace"))

    def cut(self) -> None:
        """End it from outside its thread."""
        cut(self.connection)

    def close(self) -> None:
        """Close it, by its own thread."""
        self.connection.close()
        self.forget()

    def forget(self) -> None:
        """In a fork's child, let go of what isn't the connection: nobody knocks there."""
        self._knocks.close()
        self._knock.close()


def is_writable(descriptor: int, seconds: float) -> bool:
    """Wait until it can be written to."""
    seconds = max(0.0, seconds)
    if hasattr(select, "poll"):
        look = select.poll()
        look.register(descriptor, select.POLLOUT)
        return bool(look.poll(seconds * 1_000))
    return bool(select.select([], [descriptor], [], seconds)[1])
