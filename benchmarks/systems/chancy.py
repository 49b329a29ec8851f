"""chancy: ``sync_push``, ``sync_push_many``, and ``Worker``, as its documentation has them.

For a great many jobs its worker runs the executor that its documentation recommends for short ones,
``Chancy.Executor.Async``, 256 at a time, which did better than threads; else the same with its
default concurrency. It has no claiming by hand. Installed with psycopg's C parts, as psycopg's documentation recommends.
"""

from __future__ import annotations

import logging
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, peer
from benchmarks.systems.asynchronous import Asynchronous, over
from benchmarks.tally import Tally

_QUEUE = "default"
_working: list[Tally] = []


async def handle(*, n: int, **_rest: Any) -> None:
    """Handle a job: chancy finds it by its module and name."""
    _working[-1].one(n)


class Chancy(Asynchronous):
    """The library."""

    name = "chancy"
    engine = "postgresql"
    requirements = "chancy"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect, migrate, and declare the queue."""
        del durability
        self.start_loop()
        self._place = place
        self._module: Any = peer("chancy")
        logging.getLogger("chancy").setLevel(logging.ERROR)
        if create:
            self.run(self._create())
        self._app: Any = self._make()
        self._app.sync_pool.open()

    def close(self) -> None:
        """Disconnect."""
        self._app.sync_pool.close()
        self.end_loop()

    def versions(self) -> dict[str, str]:
        """Return its and its driver's."""
        version = peer("importlib.metadata").version
        return {name: version(name) for name in ("chancy", "psycopg")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Push one by one."""
        for number in range(first, first + jobs):
            self._app.sync_push(self._job(number))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Push by the batch."""
        for _ in self._app.sync_push_many([self._job() for _ in range(jobs)], batch_size=batch):
            pass

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run its worker."""
        _working[:] = [tally]
        self.run(self._work(tally, best=best))

    def _make(self) -> Any:
        return self._module.Chancy(self._place, log=logging.getLogger("chancy"))

    def _job(self, number: int = 0) -> Any:
        return self._module.Job.from_func(handle, kwargs=payload(number), queue=_QUEUE)

    async def _create(self) -> None:
        async with self._make() as app:
            await app.migrate()

    async def _work(self, tally: Tally, *, best: bool) -> None:
        async with self._make() as app:
            executor = self._module.Chancy.Executor.Async
            options: dict[str, Any] = {"concurrency": 256, "eager_polling": True} if best else {}
            await app.declare(self._module.Queue(_QUEUE, executor=executor, **options), upsert=True)
            worker: Any = self._module.Worker(app, register_signal_handlers=False)
            await worker.start()
            await over(tally)
            await worker.stop()
