"""procrastinate: ``task.defer``, ``task.batch_defer`` and ``run_worker_async``, as its documentation has them.

Its worker runs with a concurrency of 30 where a great many jobs count most, else with its default of 1; jobs stay in the
table as done, which is its default. It has no claiming by hand. Installed with psycopg's C parts, as psycopg's documentation
recommends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, peer
from benchmarks.systems.asynchronous import Asynchronous, over
from benchmarks.tally import Tally


class Procrastinate(Asynchronous):
    """The library."""

    name = "procrastinate"
    engine = "postgresql"
    requirements = "procrastinate"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect, apply its schema, and make the one task."""
        del durability
        self.start_loop()
        self._place = place
        self._module: Any = peer("procrastinate")
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._tally = Tally()
        self._app: Any = self._module.App(connector=self._module.SyncPsycopgConnector(conninfo=place))

        async def handle(*, n: int, **_rest: Any) -> None:
            self._tally.one(n)

        self._task: Any = self._app.task(name="bench", queue="bench")(handle)
        self._app.open()
        if create:
            self._app.schema_manager.apply_schema()

    def close(self) -> None:
        """Disconnect."""
        self._app.close()
        self.end_loop()

    def versions(self) -> dict[str, str]:
        """Return its and its driver's."""
        version = peer("importlib.metadata").version
        return {name: version(name) for name in ("procrastinate", "psycopg")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Defer one by one."""
        for number in range(first, first + jobs):
            self._task.defer(**payload(number))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Defer by the batch."""
        for done in range(0, jobs, batch):
            self._task.batch_defer(*(payload() for _ in range(min(batch, jobs - done))))

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run its worker."""
        self._tally = tally
        self.run(self._work(tally, 30 if best else 1))

    async def _work(self, tally: Tally, concurrency: int) -> None:
        app = self._app.with_connector(self._module.PsycopgConnector(conninfo=self._place))
        async with app.open_async():
            running = asyncio.create_task(app.run_worker_async(concurrency=concurrency, install_signal_handlers=False))
            ended = asyncio.create_task(over(tally))
            await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            ended.cancel()
