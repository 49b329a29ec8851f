"""Connections: borrowed for each call, shared by threads, never carried into a forked child (S-4)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

from alkstore.engine import EngineOptions
from alkstore.errors import AlkstoreError, EngineBusyError, EngineUnavailableError, StoreClosedError
from alkstore.helper import Flag
from alkstore.monitor import Monitor
from alkstore_sqlite import fork
from alkstore_sqlite.errors import is_busy, is_cut, is_lasting, translate
from alkstore_sqlite.executor import Units
from alkstore_sqlite.files import Files, identity
from alkstore_sqlite.location import Location
from alkstore_sqlite.locking import Inside, pause
from alkstore_sqlite.writers import Writers

T = TypeVar("T")

_LAST: Final = (-1,)

_LOOK_AROUND: Final = 1.0
"""Seconds after which whoever waits for a connection looks whether one was lost without being given back."""

POOL_SIZE: Final = 16
"""Most connections that a store opens by default: one writes, the others read."""

_WAL_KEPT: Final = 64 * 1024 * 1024
"""Bytes of the write-ahead log that stay on the disk once it has been worked off, after a long reader held it up."""


_CLOSE_WITHIN: Final = 1.0
"""Seconds that ``close`` waits for those who are inside SQLite, and are interrupted, to come out."""

_CLOSE_STEP: Final = 0.005
"""Seconds between two interrupts: one that comes between two statements is lost."""


class Held(Protocol):
    """What the pool needs of a transaction, which keeps its connection between calls."""

    @property
    def inside(self) -> Inside:
        """Held by whoever is inside SQLite with the transaction's connection."""
        ...

    def cut(self, deadline: float) -> None:
        """Interrupt it and roll it back, from another thread than its own; by the deadline (monotonic), or leave it."""
        ...

    def disown(self) -> None:
        """In a forked child: refuse use from now on."""
        ...

    def clear(self) -> bool:
        """In a forked child: clear the copy of the transaction's state, and say whether that was possible."""
        ...


class _Right:
    """The right to open a connection: for as long as somebody has it."""

    __slots__ = ("__weakref__",)


class _Waiter:
    """One who waits for a connection, and what he is given."""

    __slots__ = ("right", "turn", "units")

    def __init__(self) -> None:
        self.turn = Flag()
        self.units: Units | None = None
        self.right: _Right | None = None


