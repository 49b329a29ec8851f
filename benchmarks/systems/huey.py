"""huey with ``SqliteHuey(fsync=True)``, as its docs have it for durability: ``synchronous = FULL``.

Its worker is ``huey.create_consumer(workers=1, worker_type="thread")``, its documented default; more threads contend for the one
file. It takes a job out of the table before it runs, so that one whose worker dies is lost: at most once, which is
cheaper than what the others promise. It waits by polling, from every 0.1 s to every 10 s. It has no bulk enqueue.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, System, peer
from benchmarks.tally import Tally


class Huey(System):
    """The library with its storage in a file."""

    name = "huey"
    engine = "sqlite"
    requirements = "huey"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Make an instance, which makes its tables, and the one task."""
        del durability, create
        logging.getLogger("huey").setLevel(logging.ERROR)
        self._huey: Any = peer("huey").SqliteHuey("bench", filename=place, fsync=True, results=False)
        self._tally = Tally()

        def work(job: dict[str, Any]) -> None:
            self._tally.one(job["n"])

        self._task: Any = self._huey.task()(work)

    def close(self) -> None:
        """Close the connection."""
        self._huey.storage.close()

    def versions(self) -> dict[str, str]:
        """Return huey's."""
        return {"huey": peer("importlib.metadata").version("huey")}

    def fill(self, jobs: int) -> None:
        """Enqueue one by one."""
        self.enqueue(jobs)

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Call the task, one by one."""
        for number in range(first, first + jobs):
            self._task(payload(number))

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Call the task from so many threads."""
        running = [threading.Thread(target=self.enqueue, args=(jobs // threads,)) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def claim_ack(self, jobs: int) -> None:
        """Dequeue and execute one by one; nothing is acked."""
        for _ in range(jobs):
            self._huey.execute(self._huey.dequeue())

    def work(self, tally: Tally, *, best: bool) -> None:
        """Run a consumer."""
        del best  # it has one setting
        self._tally = tally
        consumer = self._huey.create_consumer(workers=1, worker_type="thread", periodic=False)
        consumer.start()
        tally.over.wait()
        consumer.stop()
        for _worker, thread in consumer.worker_threads:
            thread.join(5)

    def cycle(self) -> None:
        """Call the task; execute one."""
        self._task(payload())
        task = self._huey.dequeue()
        if task is not None:
            self._huey.execute(task)
