"""Who has what in one worker: places that are free, jobs that wait for one, jobs that run, jobs not settled yet.

**How much is claimed.** What can start now, and beyond that what can be expected to start within ``SOON``, by how long the handlers
took of late: no-op jobs come in batches of hundreds, and of jobs that take a second each none is claimed before its time. As
long as some runner is idle, whatever there is room for is claimed at once; with all of them busy, the next batch is asked for when
half of what lay ready has been begun.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from alkstore.worker.job import RunningJob

SOON: Final = 0.05
"""Seconds within which a job that is claimed ahead should start."""

AHEAD_MOST: Final = 500
"""Jobs claimed ahead, at most."""

_STEP: Final = 0.5
"""Seconds within which a wait of the main thread's heeds a signal."""

_WEIGHT: Final = 0.1
"""What the latest handler's time counts in the average."""


class Board:
    """What the threads of a worker share. All of it is guarded by one lock."""

    def __init__(self, concurrency: int, queues: Iterable[str]) -> None:
        self._concurrency = concurrency
        self._changed = threading.Condition()
        self._waiting: deque[RunningJob] = deque()
        self._held: dict[int, RunningJob] = {}
        self._running = 0
        self._reserved = 0
        self._seconds: float | None = None
        self._closed = False
        self._epoch = 0
        self._empty: dict[str, int] = dict.fromkeys(queues, -1)

    # --- fetching ------------------------------------------------------------------------------------------------

    def reserve(self) -> int:
        """Wait for room, and take all of it; 0 once it is closed."""
        with self._changed:
            while not self._closed:
                room = self._room()
                if room > 0:
                    self._reserved += room
                    return room
                self._changed.wait()
            return 0

    def _room(self) -> int:
        """With the lock held: how many more to claim now."""
        ahead = self._ahead()
        taken = self._running + len(self._waiting) + self._reserved
        room = self._concurrency + ahead - taken
        if taken >= self._concurrency and room <= ahead // 2:
            return 0
        return room

    def _ahead(self) -> int:
        if self._seconds is None:
            return 0
        return min(AHEAD_MOST, int(self._concurrency * SOON / max(self._seconds, 1e-6)))

    def put(self, jobs: list[RunningJob], reserved: int) -> bool:
        """Lay claimed jobs ready, in the place of what was reserved; ``False``, and nothing done, once it is closed."""
        with self._changed:
            self._reserved -= reserved
            self._changed.notify_all()
            for job in jobs:
                self._held[id(job)] = job
            if self._closed:
                return False
            self._waiting.extend(jobs)
            return True

    # --- running -------------------------------------------------------------------------------------------------

    def take(self) -> RunningJob | None:
        """Wait for a job to run, and begin it; ``None`` once it is closed."""
        with self._changed:
            while not self._closed:
                if self._waiting:
                    job = self._waiting.popleft()
                    if job.begin():
                        self._running += 1
                        return job
                    continue
                self._changed.wait()
            return None

    def ran(self, seconds: float) -> None:
        """Note that a handler has come back."""
        with self._changed:
            self._running -= 1
            before = self._seconds
            self._seconds = seconds if before is None else before + _WEIGHT * (seconds - before)
            self._changed.notify_all()

    # --- settling ------------------------------------------------------------------------------------------------

    def held(self) -> list[RunningJob]:
        """Return whatever was claimed and isn't settled."""
        with self._changed:
            return list(self._held.values())

    def settled(self, jobs: Iterable[RunningJob]) -> None:
        """Note that nothing is to be done any more for these."""
        with self._changed:
            for job in jobs:
                self._held.pop(id(job), None)
            self._epoch += 1
            self._changed.notify_all()

    # --- idleness ------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Grows with whatever is settled."""
        with self._changed:
            return self._epoch

    def found_nothing(self, queue: str, epoch: int) -> None:
        """Note that a claim that was begun in this epoch found nothing."""
        with self._changed:
            self._empty[queue] = epoch
            self._changed.notify_all()

    def is_idle(self) -> bool:
        """Say whether nothing is held, and nothing was found in any queue since the last was settled."""
        with self._changed:
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._held and all(epoch == self._epoch for epoch in self._empty.values())

    def wait_for_news(self, epoch: int) -> None:
        """Wait until something is settled after the epoch, all is idle, or it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._epoch != epoch or self._is_idle())

    # --- places that come and go ---------------------------------------------------------------------------------

    def lose_place(self) -> list[RunningJob]:
        """Have a place less for jobs; with the last one, return what waits for a place."""
        with self._changed:
            self._concurrency -= 1
            if self._concurrency > 0:
                return []
            left = list(self._waiting)
            self._waiting.clear()
            return left

    def gain_place(self) -> None:
        """Have it again."""
        with self._changed:
            self._concurrency += 1
            self._changed.notify_all()

    # --- ending --------------------------------------------------------------------------------------------------

    def close(self) -> list[RunningJob]:
        """Let nothing be claimed or begun any more, and return what was not begun."""
        with self._changed:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            return left

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until it holds, looked at (with the lock held) whenever something changes; ``False`` after so long."""
        until = time.monotonic() + seconds
        with self._changed:
            # In steps, for a signal that comes just before a wait begins is heeded only after it.
            while not (held := condition()) and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, _STEP))
            return held

    def none_held(self) -> bool:
        """Say whether everything is settled, for ``wait_until``: the lock is held already."""
        return not self._held

    def none_reserved(self) -> bool:
        """Say whether nothing is being claimed, for ``wait_until`` likewise."""
        return not self._reserved
