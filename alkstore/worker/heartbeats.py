"""Extending the claims of whatever is held, and ending what has run for too long.

A thread of its own, on a connection of its own: a handler that is busy, or that has used up the store's pool, starves nobody's
claim. It goes on through a graceful stop. A claim is extended when a third of its visibility timeout has passed, so that two
attempts may fail before it lapses.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from alkstore.clock import SECOND
from alkstore.errors import AlkstoreError
from alkstore.store import Store
from alkstore.worker.board import Board
from alkstore.worker.job import RunningJob
from alkstore.worker.outages import Outage
from alkstore.worker.threads import Spawn, await_end

_LOG: Final = logging.getLogger("alkstore.worker")

_LOOK: Final = 0.5
"""Seconds between two looks at what is held, at most."""
BATCH: Final = 1_000
"""Claims extended by one statement, at most."""


class Heartbeats:
    """One thread that extends claims."""

    def __init__(
        self, store: Store, apart: Store, board: Board, lost: Callable[[RunningJob], None], spawn: Spawn
    ) -> None:
        self._store = store
        self._apart = apart
        self._board = board
        self._lost = lost
        self._over = False
        self._nudged = threading.Event()
        self._outage = Outage("extending claims")
        self._due: dict[RunningJob, float] = {}
        self._limits: dict[RunningJob, tuple[float, Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._thread = spawn("heartbeats", self._work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Extend nothing any more."""
        self._over = True
        self._nudged.set()
        await_end(self._thread, 1)

    def taken(self, jobs: list[RunningJob]) -> None:
        """Look at once where one of the jobs has a claim too short to wait for the next look."""
        if any(job.row.visibility_timeout / SECOND / 3 < 2 * _LOOK for job in jobs):
            self._nudged.set()

    def watch(self, job: RunningJob, seconds: float, expired: Callable[[], None]) -> None:
        """Call ``expired`` if the job still runs after so many seconds."""
        with self._lock:
            self._limits[job] = (time.monotonic() + seconds, expired)
        if seconds < 2 * _LOOK:
            self._nudged.set()

    def forget(self, job: RunningJob) -> None:
        """Watch it no more."""
        with self._lock:
            self._limits.pop(job, None)

    def _work(self) -> None:
        wait = 0.0
        while True:
            self._nudged.wait(wait)
            self._nudged.clear()
            if self._over:
                return
            now = time.monotonic()
            self._end_what_ran_too_long(now)
            try:
                wait = self._beat(now)
                self._outage.over()
            except AlkstoreError as exc:
                wait = min(self._outage.pause(exc), 1.0)

    def _end_what_ran_too_long(self, now: float) -> None:
        with self._lock:
            expired = [job for job, (limit, _) in self._limits.items() if limit <= now]
            calls = [self._limits.pop(job)[1] for job in expired]
        for call in calls:
            call()

    def _beat(self, now: float) -> float:
        """Extend what is due, and return for how many seconds to wait."""
        held = self._board.held()
        due: dict[str, list[RunningJob]] = {}
        known, self._due = self._due, {}
        for job in held:
            lease = job.row.visibility_timeout / SECOND
            at = known.get(job)
            if at is None:
                at = job.claimed_at + lease / 3 * random.uniform(0.8, 1.0)
            self._due[job] = at
            # Whatever comes due soon goes along, rather than by a statement of its own.
            if at <= now + lease / 12 and not job.lost:
                due.setdefault(job.queue, []).append(job)
        for queue, jobs in due.items():
            for start in range(0, len(jobs), BATCH):
                self._extend(queue, jobs[start : start + BATCH], now)
        soonest = min((at for job, at in self._due.items() if not job.lost), default=now + _LOOK)
        with self._lock:
            soonest = min([soonest, *(limit for limit, _ in self._limits.values())])
        return min(max(soonest - time.monotonic(), 0.005), _LOOK)

    def _extend(self, queue: str, jobs: list[RunningJob], now: float) -> None:
        executor, clock = self._apart.auto_executor(), self._apart.now()
        # A job in a transaction of its own is safe there: its row is locked, and its ack goes by the token alone (J-10).
        asked = [job for job in jobs if not job.in_transaction]
        refs = [job.ref for job in asked]
        # One alone would wait where its row is locked, and all the others with it: named twice, it is passed over.
        moved = executor.extend(queue, refs if len(refs) > 1 else refs * 2, None, clock) if refs else {}
        for job in jobs:
            self._due[job] = now + job.row.visibility_timeout / SECOND / 3
            found = moved.get(job.id)
            if found is not None:
                job.extended(found.deadline)
            elif job in asked and self._is_lost(queue, job):
                self._lost(job)
        if any(found.sooner for found in moved.values()):  # than its handler had asked for
            self._store.wakes.ring({queue: 0})

    def _is_lost(self, queue: str, job: RunningJob) -> bool:
        """Say whether the claim is gone: not being extended may only mean that the row was locked just now."""
        row = self._apart.auto_executor().recall(queue, job.ref)
        if row is None or row.lease_until is None:
            return True
        now = self._apart.now()
        return row.lease_until < (self._apart.auto_executor().now() if now is None else now)
