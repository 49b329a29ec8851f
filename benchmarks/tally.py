"""Counts the jobs that a worker under measurement has handled, and says when it is to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LONGEST_START = 15.0
_LAST_GASP = 0.5
_GLANCE = 0.05


class Tally:
    """What a worker's handler tells, and what tells the worker that it is over.

    ``first`` and ``last`` are the monotonic clock's nanoseconds at the first and the last job: it is one clock for all
    processes of a machine. Handlers may be in any thread.
    """

    def __init__(self, expected: int | None = None, tell: Callable[[int, int], None] | None = None) -> None:
        self.expected = expected
        self.first = 0
        self.last = 0
        self.over = threading.Event()
        self.drained = threading.Event()
        """Set when another worker has found nothing left."""

        self._handled = 0
        self._tell = tell
        self._listeners: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def handled(self) -> int:
        """How many jobs were handled."""
        return self._handled

    def one(self, number: int = 0) -> None:
        """Count a job that a handler was given."""
        now = time.monotonic_ns()
        with self._lock:
            self._count(1, now)
        if self._tell is not None:
            self._tell(number, now)
        self._look()

    def many(self, count: int) -> None:
        """Count so many jobs at once: for those who handle by the batch, and in one thread."""
        self._count(count, time.monotonic_ns())
        self._look()

    def _look(self) -> None:
        # At least: two threads may both have counted before either of them looks.
        if self.expected is not None and self._handled >= self.expected:
            self.end()

    def _count(self, count: int, now: int) -> None:
        if self._handled == 0:
            self.first = now
        self.last = max(self.last, now)
        self._handled += count

    def end(self) -> None:
        """Tell the worker to stop."""
        with self._lock:
            self.over.set()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def when_over(self, listener: Callable[[], object]) -> None:
        """Call the listener when it is over, from whatever thread; at once if it is."""
        with self._lock:
            if not self.over.is_set():
                self._listeners.append(listener)
                return
        listener()

    def watch(self) -> None:
        """End it when nothing was handled for a while: for workers who share jobs, and don't know how many are theirs.

        The while isn't measured: ``last`` is when the last job was.
        """
        begun = time.monotonic()
        while not self.over.wait(_GLANCE):
            now = time.monotonic_ns()
            if self._handled == 0:
                waited = time.monotonic() - begun
                if waited > (_LAST_GASP if self.drained.is_set() else _LONGEST_START):
                    self.end()
            elif now - self.last > _LAST_GASP * 1e9:
                self.end()
