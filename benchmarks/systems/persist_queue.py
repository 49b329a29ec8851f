"""persist-queue's ``SQLiteAckQueue(multithreading=True)``: ``put``, ``get`` and ``ack``, as its README has them.

It leaves ``synchronous`` as SQLite has it, which is FULL, and pickles. It has no bulk put, and no worker: the one here is ``get``
with a timeout and ``ack``, as in its README. Another process's ``put`` doesn't wake it. Acked rows stay until
``clear_acked_data``, which is not called here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.payload import payload
from benchmarks.system import Durability, System, peer
from benchmarks.tally import Tally

_GLANCE = 0.1


class PersistQueue(System):
    """The library."""

    name = "persist-queue"
    engine = "sqlite"
    requirements = "persist-queue"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Open the queue, which makes its table."""
        del durability, create
        module = peer("persistqueue")
        self._empty: type[Exception] = module.Empty
        path = Path(place)
        self._queue: Any = module.SQLiteAckQueue(
            str(path.parent), db_file_name=path.name, multithreading=True, auto_resume=False
        )

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()

    def versions(self) -> dict[str, str]:
        """Return persist-queue's."""
        return {"persist-queue": peer("importlib.metadata").version("persist-queue")}

    def fill(self, jobs: int) -> None:
        """Put one by one."""
        self.enqueue(jobs)

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Put one by one."""
        for number in range(first, first + jobs):
            self._queue.put(payload(number))

    def claim_ack(self, jobs: int) -> None:
        """Get and ack one by one."""
        for _ in range(jobs):
            got = self._queue.get(block=False, raw=True)
            self._queue.ack(id=got["pqid"])

    def work(self, tally: Tally, *, best: bool) -> None:
        """Get and ack."""
        del best  # it has one setting
        while not tally.over.is_set():
            try:
                got = self._queue.get(timeout=_GLANCE, raw=True)
            except self._empty:
                continue
            tally.one(got["data"]["n"])
            self._queue.ack(id=got["pqid"])

    def claim_times(self, jobs: int) -> list[float]:
        """Time the gets."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            got = self._queue.get(block=False, raw=True)
            times.append(time.perf_counter() - begun)
            self._queue.ack(id=got["pqid"])
        return times
