"""Everything at once: threads that enqueue, work, fail, forget, sweep, revive and cancel on one queue, written down."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Final

from alkstore import State
from alkstore.protocols import JobHandle, Queue
from contract_tests.history import History
from contract_tests.together import Together
from contract_tests.travel import Clock

_PATIENCE: Final = 20
"""So many claims in a row that give nothing end a worker."""


class Churn:
    """One run: ``run`` returns when the workers have found nothing to do for a while."""

    def __init__(self, clock: Clock, jobs: int) -> None:
        self.history = History()
        """What happened; a job that was cancelled counts as done."""
        self._clock = clock
        self._jobs = jobs
        self._over = threading.Event()

    def run(self, workers: Sequence[Queue], tender: Queue, meddler: Queue) -> None:
        """Run a thread per worker, one that lets time pass, sweeps and revives, and one that cancels."""
        with Together(3) as together:
            together.all([lambda: self._work(workers), lambda: self._tend(tender), lambda: self._meddle(meddler)])

    def _work(self, workers: Sequence[Queue]) -> None:
        try:
            with Together(len(workers)) as together:
                together.all([lambda q=q, n=n: self._produce_and_consume(q, n) for n, q in enumerate(workers)])
        finally:
            self._over.set()

    def _produce_and_consume(self, queue: Queue, number: int) -> None:
        dice = random.Random(number)
        for turn in range(self._jobs):
            key = f"{number}-{turn}"
            self.history.attempted(key)
            queue.enqueue(key, max_attempts=2, priority=turn % 3)
            self.history.acknowledged(key)
        idle = 0
        while idle < _PATIENCE:
            handles = queue.claim_batch("worker", dice.randint(1, 4))
            idle = 0 if handles else idle + 1
            for handle in handles:
                self._settle(handle, dice.random())

    def _settle(self, handle: JobHandle, chance: float) -> None:
        if chance < 0.5:
            if handle.ack():
                self.history.done(handle.payload)
        elif chance < 0.6:
            handle.retry("x", delay=0)
        elif chance < 0.7:
            handle.fail("x")
        elif chance < 0.8:
            handle.release()
        elif chance < 0.9:
            handle.heartbeat()
        # Else the worker forgets it, and it lapses.

    def _tend(self, queue: Queue) -> None:
        dice = random.Random(99)
        while not self._over.is_set():
            self._clock.advance(dice.choice([1, 30, 61]))
            queue.sweep_expired()
            for job in queue.jobs(State.DEAD, limit=5):
                queue.retry_dead(job.id)

    def _meddle(self, queue: Queue) -> None:
        dice = random.Random(7)
        while not self._over.is_set():
            for job in queue.jobs(after=dice.randint(0, 500), limit=1):
                if queue.cancel(job.id):
                    self.history.done(job.payload)
