"""Who writes next: within the process a mutex, between processes a line to stand in.

SQLite lets one connection write at a time, and tells the others ``SQLITE_BUSY``. Its own way of waiting sleeps longer and
longer while newcomers get the lock at once: with eight processes some waited five seconds, and one did nothing at all.

So whoever finds the lock taken goes and stands in a line: an exclusive ``flock`` on a file of its own beside the
database. The kernel keeps the others asleep, and only the one who holds it, the head of the line, tries for the write
lock again and again in short steps. A newcomer who finds the write lock free doesn't look at the line: that keeps
the uncontended path at one statement, and the head, who tries every tenth of a millisecond, loses little by it.

The file is separate because opening and closing the database itself would drop SQLite's own locks on it (those are
POSIX locks, which a process loses by closing *any* descriptor of the file), and with them committed data.

Nothing depends on the line but fairness. It can't be had everywhere (no ``fcntl``, a read-only folder); then, and for whoever waits
behind a head that was stopped, there is trying at random short intervals.
"""

from __future__ import annotations

import contextlib
import operator
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from alkstore.helper import start
from alkstore.monitor import Monitor

T = TypeVar("T")

LINE_SUFFIX: Final = "-alkstore-line"
"""The line's file is the database's name with this behind it."""

_PATIENCE: Final = 0.005
"""Seconds that the first in a mutex's line lets newcomers pass."""

_STEP: Final = 0.0001
_SLOW_STEP: Final = 0.002
_SLOW_AFTER: Final = 0.1
"""The head tries every 0.1 ms, and every 2 ms once the lock has been held for 100 ms: a long transaction."""

_LOOK_AROUND: Final = 0.25
"""Seconds after which one who stands in the line tries by himself: the head may have been stopped."""


if sys.platform == "win32":

    def _lock(descriptor: int, *, wait: bool) -> bool:
        raise NotImplementedError

    def _unlock(descriptor: int) -> None:
        raise NotImplementedError

else:
    import fcntl

    def _lock(descriptor: int, *, wait: bool) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class Hold(list[bool]):
    """What somebody has of a lock: something, while he has it.

    The lock is taken and that is noted in one call of the interpreter's own, and given back likewise: no handler of a signal
    comes between the two, which might raise, so that it would never be known whose the lock is.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__()
        self._lock: Final = lock

    def take(self, timeout: float) -> bool:
        """Take it within ``timeout`` seconds, and say whether that was possible."""
        self.extend(filter(None, map(self._lock.acquire, (timeout > 0,), (timeout if timeout > 0 else -1,))))
        return bool(self)

    def give(self) -> None:
        """Give it back, if it is had."""
        if self:
            self[:] = filter(None, map(operator.call, (self._lock.release,)))  # which is None, and so leaves nothing


class Mutex:
    """A lock within the process: newcomers may pass those who wait, but not for long.

    Handing the lock to the longest waiting thread at each release would cost a switch of threads per call, which halves the
    rate. Letting newcomers pass without end would starve the waiting. So they pass until the first in line has
    waited for 5 ms, and then queue behind it.
    """

    __slots__ = ("_guard", "_hungry", "_line", "lock")

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        """What a ``Hold`` is to be made of."""
        self._guard: Final = threading.Lock()
        self._line: Final[deque[threading.Lock]] = deque()
        self._hungry = False

    def acquire(self, hold: Hold, timeout: float) -> bool:
        """Take the lock within ``timeout`` seconds, and say whether that was possible; ``hold.give`` gives it back.

        Whose the hold is has to see to that from before the call: what a signal's handler raises may come out with it held.
        """
        return (not self._hungry and hold.take(0)) or self._wait(hold, timeout)

    def _wait(self, hold: Hold, timeout: float) -> bool:
        turn = threading.Lock()
        turn.acquire()
        try:
            taken = self._stand(turn, hold, time.monotonic() + timeout)
            self._leave(turn)
        finally:
            self._leave(
                turn
            )  # a handler may have raised in the line above: nobody would come past who stands there for ever
        return taken

    def _stand(self, turn: threading.Lock, hold: Hold, deadline: float) -> bool:
        with self._guard:
            self._line.append(turn)
            first = self._line[0] is turn
        if not first and not turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        # First in line from here on. Only this thread sets and clears the flag until it leaves.
        if hold.take(min(_PATIENCE, max(0.0, deadline - time.monotonic()))):
            return True
        self._hungry = True
        return hold.take(max(0.0, deadline - time.monotonic()))

    def _leave(self, turn: threading.Lock) -> None:
        """Leave the line; a second time does nothing, and one that a handler cuts short can be done again."""
        with self._guard:
            if turn not in self._line:
                return  # he has left, or a handler raised before he stood there
            if self._line[0] is turn:
                self._hungry = False
                if len(self._line) > 1:
                    with contextlib.suppress(RuntimeError):  # he was told, and may not have heard it yet
                        self._line[1].release()
            self._line.remove(turn)


class Inside:
    """Held by whoever is inside SQLite with a transaction's connection: its own thread, a fork, or ``close``.

    The thread that made it may enter again: a statement can call a Python function that uses the transaction.
    """

    __slots__ = ("_depth", "_elsewhere", "_here", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._owner: Final = threading.get_ident()
        self._here: Final = Hold(self._lock)
        self._depth = 0
        self._elsewhere: Final = Hold(self._lock)
        """Of the thread in which the collector found the transaction."""

    def acquire(self, *, timeout: float) -> bool:
        """Take it from outside of the transaction within ``timeout`` seconds, and say whether that was possible."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give back what ``acquire`` took."""
        self._lock.release()

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            self._elsewhere.take(threading.TIMEOUT_MAX)
            return
        if not self._here:
            self._here.take(threading.TIMEOUT_MAX)
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner != threading.get_ident():
            self._elsewhere.give()
            return
        self._depth -= 1
        if not self._depth:
            self._here.give()


