"""Alkstore, on either engine: through the front, as an application uses it, with its options as they are by default."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from datetime import timedelta
from typing import Any

import alkstore
from benchmarks.payload import payload
from benchmarks.system import Durability, System
from benchmarks.tally import Tally

_QUEUE = "bench"
_CHUNK = 10_000


def check(done: bool) -> None:
    """Stop where something wasn't done that is timed: the figure would mean nothing."""
    if not done:
        raise RuntimeError("a job that was enqueued could not be claimed and acked")


class Alkstore(System):
    """The library; its worker has its default settings always."""

    name = "alkstore"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Open a store, which makes its own tables."""
        del create
        self._store = alkstore.open(self.url(place), **self.options(durability))
        self._queue = self._store.queue(_QUEUE)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def url(self, place: str) -> str:
        """Return the store's URL."""
        return place

    def options(self, durability: Durability) -> dict[str, Any]:
        """Return the store's options."""
        del durability
        return {}

    def versions(self) -> dict[str, str]:
        """Return the library's."""
        return {"alkstore": importlib.metadata.version("alkstore")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Enqueue one by one."""
        for number in range(first, first + jobs):
            self._queue.enqueue(payload(number))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Enqueue by the batch, from a generator."""
        for done in range(0, jobs, batch):
            self._queue.enqueue_many(payload() for _ in range(min(batch, jobs - done)))

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Enqueue one by one, through the one store."""
        running = [threading.Thread(target=self.enqueue, args=(jobs // threads,)) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def claim_ack(self, jobs: int) -> None:
        """Claim and ack one by one."""
        for _ in range(jobs):
            handle = self._queue.claim_one("worker")
            check(handle is not None and handle.ack())

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Claim and ack by the batch."""
        done = 0
        while done < jobs:
            acked = self._queue.ack_batch(self._queue.claim_batch("worker", batch))
            check(acked > 0)
            done += acked

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run a worker."""
        del best

        def handle(job: Any) -> None:
            tally.one(job.payload["n"])

        worker = alkstore.Worker(self._store, {_QUEUE: handle})
        tally.when_over(worker.stop)
        worker.run(signals=False)

    def cycle(self) -> None:
        """Enqueue one; claim and ack one."""
        self._queue.enqueue(payload())
        handle = self._queue.claim_one("worker")
        if handle is not None:
            check(handle.ack())

    def claim_times(self, jobs: int) -> list[float]:
        """Time the claims."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            handle = self._queue.claim_one("worker")
            times.append(time.perf_counter() - begun)
            check(handle is not None and handle.ack())
        return times

    def lay(self, kind: str, jobs: int) -> None:
        """Bring jobs into the state that the kind names, by the front's own means."""
        match kind:
            case "ready":
                self._lay(_QUEUE, jobs)
            case "future":
                self._lay(_QUEUE, jobs, delay=86_400, priority=10)
            case "other queues":
                for number in range(10):
                    self._lay(f"other {number}", jobs // 10)
            case "leased":
                leased = self._store.queue(_QUEUE, visibility_timeout=timedelta(days=1))
                for done in range(0, jobs, _CHUNK):
                    count = min(_CHUNK, jobs - done)
                    leased.enqueue_many((payload() for _ in range(count)), priority=10)
                    check(len(leased.claim_batch("holder", count)) == count)
            case "dead":
                self._lay(_QUEUE, jobs, expires=0.001, priority=10)
                time.sleep(0.1)  # the last of them is to expire, too
                check(self._queue.sweep_expired() == jobs)
            case "expired":
                self._lay(_QUEUE, jobs, expires=0.001, priority=10)
            case _:
                raise ValueError(kind)

    def _lay(self, queue: str, jobs: int, **options: Any) -> None:
        handle = self._store.queue(queue)
        for done in range(0, jobs, _CHUNK):
            handle.enqueue_many((payload() for _ in range(min(_CHUNK, jobs - done))), **options)
