"""Claiming for one queue: as much as there is room for, and waiting where there is nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from alkstore.consuming import wait_for_job
from alkstore.errors import EngineError
from alkstore.handle import JobHandle
from alkstore.queue import Queue
from alkstore.store import Store
from alkstore.waiting import Waiter
from alkstore.worker.board import Board
from alkstore.worker.job import RunningJob
from alkstore.worker.outages import Outage
from alkstore.worker.threads import Spawn, await_end

Claimed = Callable[[list[RunningJob], bool], None]
"""Told of jobs that were claimed, and whether they will be begun: not where the worker has been stopped meanwhile."""


class Fetcher:
    """One thread that claims for one queue."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        worker_id: str,
        board: Board,
        poll: float,
        stopping: threading.Event,
        claimed: Claimed,
        news: Callable[[], None],
        spawn: Spawn,
        *,
        until_idle: bool,
    ) -> None:
        self._store = store
        self._queue = queue
        self._worker_id = worker_id
        self._board = board
        self._poll = poll
        self._stopping = stopping
        self._claimed = claimed
        self._news = news
        self._until_idle = until_idle
        self._waiter: Waiter | None = None
        self._outage = Outage(f"claiming from {queue.name!r}")
        self._thread = spawn("fetcher", self._work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def rouse(self) -> None:
        """Have it look whether it is to stop."""
        waiter = self._waiter
        if waiter is not None:
            self._store.wakes.waiters.rouse(waiter)

    def end(self, seconds: float) -> None:
        """Wait until it has ended, after it was told to stop."""
        self.rouse()
        await_end(self._thread, seconds)

    def _work(self) -> None:
        try:
            with self._store.wakes.attending():
                while not self._stopping.is_set():
                    self._step()
        finally:
            self._leave(more=False)

    def _step(self) -> None:
        board, epoch = self._board, self._board.epoch
        room = board.reserve()
        if not room:
            return
        jobs: list[RunningJob] = []
        failure: EngineError | None = None
        try:
            jobs = self._claim(room)
        except EngineError as exc:
            failure = exc
        finally:
            begun = board.put(jobs, room)
            if jobs:
                self._claimed(jobs, begun)
        if failure is not None:
            self._outage.wait(failure, self._stopping)
            return
        self._outage.over()
        if jobs:
            self._leave(more=len(jobs) == room)
        elif self._until_idle:
            board.found_nothing(self._queue.name, epoch)
            self._news()
            board.wait_for_news(epoch)
        else:
            self._wait()

    def _claim(self, room: int) -> list[RunningJob]:
        jobs: list[RunningJob] = []
        asked_at = time.monotonic()
        for handle in self._queue.claim_batch(self._worker_id, room):
            assert isinstance(handle, JobHandle)  # noqa: S101 - the front's own, as the queue is
            row = handle.claim.row
            assert row is not None  # noqa: S101 - claimed just now
            jobs.append(RunningJob(handle, row, self._stopping, asked_at))
        return jobs

    def _wait(self) -> None:
        """Wait until a claim is worth trying. The first time he only enters the line, and looks once more from there."""
        waiters = self._store.wakes.waiters
        if self._waiter is None:
            self._waiter = waiters.enter(self._queue.name)
            return
        try:
            wait_for_job(self._store, self._waiter, None, self._poll, self._stopping.is_set, self._poll)
        except EngineError as exc:
            self._outage.wait(exc, self._stopping)
        waiters.take(self._waiter)

    def _leave(self, *, more: bool) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._store.wakes.waiters.leave(waiter, more=more)
