"""Sweeping the queues now and then: what has expired, or lapsed for the last time, becomes dead (Q-5)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

from alkstore.errors import EngineError
from alkstore.store import Store
from alkstore.worker.outages import Outage
from alkstore.worker.threads import Spawn, await_end


class Sweeper:
    """One thread that sweeps. The times are spread, so that many workers don't sweep at once."""

    def __init__(self, apart: Store, queues: Iterable[str], interval: float, spawn: Spawn) -> None:
        self._apart = apart
        self._queues = tuple(queues)
        self._interval = interval
        self._over = threading.Event()
        self._outage = Outage("sweeping")
        self._thread = spawn("sweeper", self._work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Sweep no more."""
        self._over.set()
        await_end(self._thread, 1)

    def _work(self) -> None:
        wait = random.uniform(0, self._interval)
        while not self._over.wait(wait):
            wait = random.uniform(0.75, 1.25) * self._interval
            for name in self._queues:
                if self._over.is_set():
                    return
                try:
                    self._apart.queue(name).sweep_expired()
                    self._outage.over()
                except EngineError as exc:
                    self._outage.wait(exc, self._over)
