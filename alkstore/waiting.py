"""Who waits for jobs in this store, one line of waiters for each queue (clauses W-4, Z-14).

**Whom a wake reaches.** Jobs that can be had at once wake as many waiters as there are jobs, the longest waiting first,
and nobody else. Whatever else may have made something ready (a clock, another process, a lapsing lease) only makes the
*head* of the line look: the one who waits for the next due time, while those behind him sleep. When he has claimed, or leaves,
the next one is the head, and looks in his turn if there may be more.

**Why no wake is lost.** A waiter stands in the line *before* he looks whether there is anything. Whatever is committed before
he looks, he sees; whatever is rung afterwards finds him in the line, and stays with him until he takes it. A wake that he
didn't use, as he had a job already, is handed on when he leaves.

**Why nobody spins.** A job may be due and yet not to be had: somebody has it locked, in a transaction that he may roll back
without a word. Each claim in vain that a look had promised something makes the next look's promise wait longer, up to a
quarter of a second; and then it is the head of the line alone who tries. So whatever else comes due there, and the job itself
after the rollback, is had within that time, for four looks and claims a second, a millisecond each.

**Why stores don't run into each other.** What is rung, and what falls due, is news for every store that listens, and one of
them will be first. Where such news came to nothing here the last time, whoever has the next stands back for a moment
(drawn anew each time, from a span that doubles up to 16 ms), and then looks first: mostly the job is gone by then, and the
look was all that it cost. Who got something is at once again, as is a store that is alone and gets what it is told of.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Final, TypeAlias

from alkstore.backoff import pause
from alkstore.helper import Flag

_PLACES: Final = 64
"""Places for the waiters of all queues."""

_FIRST_PAUSE: Final = 0.02
"""Seconds that the second claim in vain in a row costs; doubled with each."""

_LONGEST_PAUSE: Final = 0.25
"""Seconds that any claim in vain costs, at most."""

_FIRST_SPAN: Final = 0.002
"""Seconds from which the moment is drawn for which a store stands back, whose last news came to nothing."""

_LONGEST_SPAN: Final = 0.016
"""Seconds up to which the span grows: time for a dozen claims, one after the other."""

_SIGNALS_WITHIN: Final = 1.0
"""Seconds that a signal's handler may have to wait for a sleeper's thread."""

_REMEMBERED: Final = 10_000
"""Queues of which claims in vain are counted."""


class Waiter:
    """One who waits."""

    __slots__ = ("__weakref__", "is_shared", "nudged", "queue", "stirred", "woken")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.woken = Flag()
        """A job is there for him."""
        self.is_shared = False
        """Other stores know of it, too."""
        self.stirred = False
        """He had better look."""
        self.nudged = Flag()
        """He is to see what there is, if he sleeps."""


_Line: TypeAlias = dict[weakref.ref[Waiter], bool]


class Waiters:
    """All who wait in one store.

    Nothing is locked here (see ``helper``). Two things can so come between: a waker picks one who is just leaving, so he looks
    afterwards whether he is still there, as the one who leaves looks, after he has left, whether he was woken: at least one of them
    sees the other. And lines come and go: so there are none, but places, each for the waiters of many queues in their order.

    They are referred to weakly: a signal's handler may raise just where somebody is about to leave, who would be the head
    for ever, and look no more.
    """

    def __init__(self) -> None:
        self._places: Final[tuple[_Line, ...]] = tuple({} for _ in range(_PLACES))
        self._in_vain: dict[str, int] = {}
        self._news: dict[str, int] = {}
        """By queue, what other stores know, too, and was told here since a claim last gave something."""
        self._closed = False

    def _place(self, queue: str) -> _Line:
        return self._places[hash(queue) % _PLACES]

    def _line(self, queue: str) -> list[Waiter]:
        """Return the queue's waiters, the longest waiting first."""
        return [waiter for waiter in _living(self._place(queue)) if waiter.queue == queue]

    def _stands(self, waiter: Waiter) -> bool:
        """Say whether he is in the line."""
        return weakref.ref(waiter) in self._place(waiter.queue)

    def enter(self, queue: str) -> Waiter:
        """Stand in the queue's line, at its end."""
        waiter = Waiter(queue)
        place = self._place(queue)

        def vanish(gone: weakref.ref[Waiter]) -> None:
            if place.pop(gone, False):  # he may have been the head, or woken
                self.stir(queue)

        place[weakref.ref(waiter, vanish)] = True
        return waiter

    def leave(self, waiter: Waiter, *, more: bool) -> None:
        """Leave the line, if not done already; ``more`` says that others had better look, too.

        A wake that was not used goes to the next one.
        """
        was_head = self.is_head(waiter)
        if not self._place(waiter.queue).pop(weakref.ref(waiter), False):
            return
        if waiter.woken.clear():
            self._wake(waiter.queue, 1, is_shared=waiter.is_shared)
        elif was_head or more or waiter.stirred:
            self.stir(waiter.queue)

    def wake(self, queue: str, count: int, *, is_shared: bool = False) -> None:
        """Tell as many as there are jobs; ``is_shared`` says that other stores are told, too."""
        if self._wake(queue, count, is_shared=is_shared) and is_shared:
            _count(self._news, queue)

    def _wake(self, queue: str, count: int, *, is_shared: bool) -> bool:
        """Do so, and say whether anybody was woken."""
        left = count
        for waiter in self._line(queue):
            if left <= 0:
                break
            if not (is_shared and waiter.woken.is_set):  # else he has news of his own already, which doesn't wait
                waiter.is_shared = is_shared
            if waiter.woken.set():
                waiter.nudged.set()
                if self._stands(waiter) or not waiter.woken.clear():
                    left -= 1  # else he left without having seen it
        return left < count

    def stir(self, queue: str | None) -> None:
        """Have the head of the queue's line look, or (``None``) of each."""
        if queue is None:
            for name in {waiter.queue for place in self._places for waiter in _living(place)}:
                self.stir(name)
            return
        for waiter in self._line(queue):
            waiter.stirred = True
            waiter.nudged.set()
            if self._stands(waiter):
                return  # else he left, and the next one is the head

    def take(self, waiter: Waiter) -> bool:
        """Say whether he was woken, and let that be used up."""
        return waiter.woken.clear()

    def is_head(self, waiter: Waiter) -> bool:
        """Say whether he is the one who looks."""
        line = self._line(waiter.queue)
        return bool(line) and line[0] is waiter

    def sleep(self, waiter: Waiter, until: float, over: Callable[[], bool], step: float) -> None:
        """Sleep until he is woken or stirred, the store is closed, or the time (monotonic) has come.

        Or until ``over`` says so, which is asked every ``step`` seconds, and when he is roused. At least once a second: a
        signal that comes just before the interpreter waits, and after it has last looked for one, is only handled afterwards.
        """
        while not (waiter.woken.is_set or waiter.stirred or self._closed or over()):
            left = until - time.monotonic()
            if left <= 0:
                break
            waiter.nudged.wait(min(left, step, _SIGNALS_WITHIN))  # at once, if he was nudged since he asked
        waiter.stirred = False

    def rouse(self, waiter: Waiter) -> None:
        """Have him ask whether it is over."""
        waiter.nudged.set()

    def close(self) -> None:
        """Wake everybody, from now on at once."""
        self._closed = True
        for place in self._places:
            for waiter in _living(place):
                waiter.nudged.set()

    # --- claims in vain ------------------------------------------------------------------------------------------

    def claimed(self, queue: str, count: int) -> None:
        """Note what a claim gave."""
        if count:
            self._in_vain.pop(queue, None)
            self._news.pop(queue, None)
        else:
            _count(self._in_vain, queue)

    def nothing_due(self, queue: str) -> None:
        """Note that a look found nothing, so that the claims in vain were right."""
        if self._in_vain.get(queue, 0) > 1:
            self._in_vain[queue] = 1

    def pause(self, queue: str) -> float:
        """Return for how long a promise of a look is to wait, in seconds."""
        times = self._in_vain.get(queue, 0)
        if times < 2:
            return 0.0
        return pause(_FIRST_PAUSE, _LONGEST_PAUSE, times - 2)

    # --- news that other stores have, too ------------------------------------------------------------------------

    def fell_due(self, waiter: Waiter) -> None:
        """Note that something is due, by the clock, which every store has."""
        waiter.is_shared = True
        _count(self._news, waiter.queue)

    def stand_back(self, waiter: Waiter) -> float:
        """Return for how many seconds to let other stores go first, who were told the same."""
        times = self._news.get(waiter.queue, 0) if waiter.is_shared else 0
        return 0.0 if times < 2 else pause(_FIRST_SPAN, _LONGEST_SPAN, times - 2, least=0.0)


def _count(counts: dict[str, int], queue: str) -> None:
    if len(counts) >= _REMEMBERED:
        counts.clear()  # of queues by the thousand, none is claimed from in vain all the time
    counts[queue] = min(counts.get(queue, 0) + 1, 30)


def _living(place: _Line) -> list[Waiter]:
    """Return all who stand there, in their order; they are copied in one step."""
    return [waiter for reference in list(place) if (waiter := reference()) is not None]
