"""Who waits for jobs in this store, one line of waiters for each queue (clauses W-4, Z-14).

**Whom a wake reaches.** Jobs that can be had at once wake as many waiters as there are jobs, the longest waiting first,
and nobody else. Whatever else may have made something ready (a clock, another process, a lapsing lease) only makes the
*head* of the line look: the one who waits for the next due time, while those behind him sleep. When he has claimed, or leaves,
the next one is the head, and looks in his turn if there may be more.

**Why no wake is lost.** A waiter stands in the line *before* he looks whether there is anything. Whatever is committed before
he looks, he sees; whatever is rung afterwards finds him in the line, and stays with him until he takes it. A wake that he
didn't use, as he had a job already, is handed on when he leaves.

**Why nobody spins.** A job may be due and yet not to be had: somebody has it locked. Each claim in vain that a look had
promised something makes the next look's promise wait longer, up to the poll interval.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

_FIRST_PAUSE: Final = 0.02
"""Seconds that the second claim in vain in a row costs; doubled with each."""

_REMEMBERED: Final = 10_000
"""Queues of which claims in vain are counted."""


class Waiter:
    """One who waits. All of it is guarded by the lock of the ``Waiters``."""

    __slots__ = ("condition", "queue", "stirred", "woken")

    def __init__(self, queue: str, lock: threading.Lock) -> None:
        self.queue = queue
        self.condition = threading.Condition(lock)
        self.woken = False
        """A job is there for him."""
        self.stirred = False
        """He had better look."""


class Waiters:
    """All who wait in one store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, list[Waiter]] = {}
        self._in_vain: dict[str, int] = {}
        self._closed = False

    def enter(self, queue: str) -> Waiter:
        """Stand in the queue's line, at its end."""
        waiter = Waiter(queue, self._lock)
        with self._lock:
            self._lines.setdefault(queue, []).append(waiter)
        return waiter

    def leave(self, waiter: Waiter, *, more: bool) -> None:
        """Leave the line; ``more`` says that others had better look, too.

        A wake that was not used goes to the next one.
        """
        with self._lock:
            line = self._lines[waiter.queue]
            was_head = line[0] is waiter
            line.remove(waiter)
            if not line:
                del self._lines[waiter.queue]
            elif waiter.woken:
                self._wake(line, 1)
            elif was_head or more:
                self._stir(line)

    def wake(self, queue: str, count: int) -> None:
        """Tell as many as there are jobs."""
        with self._lock:
            line = self._lines.get(queue)
            if line is not None:
                self._wake(line, count)

    def stir(self, queue: str | None) -> None:
        """Have the head of the queue's line look, or (``None``) of each."""
        with self._lock:
            lines = self._lines.values() if queue is None else filter(None, [self._lines.get(queue)])
            for line in lines:
                self._stir(line)

    def take(self, waiter: Waiter) -> bool:
        """Say whether he was woken, and let that be used up."""
        with self._lock:
            woken, waiter.woken = waiter.woken, False
            return woken

    def is_head(self, waiter: Waiter) -> bool:
        """Say whether he is the one who looks."""
        with self._lock:
            return self._lines[waiter.queue][0] is waiter

    def sleep(self, waiter: Waiter, until: float, over: Callable[[], bool], step: float) -> None:
        """Sleep until he is woken or stirred, the store is closed, or the time (monotonic) has come.

        Or until ``over`` says so, which is asked every ``step`` seconds, and when he is roused.
        """
        with self._lock:
            while not (waiter.woken or waiter.stirred or self._closed or over()):
                left = until - time.monotonic()
                if left <= 0:
                    break
                waiter.condition.wait(min(left, step))
            waiter.stirred = False

    def rouse(self, waiter: Waiter) -> None:
        """Have him ask whether it is over."""
        with self._lock:
            waiter.condition.notify()

    def close(self) -> None:
        """Wake everybody, from now on at once."""
        with self._lock:
            self._closed = True
            for line in self._lines.values():
                for waiter in line:
                    waiter.condition.notify()

    # --- claims in vain ------------------------------------------------------------------------------------------

    def claimed(self, queue: str, count: int) -> None:
        """Note what a claim gave."""
        if count:
            self._in_vain.pop(queue, None)
        else:
            if len(self._in_vain) >= _REMEMBERED:
                self._in_vain.clear()  # of queues by the thousand, none is claimed from in vain all the time
            self._in_vain[queue] = min(self._in_vain.get(queue, 0) + 1, 30)

    def nothing_due(self, queue: str) -> None:
        """Note that a look found nothing, so that the claims in vain were right."""
        if self._in_vain.get(queue, 0) > 1:
            self._in_vain[queue] = 1

    def pause(self, queue: str, longest: float) -> float:
        """Return for how long a promise of a look is to wait, in seconds."""
        times = self._in_vain.get(queue, 0)
        if times < 2:
            return 0.0
        return random.uniform(0.5, 1.0) * min(longest, _FIRST_PAUSE * 2.0 ** (times - 2))

    # --- with the lock held --------------------------------------------------------------------------------------

    @staticmethod
    def _wake(line: list[Waiter], count: int) -> None:
        for waiter in line:
            if count <= 0:
                return
            if not waiter.woken:
                waiter.woken = True
                waiter.condition.notify()
                count -= 1

    @staticmethod
    def _stir(line: list[Waiter]) -> None:
        line[0].stirred = True
        line[0].condition.notify()
