"""PgQueuer over asyncpg on uvloop: ``Queries.enqueue``, with lists in bulk, and ``PgQueuer.run``, as its README has them.

Its worker runs with ``batch_size=500`` where a great many jobs count most, which did best of 100, 500 and 1,000, and else with its
default of 10. Claiming by hand is with ``Queries.dequeue`` and ``Queries.log_jobs``, its own worker's two calls.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta
from typing import Any

from benchmarks.payload import encoded
from benchmarks.system import Durability, peer
from benchmarks.systems.asynchronous import Asynchronous, over
from benchmarks.tally import Tally

_ENTRYPOINT = "bench"
_BATCH = 500
_CHUNK = 10_000


class PgQueuer(Asynchronous):
    """The library."""

    name = "pgqueuer"
    engine = "postgresql"
    requirements = "pgqueuer"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect, and install its tables."""
        del durability
        self.start_loop(peer("uvloop").new_event_loop)
        self._place = place
        self._me = uuid.uuid4()
        parameter = peer("pgqueuer.ports.repository").EntrypointExecutionParameter
        self._entrypoints = {_ENTRYPOINT: parameter(concurrency_limit=0)}
        self.run(self._open(create=create))

    def close(self) -> None:
        """Disconnect."""
        self.run(self._connection.close())
        self.end_loop()

    def versions(self) -> dict[str, str]:
        """Return its and its driver's."""
        version = peer("importlib.metadata").version
        return {name: version(name) for name in ("pgqueuer", "asyncpg", "uvloop")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Enqueue one by one."""
        self.run(self._enqueue(jobs, first))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Enqueue lists."""
        self.run(self._enqueue_many(jobs, batch))

    def claim_ack(self, jobs: int) -> None:
        """Dequeue and log one by one."""
        self.run(self._claim(jobs, 1))

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Dequeue and log by the batch."""
        self.run(self._claim(jobs, batch))

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run its worker."""
        self.run(self._work(tally, _BATCH if best else 10))

    def cycle(self) -> None:
        """Enqueue one; dequeue and log one."""
        self.run(self._cycle())

    def claim_times(self, jobs: int) -> list[float]:
        """Time the dequeues."""
        return self.run(self._claim(jobs, 1))

    def lay(self, kind: str, jobs: int) -> None:
        """Lay ready jobs, or such as are due tomorrow."""
        match kind:
            case "ready":
                self.run(self._enqueue_many(jobs, _CHUNK))
            case "future":
                self.run(self._enqueue_many(jobs, _CHUNK, timedelta(days=1), 10))
            case _:
                raise ValueError(kind)

    async def _open(self, *, create: bool) -> None:
        self._connection: Any = await peer("asyncpg").connect(self._place)
        self._driver: Any = peer("pgqueuer.db").AsyncpgDriver(self._connection)
        self._queries: Any = peer("pgqueuer.queries").Queries(self._driver)
        if create:
            await self._queries.install()

    async def _enqueue(self, jobs: int, first: int) -> None:
        for number in range(first, first + jobs):
            await self._queries.enqueue(_ENTRYPOINT, encoded(number))

    async def _enqueue_many(self, jobs: int, batch: int, delay: timedelta | None = None, priority: int = 0) -> None:
        for done in range(0, jobs, batch):
            count = min(batch, jobs - done)
            payloads = [encoded() for _ in range(count)]
            delays = None if delay is None else [delay] * count
            await self._queries.enqueue([_ENTRYPOINT] * count, payloads, [priority] * count, delays)

    async def _claim(self, jobs: int, batch: int) -> list[float]:
        times: list[float] = []
        done = 0
        while done < jobs:
            begun = time.perf_counter()
            claimed: list[Any] = await self._dequeue(batch)
            times.append(time.perf_counter() - begun)
            if not claimed:
                raise RuntimeError("a job that was enqueued could not be claimed")
            await self._queries.log_jobs([(job, "successful", None) for job in claimed])
            done += len(claimed)
        return times

    async def _dequeue(self, batch: int) -> Any:
        return await self._queries.dequeue(
            batch_size=batch,
            entrypoints=self._entrypoints,
            queue_manager_id=self._me,
            global_concurrency_limit=None,
            heartbeat_timeout=timedelta(seconds=30),
        )

    async def _cycle(self) -> None:
        await self._queries.enqueue(_ENTRYPOINT, encoded())
        claimed = await self._dequeue(1)
        if claimed:
            await self._queries.log_jobs([(job, "successful", None) for job in claimed])

    async def _work(self, tally: Tally, batch: int) -> None:
        # A worker closes its driver when it ends, so it has a connection to itself.
        connection = await peer("asyncpg").connect(self._place)
        worker: Any = peer("pgqueuer").PgQueuer(peer("pgqueuer.db").AsyncpgDriver(connection))
        loads = peer("json").loads

        async def handle(job: Any) -> None:
            tally.one(loads(job.payload)["n"])

        worker.entrypoint(_ENTRYPOINT)(handle)
        loop = peer("asyncio").get_running_loop()
        tally.when_over(lambda: loop.call_soon_threadsafe(worker.shutdown.set))
        await worker.run(batch_size=batch)
        await over(tally)
        await connection.close()
