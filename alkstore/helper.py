"""A flag, a register, and a thread on call, which may be used from anywhere (clauses W-4, Z-14).

From anywhere: a signal handler runs between any two steps of the main thread, and the garbage collector calls a ``__del__``
on top of whatever a thread was doing. If that has a lock, whoever comes on top would wait for it for ever; and where the
lock can be entered again, he would find a change half made. So nothing here, in ``waiting`` or in ``doorbell`` keeps a lock.
What is shared is changed by single calls of the interpreter's own (of a lock, a dict, a deque), each of which is done or not;
and their order is such that anything may come between two of them: another thread, a handler, or the collector.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_STEP: Final = 0.05
"""Seconds between two looks of whoever waits for the thread to rest: of several who wait, only one is told."""


def start(thread: threading.Thread) -> None:
    """Start a thread; raise ``RuntimeError`` where there can be no more, and whatever a signal's handler raises meanwhile.

    ``Thread.start`` waits for the thread with a condition of its own; where a handler raises in the middle of that, what comes
    out may be the condition's error about its lock, with what was raised behind it.
    """
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as exc:
        raised = exc.__context__
        if raised is None or raised is handled:
            raise
        raise raised from None


def take_first(things: deque[T]) -> T | None:
    """Take the first thing from a deque; ``None`` where it is empty.

    What a signal's handler raises comes before it is taken, or once the caller has it: it is taken by a loop's own step, and
    not by a call, behind which the interpreter would look for signals. To be the last step before it is returned.
    """
    try:
        for first in map(operator.call, (things.popleft,)):
            return first
    except IndexError:
        pass
    return None


class Flag:
    """Set or not; each change is one step, and says whether it was a change. Being set lasts until somebody takes it."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset: Final = threading.Lock()
        self._unset.acquire()

    @property
    def is_set(self) -> bool:
        """Whether it is set."""
        return not self._unset.locked()

    def set(self) -> bool:
        """Set it, and say whether it wasn't set."""
        try:
            self._unset.release()
        except RuntimeError:  # nobody has it
            return False
        return True

    def clear(self) -> bool:
        """Unset it, and say whether it was set."""
        return self._unset.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, for ``timeout`` seconds at most, and unset it; say whether it was."""
        return self._unset.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))


class Register(Generic[T]):
    """Things for as long as they live, each once. Who comes and goes is noted by calls of the interpreter's own alone."""

    __slots__ = ("_things",)

    def __init__(self) -> None:
        self._things: Final[set[weakref.ref[T]]] = set()

    def add(self, thing: T) -> None:
        """Refer to it weakly from now on."""
        self._things.add(weakref.ref(thing, self._things.discard))

    def discard(self, thing: T) -> None:
        """Refer to it no more, if it is there."""
        self._things.discard(weakref.ref(thing))

    def __len__(self) -> int:
        return len(self._things)

    def living(self) -> list[T]:
        """Return all that live; they are copied in one step."""
        return [thing for reference in list(self._things) if (thing := reference()) is not None]


class Helper:
    """A thread that comes when it is called, and goes when there was nothing to do for a while."""

    def __init__(self, name: str, work: Callable[[], None], pending: Callable[[], bool], linger: float) -> None:
        """``work`` does whatever there is to do, and ``pending`` says whether there is; it stays for ``linger`` seconds."""
        self._name: Final = name
        self._work: Final = work
        self._pending: Final = pending
        self._linger = linger
        self._called: Final = Flag()
        self._running: Final = Flag()
        self._rested: Final = Flag()
        self._working = False

    def call(self) -> bool:
        """Have it work, and return at once; ``False`` where there is no thread to be had now: the next call tries again."""
        self._called.set()
        return self._start()

    def flush(self, within: float) -> bool:
        """Wait until nothing is left to do, for ``within`` seconds at most, and say whether that is so."""
        until = time.monotonic() + within
        if self._pending():
            self.call()  # there may have been no thread to be had before
        # What is taken up is pending until it is being worked on: see ``_run``.
        while self._running.is_set and (self._pending() or self._working):
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._rested.wait(min(left, _STEP))
        return not self._pending()

    def end(self) -> None:
        """Have the thread go as soon as nothing is left to do; called later, it comes for that alone."""
        self._linger = 0.0
        self._called.set()

    def _start(self) -> bool:
        if not self._running.set():
            return True
        started = False
        try:
            # While the interpreter ends a thread may begin and never run, and ``start`` would wait for it.
            if not sys.is_finalizing():
                start(threading.Thread(target=self._run, name=self._name, daemon=True))
                started = True
        except RuntimeError:  # there can be no more threads
            return False
        finally:
            # Also if a handler raises: a second thread does no harm, and none would.
            if not started:
                self._running.clear()
        return started

    def _run(self) -> None:
        try:
            while self._called.wait(self._linger):
                self._working = True
                try:
                    self._work()
                finally:
                    self._working = False
                    self._rested.set()
        finally:
            self._running.clear()
            self._rested.set()
            # By somebody who took this one for running; or it failed, and there is more to do.
            if self._called.is_set or self._pending():
                self._called.set()
                self._start()