class Pool:
    """The connections to one database: those that are lent out, ``size`` at most, and those of who keeps one for himself.

    The one given back last is taken first, so that a lone thread always has the one whose caches are warm. Those who
    find none wait in the order in which they came.
    """

    def __init__(
        self,
        location: Location,
        options: EngineOptions,
        size: int,
        admit: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        """Make the pool, which opens nothing yet.

        ``admit`` is called with the first connection before anything is changed by it, and may raise.
        """
        self.location: Final = location
        self.where: Final = location.url
        self.files: Final = Files(location.path, location.url)
        self.timeout: Final = options.lock_timeout / 1_000_000
        self._full: Final = options.durability == "full"
        self._size: Final = size
        self._admit = admit
        self.heirs: list[Callable[[], None]] = []
        """Called in a forked child, before anything else there."""
        self._closed = False
        self._orphaned = location.path is not None and not fork.is_usable(location.path)
        self._memory: sqlite3.Connection | None = None
        self._renew()
        fork.register(self)

    def _renew(self) -> None:
        """Make whatever threads share: when the pool is made, and anew in a forked child."""
        self.writers = Writers(self)
        self._guard = Monitor()
        self._idle: list[Units] = []
        # Weakly: a signal's handler may raise where a connection, or the right to open one, was taken and is in nobody's hands
        # yet. Nobody gives it back then, and there is room for another.
        self._open: weakref.WeakSet[Units] = weakref.WeakSet()
        self._opening: weakref.WeakSet[_Right] = weakref.WeakSet()
        self._apart = 0
        """How many there are beside those that are lent out."""
        self._waiting: deque[_Waiter] = deque()
        self._held: weakref.WeakSet[Held] = weakref.WeakSet()
        self._frozen = False
        self._out: list[Units] = []
        self._stopped: list[Held] = []

    # --- borrowing -----------------------------------------------------------------------------------------------

    def take(self) -> Units:
        """Borrow a connection; raise ``EngineBusyError`` where none comes free in time."""
        try:
            return self._idle.pop()  # atomic, and all that a call without contention does
        except IndexError:
            return self._take_or_open()

    def give(self, units: Units) -> None:
        """Give a borrowed connection back."""
        if self._waiting or self._frozen or self._closed:
            with self._guard:
                self._place(units)
            return
        self._idle.append(units)
        # Whoever announced himself before the line above was seen to do so here, or saw the connection there.
        if self._waiting or self._frozen or self._closed:
            with self._guard:
                self._place_idle()

    def give_from(self, lent: list[Units]) -> None:
        """Give back the one borrowed connection in the list, which is in the list or in the pool, whatever a handler raises."""
        if not (self._waiting or self._frozen or self._closed):
            self._idle.extend(map(lent.pop, _LAST))  # in one call of the interpreter's own
            if not (self._waiting or self._frozen or self._closed):
                return
            with self._guard:
                self._place_idle()
            return
        with self._guard:
            self._place(lent.pop())

    def discard(self, units: Units) -> None:
        """Give up a borrowed connection that had better not be used again."""
        with self._guard:
            self._open.discard(units)
            self._offer_place()
        _close(units)

    def _take_or_open(self) -> Units:
        with self._guard:
            self.check_open()
            if self._idle and not self._frozen:
                return self._idle.pop()
            if not self._frozen and not self._waiting and self._has_room():
                taken = self._new_right()
            else:
                taken = _Waiter()
                self._waiting.append(taken)
        if isinstance(taken, _Waiter):
            taken = self._wait(taken)
        return taken if isinstance(taken, Units) else self._open_one(taken)

    def _new_right(self) -> _Right:
        """With the guard held: reserve room for one more connection."""
        right = _Right()
        self._opening.add(right)
        return right

    def _open_one(self, right: _Right) -> Units:
        try:
            units = Units(self.connect())
        except BaseException:
            with self._guard:
                self._opening.discard(right)
                self._offer_place()
            raise
        with self._guard:
            self._opening.discard(right)
            if self._closed:  # meanwhile
                _close(units)
            self.check_open()
            self._open.add(units)
        return units

    def _wait(self, waiter: _Waiter) -> Units | _Right:
        """Wait for a connection, or for the right to open one."""
        until = time.monotonic() + self.timeout
        try:
            # Now and then he looks whether one was lost that nobody gave back.
            while not waiter.turn.wait(min(_LOOK_AROUND, until - time.monotonic())):
                with self._guard:
                    if waiter not in self._waiting:
                        break  # whoever served him was cut short before he told him
                    if time.monotonic() >= until:
                        raise EngineBusyError(
                            f"{self.where}: no connection came free within {self.timeout:g} s; {self._size} are in use"
                        )
                    self._place_idle()
                    self._offer_place()
        except BaseException:
            self._leave(waiter)
            raise
        given = waiter.units or waiter.right
        if given is None:
            raise self.closed_error()
        return given

    def _leave(self, waiter: _Waiter) -> None:
        """Stand in the line no more, and leave to others what was given meanwhile."""
        with self._guard:
            with contextlib.suppress(ValueError):  # he doesn't stand there any more
                self._waiting.remove(waiter)
            if waiter.units is not None:
                self._place(waiter.units)
            elif waiter.right is not None:
                self._opening.discard(waiter.right)
                self._offer_place()

    # The following are called with the guard held.

    def _place(self, units: Units) -> None:
        """Put a connection that was given back where it belongs now."""
        if self._closed:
            self._open.discard(units)
            _close(units)
        elif self._frozen:
            self._out.append(units)
        elif self._waiting:
            waiter = self._waiting[0]
            waiter.units = units  # before he leaves the line: see ``_wait``
            self._waiting.popleft()
            waiter.turn.set()
        else:
            self._idle.append(units)
        self._guard.notify_all()

    def _place_idle(self) -> None:
        for _ in range(len(self._idle)):
            with contextlib.suppress(IndexError):  # somebody took it just now
                self._place(self._idle.pop(0))

    def _offer_place(self) -> None:
        """Let the first who waits open a connection, where there may be one more."""
        if self._waiting and not self._frozen and self._has_room():
            waiter = self._waiting[0]
            waiter.right = self._new_right()
            self._waiting.popleft()
            waiter.turn.set()
        self._guard.notify_all()

    def _has_room(self) -> bool:
        return len(self._open) + len(self._opening) < self._size + self._apart

    # --- connections apart ---------------------------------------------------------------------------------------

    def open_apart(self, held: Held) -> Units:
        """Open a connection for one who keeps it, beside those that are lent out; he is inside it meanwhile.

        So he takes none from those who wait for one, however few they may be.
        """
        with self._guard:
            if not self._guard.wait_for(lambda: not self._frozen or self._closed, self.timeout):
                raise EngineBusyError(f"{self.where}: a fork took longer than {self.timeout:g} s")
            self.check_open()
            self._apart += 1
            right = self._new_right()
        try:
            units = Units(self.connect())
        except BaseException:
            with self._guard:
                self._opening.discard(right)
                self._apart -= 1
                self._guard.notify_all()
            raise
        with self._guard:
            self._opening.discard(right)
            self._open.add(units)
            self._held.add(held)
            self._guard.notify_all()
            closed = self._closed  # meanwhile
        if closed:
            self.close_apart(held, units)
            raise self.closed_error()
        return units

    def close_apart(self, held: Held, units: Units) -> None:
        """Close what ``open_apart`` opened."""
        with self._guard:
            self._held.discard(held)
            self._open.discard(units)
            self._apart -= 1
            self._guard.notify_all()
        _close(units)

    # --- opening -------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` once the pool is closed, and refuse what a fork left behind."""
        if self._closed:
            raise self.closed_error()
        if self._orphaned:
            self.files.check()
            error = EngineUnavailableError(
                f"{self.where}: this process was forked from one that had the database open, while a thread of it was inside "
                f"SQLite and couldn't be waited for, or it has closed it before the store was opened here: the database can't "
                f"be used safely in this process"
            )
            error.lasting = True
            raise error

    def failure(self, exc: Exception, *, at_commit: bool = False) -> AlkstoreError:
        """Return alkstore's error for the driver's: that the store was closed, where it was cut short for that (S-3).

        Or that the file is another by now, where that may be why.
        """
        if self.was_cut(exc):
            return self.closed_error()
        if not at_commit and is_lasting(exc) and not self.files.are_there():
            return self.files.lost()
        return translate(exc, self.where, at_commit=at_commit)

    def was_cut(self, exc: Exception) -> bool:
        """Say whether the driver's error comes of ``close``."""
        return self._closed and is_cut(exc)

    def closed_error(self) -> StoreClosedError:
        """Return the error for a store that is closed."""
        return StoreClosedError(f"the store {self.where} is closed")

    def connect(self) -> sqlite3.Connection:
        """Open a connection and set it up; the errors are alkstore's.

        A database in memory lives as long as its one connection, which is given again to whoever comes after one who lost it.
        """
        path = self.location.path
        if self._memory is not None:
            self._memory.rollback()
            return self._memory
        before, first = None if path is None else identity(path), not len(self._open)
        # Else SQLite would make another log beside the one that the other connections have open.
        (self.files.check if first else self.files.check_whole)()
        try:
            connection = sqlite3.connect(
                ":memory:" if path is None else self._uri(path),
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                uri=path is not None,
                factory=_Connection,
            )
            try:
                if self._admit is not None:
                    self._admit(connection)
                    self._admit = None
                if path is not None:
                    self.patiently(lambda: self._use_wal(connection))
                self._set_up(connection)
                self.files.note(before, first=first)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as exc:
            raise self.failure(exc) from exc
        if path is None:
            self._memory = connection
        return connection

    def _uri(self, path: str) -> str:
        """Return the file's URI for SQLite; once the schema is there, one that never makes a file anew."""
        slashes = path.replace(os.sep, "/")
        root = "" if slashes.startswith("/") else "/"
        return f"file:{root}{quote(os.fsencode(slashes))}?mode={'rw' if self._admit is None else 'rwc'}"

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != "wal":
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise EngineUnavailableError(
                f"{self.where}: SQLite can't use its write-ahead log here (it stays with journal mode {mode!r}): the "
                f"file system must have locks and shared memory, as local ones do"
            )

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if self._full:
            connection.execute("PRAGMA synchronous = FULL")
            # Where fsync() only reaches the drive's own cache (macOS), ask for more; elsewhere this does nothing.
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
        else:
            connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")
        # An open transaction must not write to the log before its commit: see fork.py.
        connection.execute("PRAGMA cache_spill = OFF")
        connection.execute("PRAGMA schema_version").fetchone()  # reads, and so has the log made, where it isn't yet

    def patiently(self, action: Callable[[], T]) -> T:
        """Run a short action again while it is refused for a lock, within the lock timeout; the driver's errors bare.

        For what waits seldom and briefly: another process switching to WAL, recovering, or closing the database.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return action()
            except sqlite3.OperationalError as exc:
                if not is_busy(exc) or time.monotonic() >= deadline:
                    raise
            self.check_open()
            pause()

    # --- the life of the engine ----------------------------------------------------------------------------------

    def hold(self, held: Held) -> None:
        """Note a transaction: its connection is borrowed, and yet nobody is inside SQLite with it between calls."""
        with self._guard:
            self._held.add(held)
            self._guard.notify_all()

    def let_go(self, held: Held) -> None:
        """Note that a transaction is over."""
        with self._guard:
            self._held.discard(held)

    def close(self) -> None:
        """Close: idle connections now, borrowed ones when they are given back; open transactions are rolled back (S-3).

        Whoever is inside SQLite is interrupted, and comes out with ``StoreClosedError``, nothing of his call done. What
        can't be interrupted (a Python function that a statement calls) isn't waited for beyond a bound.
        """
        deadline = time.monotonic() + _CLOSE_WITHIN
        with self._guard:
            self._closed = True
            held = list(self._held)
            self._place_idle()
            while self._waiting:
                self._waiting.popleft().turn.set()
        for transaction in held:
            transaction.cut(deadline)
        self._interrupt_all(deadline)
        self.writers.close(deadline)

    def _interrupt_all(self, deadline: float) -> None:
        with self._guard:
            while (len(self._opening) or len(self._open)) and (left := deadline - time.monotonic()) > 0:
                for units in list(self._open):
                    units.interrupt()
                self._guard.wait(min(left, _CLOSE_STEP))

    # --- fork (see fork.py) --------------------------------------------------------------------------------------

    def freeze(self, deadline: float) -> bool:
        """Keep everybody out of SQLite until ``thaw``, and say whether everybody was out by the deadline."""
        with self._guard:
            self._frozen = True
            self._place_idle()
            while self._inside() and (left := deadline - time.monotonic()) > 0:
                self._guard.wait(left)
            calm = not self._inside()
            held = list(self._held)
        for transaction in held:
            if transaction.inside.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._stopped.append(transaction)
            else:
                calm = False
        return calm

    def _inside(self) -> bool:
        return len(self._open) + len(self._opening) > len(self._out) + len(self._held)

    def thaw(self) -> None:
        """In the parent, after a fork: go on."""
        for transaction in self._stopped:
            transaction.inside.release()
        with self._guard:
            self._stopped = []
            self._frozen = False
            self._guard.notify_all()
            out, self._out = self._out, []
            for units in out:
                self._place(units)
            for _ in range(len(self._waiting)):
                self._offer_place()

    def inherit(self, calm: bool) -> None:
        """In the child, after a fork: leave every inherited connection alone, and start with none (S-4)."""
        opened, held, writers = list(self._open), list(self._held), self.writers
        for heir in self.heirs:
            heir()
        for units in opened:
            fork.leak(units.connection)
        for transaction in held:
            transaction.disown()
        writers.forget()
        self._renew()
        if self.location.path is None:
            self._closed = True
        elif opened:
            usable = calm and all(transaction.clear() for transaction in held)
            if not self.files.are_there():
                self._orphaned = True  # whatever has the name now is another, and nothing is wrong with that
            elif not (usable and fork.adopt_locks(self.location.path)):
                self._orphaned = True
                fork.set_unusable(self.location.path)


class _Connection(sqlite3.Connection):
    """Closed as the collector finds it, where an exception of a signal handler left it to nobody; not a thing to warn of.

    What a fork inherits is never found (``fork.leak``).
    """

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.close()


def _close(units: Units) -> None:
    with contextlib.suppress(sqlite3.Error):
        units.connection.close()
