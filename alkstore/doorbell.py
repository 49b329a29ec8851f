"""Telling other processes, after a commit, that there is something to do (clauses Q-ENQ-4, Z-14).

What rings is a thread of its own: a commit has nothing to wait for, and a ring that fails fails nobody. The first ring
goes out at once; those that come while it is on its way, or within a few milliseconds of it, go out together, and the
last one is never dropped. So however many jobs are enqueued, an engine rings some two hundred times a second at most.
(On PostgreSQL each NOTIFY takes a lock of the whole database until it is committed.)

Nothing is locked: see ``helper``.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from alkstore.errors import AlkstoreError, StoreClosedError
from alkstore.helper import Helper

_LOG: Final = logging.getLogger("alkstore")

_SPACING: Final = 0.005
"""Seconds between two rings, at least."""

_IDLE: Final = 10.0
"""Seconds without a ring after which the thread ends; the next ring starts another."""

_FLUSHED_WITHIN: Final = 2.0
"""Seconds that ``flush`` waits for what is still to be rung."""

_APART: Final = 1_000
"""Rings that are kept apart; then they are put together by whoever comes, as the thread doesn't get to it."""


class Ring(Protocol):
    """What rings: ``alkstore.engine.Notifying.ring``."""

    def __call__(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Ring."""
        ...


class Doorbell:
    """The bell of one store."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._asked: Final[deque[tuple[Mapping[str, int], bool]]] = deque()
        self._helper: Final = Helper("alkstore-doorbell", self._work, lambda: bool(self._asked), _IDLE)
        self._rested = 0.0
        self._failed = False

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Have it rung; returns at once."""
        self._asked.append((dict(rings), notified))
        if len(self._asked) > _APART:
            self._asked.append(self._gather())
        if not self._helper.call():
            _LOG.debug("the doorbell has no thread to ring on")  # whoever waits polls

    def flush(self) -> None:
        """Wait until everything was rung, for a bounded time."""
        self._helper.flush(_FLUSHED_WITHIN)

    def end(self) -> None:
        """Keep no thread once all is rung: of many stores that are opened and closed in turn, each would have one."""
        self._helper.end()

    def _work(self) -> None:
        while self._asked:
            wait = self._rested - time.monotonic()
            if wait > 0:
                time.sleep(wait)  # for others to come along
            rings, notified = self._gather()
            if rings or notified:
                self._send(rings, notified=notified)
                self._rested = time.monotonic() + _SPACING

    def _gather(self) -> tuple[dict[str, int], bool]:
        """Take what is to be rung."""
        rings: dict[str, int] = {}
        notified = False
        while True:
            try:
                asked, told = self._asked.popleft()
            except IndexError:
                return rings, notified
            for queue, count in asked.items():
                rings[queue] = rings.get(queue, 0) + count
            notified |= told

    def _send(self, rings: Mapping[str, int], *, notified: bool) -> None:
        try:
            self._ring(rings, notified=notified)
            self._failed = False
        except StoreClosedError:
            _LOG.debug("the doorbell was not rung: the store was closed")
        except AlkstoreError as exc:
            # Whoever waits polls, so that this costs seconds and no job; said once per outage.
            _LOG.log(logging.DEBUG if self._failed else logging.WARNING, "the doorbell could not be rung: %s", exc)
            self._failed = True