class Line:
    """The processes that wait for the write lock of one database, one behind the other.

    Used by one thread of the process at a time: the one that has the process's ``Mutex``.
    """

    def __init__(self, database: str) -> None:
        self._path: Final = database + LINE_SUFFIX
        self._database: Final = database
        self._place: _Place | None = None

    def wait(self, attempt: Callable[[], T | None], deadline: float) -> T | None:
        """Call ``attempt`` until it gives something, and return that; ``None`` when the deadline (monotonic) passes.

        It is called at least once, and from here on nobody who waits in the line comes first.
        """
        place = self._place
        if place is None:
            place = self._place = _Place.open(self._path, self._database)
        if place is None:
            return poll(attempt, deadline)
        try:
            got = self._wait_at(place, attempt, deadline)
            place.leave()
        except BaseException:
            place.leave()  # also where a signal's handler raised while it was left: others would have to do without the line
            raise
        return got

    @staticmethod
    def _wait_at(place: _Place, attempt: Callable[[], T | None], deadline: float) -> T | None:
        while not place.reach(min(_LOOK_AROUND, deadline - time.monotonic())):
            got = attempt()
            if got is not None or time.monotonic() >= deadline:
                return got
        return _step(attempt, deadline)

    def close(self) -> None:
        """Close the line's file."""
        if self._place is not None:
            self._place.close()
            self._place = None

    def forget(self) -> None:
        """In a forked child: drop the descriptor, which is the parent's place in the line; its lock stays with it."""
        if self._place is not None:
            self._place.disown()
            self._place = None


class _Place:
    """This process's place in the line.

    ``flock`` knows no timeout, so that a thread of its own does the waiting in the kernel, and whoever is in a hurry can
    leave. The place is kept then: the next thread of the process to come takes it up.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._guard: Final = Monitor()
        self._wanted = False
        self._waiting = False
        self._held = False
        self._closed = False
        self._thread: threading.Thread | None = None

    @classmethod
    def open(cls, path: str, database: str) -> _Place | None:
        """Open the line's file, made with the database's own permissions; ``None`` where that can't be done."""
        if sys.platform == "win32":
            return None
        with contextlib.suppress(OSError):
            mode = Path(database).stat().st_mode & 0o666
            return cls(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode))
        return None

    def reach(self, timeout: float) -> bool:
        """Become the head of the line within ``timeout`` seconds, and say whether that was possible."""
        with self._guard:
            self._wanted = True
            if self._held:
                return True
            if not self._waiting:
                if _lock(self._descriptor, wait=False):
                    self._held = True
                    return True
                if not self._call():
                    timeout = min(timeout, random.uniform(_STEP, _SLOW_STEP))
            self._guard.wait_for(lambda: self._held, max(0.0, timeout))
            return self._held

    def leave(self) -> None:
        """Let the next one come to the head, or leave once the head is reached."""
        with self._guard:
            self._wanted = False
            if not self._waiting:
                # Whether it is noted as held or not: what a signal's handler raises may have come before the note.
                _unlock(self._descriptor)
                self._held = False

    def close(self) -> None:
        """Give the place up; a thread that still waits for it in the kernel ends when it comes."""
        with self._guard:
            self._closed = True
            self._guard.notify_all()
            if not self._waiting:
                os.close(self._descriptor)

    def disown(self) -> None:
        """In a forked child: close the inherited descriptor, without touching the lock or the other threads' state."""
        os.close(self._descriptor)

    def _call(self) -> bool:
        """Have the thread wait in the kernel, and say whether there is such a thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._keep, name="alkstore-line", daemon=True)
            try:
                start(thread)
            except RuntimeError:  # no more threads, or the interpreter is ending: whoever waits tries by himself
                return False
            self._thread = thread
        self._waiting = True
        self._guard.notify_all()
        return True

    def _keep(self) -> None:
        while True:
            with self._guard:
                self._guard.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
            _lock(self._descriptor, wait=True)
            with self._guard:
                self._waiting = False
                if self._closed:
                    os.close(self._descriptor)
                    return
                if self._wanted:
                    self._held = True
                    self._guard.notify_all()
                else:
                    _unlock(self._descriptor)


def poll(attempt: Callable[[], T | None], deadline: float) -> T | None:
    """Call ``attempt`` at random short intervals until it gives something, or the deadline passes."""
    while True:
        got = attempt()
        if got is not None or time.monotonic() >= deadline:
            return got
        pause()


def pause() -> None:
    """Sleep for a random short time, so that those who were refused together don't come back together."""
    time.sleep(random.uniform(_STEP, _SLOW_STEP))


def _step(attempt: Callable[[], T | None], deadline: float) -> T | None:
    """Call ``attempt`` as the head of the line."""
    started = time.monotonic()
    while True:
        got = attempt()
        now = time.monotonic()
        if got is not None or now >= deadline:
            return got
        time.sleep(_STEP if now - started < _SLOW_AFTER else _SLOW_STEP)
