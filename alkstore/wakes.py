"""What wakes whom: the store's own waiters at once, those of other processes through the engine (clauses W-4, Z-14)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, cast

from alkstore.doorbell import Doorbell
from alkstore.ending import at_end, see_to_the_end
from alkstore.engine import Engine, Heard, Notifying
from alkstore.forking import survive
from alkstore.helper import Flag, Helper, Register
from alkstore.results import ResultWaiters, is_for_results
from alkstore.waiting import Waiters

_LINGER: Final = 1.0
"""Seconds that the thread stays which gives back for others."""

_FLUSHED_WITHIN: Final = 2.0
"""Seconds that ``close`` and the program's end wait for what is still to be given back."""


class Rings:
    """What a transaction is to ring once it is committed."""

    __slots__ = ("notified", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, int] = {}
        """By queue, how many jobs can be had; 0: something may be due sooner."""
        self.notified = False
        """Something was sent to listeners."""

    def add(self, queue: str, count: int) -> None:
        """Note jobs of a queue."""
        self.queues[queue] = self.queues.get(queue, 0) + count

    def __bool__(self) -> bool:
        return bool(self.queues) or self.notified


class Attendance(AbstractContextManager[None]):
    """Hearing what others ring. An object without a finalizer: the collector would run that on top of anything."""

    def __init__(self, notifying: Notifying | None, heard: Heard) -> None:
        self._notifying = notifying
        self._heard = heard
        self._process = os.getpid()

    def __enter__(self) -> None:
        """Begin."""
        if self._notifying is not None:
            self._notifying.attend(self._heard, self)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        if self._notifying is not None and self._process == os.getpid():  # else it was the parent's
            self._notifying.leave(self)


class Wakes:
    """The wakes of one store."""

    def __init__(self, engine: Engine) -> None:
        self._notifying = cast(Notifying, engine) if engine.capabilities.notify else None
        self._begin()
        _open.add(self)
        survive(self, Wakes.begin_anew)

    def _begin(self) -> None:
        self.waiters = Waiters()
        """Who waits for jobs in this store."""
        self.results = ResultWaiters()
        """Who waits for what jobs come to."""
        self._bell = None if self._notifying is None else Doorbell(self._notifying.ring)
        self._left: deque[tuple[Callable[[], None], Flag]] = deque()
        self._helper = Helper("alkstore-returns", self._give_back, lambda: bool(self._left), _LINGER)
        self._process = os.getpid()

    def ring(self, rings: Mapping[str, int], *, notified: bool = False) -> None:
        """Tell of what was just committed."""
        for queue, count in rings.items():
            self._tell(queue, count, is_shared=False)
        if (
            self._bell is not None
            and self._notifying is not None
            and self._notifying.is_heard(rings, notified=notified)
        ):
            see_to_the_end()
            self._bell.ring(rings, notified=notified)

    def attending(self) -> Attendance:
        """Hear what others ring, for as long as the block lasts."""
        return Attendance(self._notifying, self._heard)

    def give_back(self, deed: Callable[[], None]) -> Flag | None:
        """Have it done on another thread, as this one can't wait for anything; ``None`` where there is no thread.

        Returns at once what is set when it is done.
        """
        see_to_the_end()
        done = Flag()
        self._left.append((deed, done))
        return done if self._helper.call() else None

    def _give_back(self) -> None:
        while True:
            try:
                deed, done = self._left.popleft()
            except IndexError:  # there may be two of these threads: see ``Helper``
                return
            try:
                deed()
            finally:
                done.set()

    def flush(self) -> None:
        """Wait, for a bounded time, until what is still to be given back and to be rung is."""
        if self._process == os.getpid():
            self._helper.flush(_FLUSHED_WITHIN)
            if self._bell is not None:
                self._bell.flush()

    def _heard(self, queue: str | None, count: int) -> None:
        """Hear what another store rang, as all that listen do."""
        self._tell(queue, count, is_shared=True)

    def _tell(self, queue: str | None, count: int, *, is_shared: bool) -> None:
        if queue is not None and count:
            self.waiters.wake(queue, count, is_shared=is_shared)
            return
        if queue is None or is_for_results(queue):
            self.results.told(queue)
        if queue is None or not is_for_results(queue):
            self.waiters.stir(queue)

    def close(self) -> None:
        """Send everybody away who waits, give back what is still to be given back, and ring what is to be rung."""
        self.waiters.close()
        self.results.close()
        self.flush()
        self._helper.end()
        if self._bell is not None:
            self._bell.end()

    def begin_anew(self) -> None:
        """In a fork's child: nobody waits here, and nothing is on its way; locks may be held by threads of the parent."""
        self._begin()


_open: Final[Register[Wakes]] = Register()


def _at_exit() -> None:
    for wakes in _open.living():
        wakes.flush()


at_end(_at_exit)
