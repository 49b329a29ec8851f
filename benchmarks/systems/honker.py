"""honker: ``Queue.enqueue``, ``claim_batch`` and ``ack_batch``, as its README and docs pages on queues have them.

Its worker is the documented ``async for job in queue.claim(worker)`` loop with ``job.ack()``; where a great many jobs count
most, ``claim_batch(worker, 100)`` and ``ack_batch``, which it documents for that. In bulk: ``enqueue(..., tx=tx)`` within one
``db.transaction()``. It runs SQLite with ``synchronous = NORMAL``, and documents no other way. Its wheel brings a library of
SQLite that needs a recent C library; where that is too old, the environment is made with the machine's own SQLite in its
place, see ``environments``.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from benchmarks.payload import payload
from benchmarks.system import Durability, System, peer
from benchmarks.tally import Tally

_DAY = 86_400
_BATCH = 100


class Honker(System):
    """The library, its Rust core included."""

    name = "honker"
    engine = "sqlite"
    durabilities: ClassVar[tuple[Durability, ...]] = ("normal",)
    requirements = "honker"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Open the database, which makes its tables."""
        del durability, create
        self._database: Any = peer("honker").open(place)
        self._queue: Any = self._database.queue("bench")

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def versions(self) -> dict[str, str]:
        """Return honker's and its SQLite's."""
        sqlite = self._database.query("SELECT sqlite_version() AS version")[0]["version"]
        return {"honker": peer("importlib.metadata").version("honker"), "its SQLite": sqlite}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Enqueue one by one."""
        for number in range(first, first + jobs):
            self._queue.enqueue(payload(number))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Enqueue in transactions."""
        for done in range(0, jobs, batch):
            with self._database.transaction() as tx:
                for _ in range(min(batch, jobs - done)):
                    self._queue.enqueue(payload(), tx=tx)

    def claim_ack(self, jobs: int) -> None:
        """Claim and ack one by one."""
        for _ in range(jobs):
            self._queue.claim_one("worker").ack()

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Claim and ack by the batch."""
        done = 0
        while done < jobs:
            claimed = self._queue.claim_batch("worker", batch)
            done += self._queue.ack_batch([job.id for job in claimed], "worker")

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run the documented loop, or the one by batches."""
        if best:
            self._work_in_batches(tally)
        else:
            asyncio.run(self._work_singly(tally))

    def cycle(self) -> None:
        """Enqueue one; claim and ack one."""
        self._queue.enqueue(payload())
        job = self._queue.claim_one("worker")
        if job is not None:
            job.ack()

    def claim_times(self, jobs: int) -> list[float]:
        """Time the claims."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            job = self._queue.claim_one("worker")
            times.append(time.perf_counter() - begun)
            job.ack()
        return times

    def lay(self, kind: str, jobs: int) -> None:
        """Lay ready jobs, or such as are due tomorrow."""
        match kind:
            case "ready":
                options: dict[str, Any] = {}
            case "future":
                options = {"run_at": int(time.time()) + _DAY, "priority": 10}
            case _:
                raise ValueError(kind)
        for done in range(0, jobs, 10_000):
            with self._database.transaction() as tx:
                for _ in range(min(10_000, jobs - done)):
                    self._queue.enqueue(payload(), tx=tx, **options)

    def _work_in_batches(self, tally: Tally) -> None:
        while not tally.over.is_set():
            claimed = self._queue.claim_batch("worker", _BATCH)
            for job in claimed:
                tally.one(job.payload["n"])
            self._queue.ack_batch([job.id for job in claimed], "worker")

    async def _work_singly(self, tally: Tally) -> None:
        async def work() -> None:
            async for job in self._queue.claim("worker"):
                tally.one(job.payload["n"])
                job.ack()

        loop, task = asyncio.get_running_loop(), asyncio.create_task(work())

        def end() -> None:
            loop.call_soon_threadsafe(task.cancel)

        tally.when_over(end)
        await asyncio.wait([task])
