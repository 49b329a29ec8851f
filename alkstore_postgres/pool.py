"""Connections: how they are made, set up, shared by threads, and found dead (clauses S-3, S-4, S-5, Z-12).

**Why not psycopg_pool**, which is well kept and was tried first (3.3.3, against PostgreSQL 15 and 18). It makes its
connections in threads of its own and backs off there, so that whoever waits isn't told why nothing comes. With a
recording ``connection_class`` and ``getconn`` in slices of 50 ms an outage could be told from a full pool; but each slice
joins the end of the line again (8 threads on one connection: worst wait 0.80 s, against 0.18 s). After a restart
with ten idle connections the ``check`` hook, which sleeps between checks, doubling from a second, ended in ``PoolTimeout``
after 30 s; without it the nine dead ones are handed out one by one. ``close()`` took 5 s where a worker was connecting to
a server that didn't answer. Every lost connection and every attempt is a line in its log. And the descriptors that a forked
child must let go of are in its private state. Here the thread that needs a connection makes it, and so has the driver's
own error at once; there are no threads, and nothing backs off: the first call after an outage works.

**The end seen before sending.** A pooled connection isn't asked whether it is alive, which would cost a round trip per
use. But an end that has already arrived (``idle_session_timeout``, a shutdown, a restart) makes its socket readable, and
an idle session's socket is readable for hardly any other reason. So a look at the socket, which costs microseconds, is
enough to drop it and take another, with nothing sent and so nothing in doubt.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Final, LiteralString

import psycopg
from psycopg import sql as composing
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from alkstore.clock import Micros
from alkstore.engine import Durability
from alkstore.errors import EngineBusyError, EngineUnavailableError, StoreClosedError
from alkstore.helper import Flag, Register
from alkstore.monitor import Monitor
from alkstore_postgres import fork, sql
from alkstore_postgres.location import Location

_LOG: Final = logging.getLogger("alkstore")

_GRACE: Final = 0.25
"""Seconds that ``close`` gives to calls that are under way."""

_LAST: Final = (-1,)

_LOOK_AROUND: Final = 1.0
"""Seconds after which whoever waits for a connection looks whether one was lost without being given back."""

_MAX_IDLE: Final = 600.0
"""Seconds after which a connection that nobody needed is closed."""

# What the engine counts on, whatever role, database or URL say. READ COMMITTED: a statement sees what was committed
# before it, and waits for others instead of failing for them. No time limits but its own: a statement of the library is
# short, and one that is cut off is reported as an error that nobody could explain.
_ALWAYS: Final = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "array_nulls": "on",
}

# How the library's own statements are planned. A queue is empty most of the time, and a plan made then would be a
# sequential scan, kept until a million jobs lie there; and statistics are always of yesterday. Each statement has an
# index for each of its scans, so that the other ways are ruled out, and with them every guess about how many rows there
# are; then one plan fits all and need not be made anew each time, which would cost as much as the statement itself. jit
# starts where a plan looks expensive, as one does that must sort or scan after all.
PLANNING: Final[dict[LiteralString, str]] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}

# For the application's own statements in a transaction of the store: as if the library had set nothing.
UNPLANNED: Final[LiteralString] = "; ".join(f"SET LOCAL {name} TO DEFAULT" for name in PLANNING)

# Only what differs is set: one round trip for both. A stronger synchronous_commit than asked for is left as it is.
_SET_UP: Final[LiteralString] = """
SELECT pg_catalog.set_config(s.name, w.wanted, false)
FROM ROWS FROM (
    pg_catalog.unnest(%(names)s::pg_catalog.text[]), pg_catalog.unnest(%(values)s::pg_catalog.text[])
) AS w(name, wanted)
JOIN pg_catalog.pg_settings AS s ON s.name = w.name
WHERE s.setting <> w.wanted AND NOT (w.wanted = 'on'::pg_catalog.text AND s.setting = 'remote_apply'::pg_catalog.text)
"""


# Of those that this server knows: a name that it doesn't would be an error.
_KNOWN: Final[LiteralString] = (
    "SELECT s.name FROM pg_catalog.pg_settings AS s WHERE s.name = ANY (%(names)s::pg_catalog.text[])"
)


class _Slot:
    """One of the connections that a pool may have, or the right to make it.

    The pool refers to it weakly. A signal's handler may raise anywhere, also where a connection was taken out and isn't in
    anybody's hands yet; then nobody gives it back, but it is nobody's any more, and so there is room for another.
    """

    __slots__ = ("__weakref__", "connection")

    def __init__(self) -> None:
        self.connection: weakref.ref[Connection] | None = None
        """The connection, where one is open; weakly, as it refers to its slot."""


class Connection(psycopg.Connection[TupleRow]):
    """A connection of the pool. It is in auto-commit mode: transactions begin with a BEGIN of the engine's own."""

    opening: bytes | None = None
    """What begins a transaction and sets it up, where sessions are lent by the transaction; else the session is, once."""

    slot: _Slot | None = None
    """Its place among those of the pool; ``None`` where it has none, any more."""
    expires: float = 0.0
    """When it is to be replaced, and since when it has been idle: monotonic seconds."""
    idle_since: float = 0.0
    process: int = 0

    def __del__(self, *_: object) -> None:
        """Say nothing: a program may end, and a forked child does, with connections in the pool; libpq ends them."""

    @property
    def status(self) -> TransactionStatus:
        """What the session is in the middle of, as far as is known here."""
        return TransactionStatus(self.pgconn.transaction_status)


