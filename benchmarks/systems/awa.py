"""awa-pg: ``Client.insert`` for one, ``enqueue_many_copy`` for many, ``AsyncClient.start`` for the worker, as its README has them.

Its tables are made by ``migrate`` and ``install_queue_storage``, its newer storage, which its README recommends and without which
there is no ``enqueue_many_copy``. Its worker runs with 256 workers on the queue where a
great many jobs count most, which did best of 10, 64 and 256, and else with the README's 4. It has no claiming by hand.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, peer
from benchmarks.systems.asynchronous import Asynchronous, over
from benchmarks.tally import Tally

_QUEUE = "bench"


@dataclasses.dataclass
class Mail:
    """The payload, as awa wants it: a class of its own, and its fields."""

    to: str
    subject: str
    n: int
    html: bool


class Awa(Asynchronous):
    """The library, its Rust core included."""

    name = "awa-pg"
    engine = "postgresql"
    requirements = "awa-pg"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect, and migrate."""
        del durability
        self.start_loop()
        self._place = place
        self._client: Any = peer("awa").Client(place)
        if create:
            self._client.migrate()
            self.run(self._install())

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        self.end_loop()

    def versions(self) -> dict[str, str]:
        """Return awa's."""
        return {"awa-pg": peer("importlib.metadata").version("awa-pg")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Insert one by one."""
        for number in range(first, first + jobs):
            self._client.insert(Mail(**payload(number)), queue=_QUEUE)

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Copy by the batch."""
        for done in range(0, jobs, batch):
            mails = [Mail(**payload()) for _ in range(min(batch, jobs - done))]
            self._client.enqueue_many_copy(mails, queue=_QUEUE)

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Insert one by one, through the one client."""
        running = [threading.Thread(target=self.enqueue, args=(jobs // threads,)) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run its workers."""
        self.run(self._work(tally, 256 if best else 4))

    async def _install(self) -> None:
        client: Any = peer("awa").AsyncClient(self._place)
        await client.install_queue_storage()
        await client.close()

    async def _work(self, tally: Tally, workers: int) -> None:
        client: Any = peer("awa").AsyncClient(self._place)

        async def handle(job: Any) -> None:
            tally.one(job.args.n)

        client.task(Mail, queue=_QUEUE)(handle)
        await client.start([(_QUEUE, workers)])
        await over(tally)
        await client.shutdown()
        await client.close()
