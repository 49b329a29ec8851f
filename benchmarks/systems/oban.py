"""oban for Python: ``Oban.enqueue``, ``enqueue_many`` and an instance with ``queues``, as its documentation has them.

Its worker runs with a limit of 256 on the queue where a great many jobs count most, else with the documentation's 10.
It has no claiming by hand. It needs Python 3.12.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, peer
from benchmarks.systems.asynchronous import Asynchronous, over
from benchmarks.tally import Tally

_QUEUE = "bench"


class Oban(Asynchronous):
    """The library."""

    name = "oban"
    engine = "postgresql"
    requirements = "oban"
    python = (3, 12)

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect, install its tables, and make the one worker class."""
        del durability
        self.start_loop()
        self._module: Any = peer("oban")
        logging.getLogger("oban").setLevel(logging.ERROR)
        self._tally = Tally()
        adapter = self

        class Bench:
            async def process(self, job: Any) -> None:
                adapter._tally.one(job.args["n"])

        self._worker: Any = self._module.worker(queue=_QUEUE)(Bench)
        self.run(self._open(place, create=create))

    def close(self) -> None:
        """Disconnect."""
        self.run(self._close())
        self.end_loop()

    def versions(self) -> dict[str, str]:
        """Return its and its driver's."""
        version = peer("importlib.metadata").version
        return {name: version(name) for name in ("oban", "psycopg")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Enqueue one by one."""
        self.run(self._enqueue(jobs, first))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Enqueue by the batch."""
        self.run(self._enqueue_many(jobs, batch))

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run an instance with the queue."""
        self._tally = tally
        self.run(self._work(tally, 256 if best else 10))

    async def _open(self, place: str, *, create: bool) -> None:
        self._pool: Any = await self._module.Oban.create_pool(place)
        if create:
            await peer("oban.schema").install(self._pool)
        self._client: Any = self._module.Oban(pool=self._pool)
        await self._client.start()

    async def _close(self) -> None:
        await self._client.stop()
        await self._pool.close()

    async def _enqueue(self, jobs: int, first: int) -> None:
        for number in range(first, first + jobs):
            await self._client.enqueue(self._worker.new(payload(number)))

    async def _enqueue_many(self, jobs: int, batch: int) -> None:
        for done in range(0, jobs, batch):
            await self._client.enqueue_many([self._worker.new(payload()) for _ in range(min(batch, jobs - done))])

    async def _work(self, tally: Tally, limit: int) -> None:
        instance: Any = self._module.Oban(pool=self._pool, name="worker", queues={_QUEUE: limit})
        await instance.start()
        await over(tally)
        await asyncio.wait_for(instance.stop(), 30)