class PoolBusyError(EngineBusyError):
    """All of the pool's connections are in use, and the caller doesn't want to wait; it never reaches a user."""


class _Place:
    """A thread's place in the line, and what it is handed."""

    __slots__ = ("given", "served")

    def __init__(self) -> None:
        self.served = Flag()
        self.given: Connection | _Slot | None = None


class Pool:
    """At most ``location.pool_size`` connections, handed out one to a thread, first come, first served."""

    def __init__(self, location: Location, durability: Durability, lock_timeout: Micros) -> None:
        self._location = location
        self._patience = lock_timeout / 1_000_000
        self._settings = {
            **_ALWAYS,
            "synchronous_commit": "on" if durability == "full" else "off",
            # In milliseconds, of which 0 is for ever: the least that isn't is 1.
            "lock_timeout": str(max(1, min(lock_timeout // 1_000, 2**31 - 1))),
            **PLANNING,
        }
        self._closed = False
        self._said_lent = False
        self._inherited: list[Connection] = []
        self._begin()
        fork.survive(self)

    def _begin(self) -> None:
        # One lock for all of it, held for microseconds: whoever waits for a connection waits at a place of its own. It
        # may be entered again: a transaction that the garbage collector finds in the middle of it gives its connection back.
        self._lock = Monitor()
        self._slots: Register[_Slot] = Register()
        self._idle: deque[Connection] = deque()  # the latest used at the right
        self._line: deque[_Place] = deque()
        self.process = os.getpid()

    def __repr__(self) -> str:
        return f"<Pool to {self._location.where}, {len(self._slots)} of {self._location.pool_size}>"

    @property
    def location(self) -> Location:
        """Where its connections go."""
        return self._location

    @property
    def patience(self) -> float:
        """Seconds that whoever waits for something waits at most."""
        return self._patience

    @property
    def closed(self) -> bool:
        """Whether it hands out no connection any more."""
        return self._closed

    # --- taking and giving back ----------------------------------------------------------------------------------

    def acquire(self, *, fresh: bool = False, wait: bool = True, spare: bool = False) -> Connection:
        """Return a connection that is idle as far as can be seen without asking; ``fresh``: one just made.

        ``spare``: only where there is, or may be, another one after that; for who doesn't wait. Raises
        ``EngineUnavailableError`` where none can be made, ``EngineBusyError`` where none is given back within ``lock_timeout``
        (without ``wait``: ``PoolBusyError``, at once), and ``StoreClosedError``.
        """
        while True:
            taken = self._take(wait, spare)
            if isinstance(taken, _Slot):
                return self._connect(taken)
            if not fresh and time.monotonic() < taken.expires and not has_ended(taken):
                return taken
            slot = self._close(taken)
            if slot is not None:  # else it was given up in the middle of being given back
                return self._connect(slot)

    def release(self, connection: Connection) -> None:
        """Give a connection back, whatever state it is in; raises nothing of its own."""
        self.release_from([connection])

    def release_from(self, held: list[Connection]) -> None:
        """Give back the one connection in the list, if any: it is there or in the pool, whatever a handler raises."""
        if not held:
            return
        connection = held[0]
        if connection.process != os.getpid() or connection.slot is None:
            held.clear()  # the parent's, or discarded
            return
        try:
            self._release(connection, held)
        except BaseException:  # a signal handler's: the connection may be in the middle of something
            if held:
                self.discard(connection)
            raise

    def _release(self, connection: Connection, held: list[Connection]) -> None:
        if connection.status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                connection.close()
        if connection.status is not TransactionStatus.IDLE or not connection.autocommit:
            self.discard(connection)
            held.clear()
            return
        now = connection.idle_since = time.monotonic()
        surplus: Connection | None = None
        with self._lock:
            keep = not self._closed
            if keep and self._line:
                self._serve(held)
            elif keep:
                self._idle.extend(map(held.pop, _LAST))  # in one call of the interpreter's own
                if self._idle[0].idle_since < now - _MAX_IDLE:
                    surplus = self._idle.popleft()
        if not keep:
            surplus = connection
            held.clear()
        if surplus is not None:
            self.discard(surplus)

    def discard(self, connection: Connection) -> None:
        """Close a connection that can't be used any more; never raises."""
        if connection.process == os.getpid() and (slot := self._close(connection)) is not None:
            self._free(slot)

    def _take(self, wait: bool, spare: bool) -> Connection | _Slot:
        """Return an idle connection, or the right to make one."""
        with self._lock:
            self._check_open()
            if spare and len(self._idle) + self._location.pool_size - len(self._slots) < 2:
                raise PoolBusyError("there is no connection to spare")
            if self._idle and not self._line:
                return self._idle.pop()
            if not self._line and (slot := self._new_slot()) is not None:
                return slot
            if not wait:
                raise PoolBusyError(f"all {self._location.pool_size} connections are in use (the option is pool_size)")
            place = _Place()
            self._line.append(place)
        try:
            self._wait(place)
        except BaseException:  # Ctrl-C: leave the line, or give back what has just come
            if not self._leave(place):
                self._give_up(place)
            raise
        if place.given is None and self._leave(place):
            raise EngineBusyError(
                f"all {self._location.pool_size} connections were in use for {self._patience:g} s "
                f"(the options are pool_size and lock_timeout)"
            )
        if self._closed or place.given is None:
            self._give_up(place)
            raise StoreClosedError("the store is closed")
        return place.given

    def _wait(self, place: _Place) -> None:
        """Wait to be served; now and then look whether a connection was lost that nobody gave back."""
        until = time.monotonic() + self._patience
        while not place.served.wait(min(_LOOK_AROUND, until - time.monotonic())) and time.monotonic() < until:
            with self._lock:
                if place not in self._line:
                    return  # whoever served him was cut short before he told him
                if self._line[0] is place and (slot := self._new_slot()) is not None:
                    self._serve([slot])

    def _leave(self, place: _Place) -> bool:
        """Leave the line; ``False`` where something has been handed out already, or the line was sent away."""
        with self._lock:
            if place in self._line:
                self._line.remove(place)
                return True
        return False

    def _give_up(self, place: _Place) -> None:
        """Give back what was handed out."""
        given = place.given
        if isinstance(given, Connection):
            self.release(given)
        elif given is not None:
            self._free(given)

    def _serve(self, held: list[Connection] | list[_Slot]) -> None:
        place = self._line[0]
        place.given = held.pop()  # before he leaves the line: see ``_wait``
        self._line.popleft()
        place.served.set()

    def _new_slot(self) -> _Slot | None:
        """With the lock held: return a new right to make a connection, where there is room."""
        if len(self._slots) >= self._location.pool_size:
            return None
        slot = _Slot()
        self._slots.add(slot)
        return slot

    def _free(self, slot: _Slot) -> None:
        """Pass on the right to make a connection."""
        with self._lock:
            if self._line and not self._closed:
                self._serve([slot])
            else:
                self._slots.discard(slot)

    def _close(self, connection: Connection) -> _Slot | None:
        """Close a connection, and return its slot, if it had one yet."""
        with self._lock:
            slot, connection.slot = connection.slot, None
            if slot is not None:
                slot.connection = None
            self._lock.notify_all()
        connection.close()
        return slot

    def _connections(self) -> list[Connection]:
        """Return all that are open."""
        filled = [slot.connection for slot in self._slots.living()]
        return [connection for each in filled if each is not None and (connection := each()) is not None]

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")

    # --- making --------------------------------------------------------------------------------------------------

    def _connect(self, slot: _Slot) -> Connection:
        """Make a connection, by a right to; the right is given back where that fails."""
        try:
            with fork.connecting():
                connection = self._make(self._location.conninfo, self._settings, lent=self._location.lent)
                connection.slot = slot
                slot.connection = weakref.ref(connection)  # where a fork's child finds it
        except BaseException:
            slot.connection = None
            self._free(slot)
            raise
        if self._closed:
            self.discard(connection)
            self._check_open()
        return connection

    def make_beside(self) -> Connection:
        """Return a connection like those of the pool that isn't the pool's."""
        return self._make(self._location.conninfo, self._settings, lent=self._location.lent)

    def make_listener(self) -> Connection:
        """Return a connection that isn't the pool's, for a session that listens, and may be idle for long."""
        return self._make(self._location.listen_conninfo, {**_ALWAYS, "idle_session_timeout": "0"}, lent=False)

    def _make(self, conninfo: str, settings: Mapping[str, str], *, lent: bool | None) -> Connection:
        location = self._location
        try:
            connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=location.prepare_threshold)
        except psycopg.Error as exc:
            failure = exc
        else:
            try:
                self._set_up(connection, settings, lent=lent)
            except psycopg.Error as exc:
                connection.close()
                failure = exc
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        # Raised out here: where the driver's own words hold the password, not even a suppressed context may keep them.
        said = location.safe(str(failure).strip())
        if said is None:
            raise EngineUnavailableError(f"{location.where} could not be reached, or refused the connection")
        raise EngineUnavailableError(f"{location.where} could not be reached: {said}") from failure

    def _set_up(self, connection: Connection, wanted: Mapping[str, str], *, lent: bool | None) -> None:
        connection.process = os.getpid()
        connection.expires = time.monotonic() + self._location.max_lifetime
        settings = {"names": list(wanted), "values": list(wanted.values())}
        if lent or (lent is None and _seems_lent(connection)):
            if not lent:
                self._say_lent(connection)
            known = {name for (name,) in connection.execute(_KNOWN, {"names": list(wanted)}, prepare=False)}
            each = [
                composing.SQL("pg_catalog.set_config({}, {}, true)").format(name, value)
                for name, value in wanted.items()
                if name in known and not name.startswith("default_")  # what is named in BEGIN
            ]
            opening = composing.SQL("{}; SELECT {}").format(composing.SQL(sql.BEGIN), composing.SQL(", ").join(each))
            connection.opening = opening.as_bytes(connection)
        else:
            connection.execute(_SET_UP, settings, prepare=False).fetchall()

    def _say_lent(self, connection: Connection) -> None:
        connection.prepare_threshold = None  # another client's session may know other statements by those names
        _LOG.log(
            logging.DEBUG if self._said_lent else logging.WARNING,
            "%s is reached through a pooler that seems to lend sessions by the transaction, and is used as if: the option "
            "pooler says which it is, 'transaction' or 'session'",
            self._location.where,
        )
        self._said_lent = True

    # --- closing, forking ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what is idle, send everybody in line away, and cut off what is still in use after a moment (S-3)."""
        with self._lock:
            self._closed = True
            idle, line = list(self._idle), list(self._line)
            self._idle.clear()
            self._line.clear()
            for place in line:
                place.served.set()
        for connection in idle:
            self.discard(connection)
        with self._lock:
            # Calls that are nearly done are let through; those that wait, for a lock perhaps, are cut off (S-3).
            self._lock.wait_for(lambda: not self._connections(), _GRACE)
            left = self._connections()
        for connection in left:
            cut(connection)

    def descriptors(self) -> list[int]:
        """Return the descriptors of all open connections, for a fork's child."""
        found: list[int] = []
        for connection in self._connections():
            try:
                found.append(connection.pgconn.socket)
            except psycopg.Error:
                continue  # libpq has closed it
        return found

    def begin_anew(self) -> None:
        """In a fork's child: keep what was inherited from the garbage collector, and start with nothing."""
        self._inherited += self._connections()
        self._begin()


def cut(connection: Connection) -> None:
    """End a session from outside the thread that uses it: its next read there finds the end, and the server too.

    Closing would free what that thread is using.
    """
    try:
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    except (psycopg.Error, OSError):
        return  # it has ended by itself


def _seems_lent(connection: Connection) -> bool:
    """Say whether statements run in another session than the one that the client was told of when it connected."""
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid


def has_ended(connection: Connection) -> bool:
    """Say whether anything has arrived on an idle connection: the end, or at best news for a session of its own."""
    return connection.closed or bool(readable([connection.pgconn.socket], 0))


def readable(descriptors: list[int], seconds: float) -> set[int]:
    """Wait until some can be read, and return them. ``select`` would not do: it takes no descriptor past 1,023."""
    seconds = max(0.0, seconds)
    if hasattr(select, "poll"):
        look = select.poll()
        for each in descriptors:
            look.register(each, select.POLLIN)
        return {number for number, _ in look.poll(seconds * 1_000)}
    return set(select.select(descriptors, [], [], seconds)[0])
