"""litequeue: ``put``, ``pop`` and ``done``, as its README has them; it sets ``synchronous = NORMAL`` itself.

In bulk: ``put`` within its ``transaction()``. It has no worker, so the one here is the loop that its README shows, ``pop`` and
``done`` while there is something, and a look every 50 ms when there isn't: it has nothing to wait on.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from benchmarks.payload import encoded
from benchmarks.system import Durability, System, peer
from benchmarks.tally import Tally

_POLL = 0.05


class LiteQueue(System):
    """The library."""

    name = "litequeue"
    engine = "sqlite"
    durabilities: ClassVar[tuple[Durability, ...]] = ("normal",)
    requirements = "litequeue"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Open the queue, which makes its table."""
        del durability, create
        self._queue: Any = peer("litequeue").LiteQueue(place)

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()

    def versions(self) -> dict[str, str]:
        """Return litequeue's."""
        return {"litequeue": peer("importlib.metadata").version("litequeue")}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Put one by one."""
        for number in range(first, first + jobs):
            self._queue.put(encoded(number).decode())

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Put in transactions."""
        for done in range(0, jobs, batch):
            with self._queue.transaction(mode="IMMEDIATE"):
                for _ in range(min(batch, jobs - done)):
                    self._queue.put(encoded().decode())

    def claim_ack(self, jobs: int) -> None:
        """Pop one by one."""
        for _ in range(jobs):
            self._done(self._queue.pop())

    def work(self, tally: Tally, *, best: bool) -> None:
        """Pop while there is something, and look again."""
        del best  # it has one setting
        while not tally.over.is_set():
            message = self._queue.pop()
            if message is None:
                tally.over.wait(_POLL)
                continue
            tally.one(peer("json").loads(message.data)["n"])
            self._done(message)

    def cycle(self) -> None:
        """Put one; pop one."""
        self.enqueue(1)
        message = self._queue.pop()
        if message is not None:
            self._done(message)

    def claim_times(self, jobs: int) -> list[float]:
        """Time the pops."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            message = self._queue.pop()
            times.append(time.perf_counter() - begun)
            self._done(message)
        return times

    def lay(self, kind: str, jobs: int) -> None:
        """Lay ready jobs; it knows no others."""
        if kind != "ready":
            raise ValueError(kind)
        self.enqueue_many(jobs, 10_000)

    def _done(self, message: Any) -> None:
        if hasattr(message, "claim_id"):  # as in its versions for Python 3.12 and later
            self._queue.done(message.message_id, claim_id=message.claim_id)
        else:
            self._queue.done(message.message_id)
