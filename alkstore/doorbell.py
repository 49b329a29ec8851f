"""Telling other processes, after a commit, that there is something to do (clauses Q-ENQ-4, Z-14).

What rings is a thread of its own: a commit has nothing to wait for, and a ring that fails fails nobody. The first ring
goes out at once; those that come while it is on its way, or within a few milliseconds of it, go out together, and the
last one is never dropped. So however many jobs are enqueued, an engine rings some two hundred times a second at most.
(On PostgreSQL each NOTIFY takes a lock of the whole database until it is committed.)
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from alkstore.errors import AlkstoreError

_LOG: Final = logging.getLogger("alkstore")

_SPACING: Final = 0.005
"""Seconds between two rings, at least."""

_IDLE: Final = 10.0
"""Seconds without a ring after which the thread ends; the next ring starts another."""

_FLUSHED_WITHIN: Final = 2.0
"""Seconds that ``flush`` waits for what is still to be rung."""


class Ring(Protocol):
    """What rings: ``alkstore.engine.Notifying.ring``."""

    def __call__(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Ring."""
        ...


class Doorbell:
    """The bell of one store."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._changed = threading.Condition()
        self._rings: dict[str, int] = {}
        self._notified = False
        self._running = False
        self._sending = False
        self._failed = False
        self._process = os.getpid()
        _open.add(self)

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:
        """Have it rung; returns at once."""
        with self._changed:
            for queue, count in rings.items():
                self._rings[queue] = self._rings.get(queue, 0) + count
            self._notified |= notified
            if self._running:
                self._changed.notify_all()
                return
            thread = threading.Thread(target=self._work, name="alkstore-doorbell", daemon=True)
            try:
                thread.start()
                self._running = True
            except RuntimeError:  # no thread can be had, or the interpreter is ending: whoever waits polls
                _LOG.debug("the doorbell has no thread to ring on", exc_info=True)

    def flush(self) -> None:
        """Wait until everything was rung, for a bounded time."""
        if self._process != os.getpid():
            return  # its thread is the parent's
        with self._changed:
            self._changed.wait_for(
                lambda: not (self._running and (self._rings or self._notified or self._sending)), _FLUSHED_WITHIN
            )

    def _work(self) -> None:
        rested = 0.0
        while True:
            with self._changed:
                self._sending = False
                self._changed.notify_all()
                if not self._changed.wait_for(lambda: self._rings or self._notified, _IDLE):
                    self._running = False
                    return
            wait = rested - time.monotonic()
            if wait > 0:
                time.sleep(wait)  # for others to come along
            with self._changed:
                rings, self._rings = self._rings, {}
                notified, self._notified = self._notified, False
                self._sending = True
            self._send(rings, notified=notified)
            rested = time.monotonic() + _SPACING

    def _send(self, rings: Mapping[str, int], *, notified: bool) -> None:
        try:
            self._ring(rings, notified=notified)
            self._failed = False
        except AlkstoreError as exc:
            # Whoever waits polls, so that this costs seconds and no job; said once per outage.
            _LOG.log(logging.DEBUG if self._failed else logging.WARNING, "the doorbell could not be rung: %s", exc)
            self._failed = True


_open: Final[weakref.WeakSet[Doorbell]] = weakref.WeakSet()


def _at_exit() -> None:
    for bell in list(_open):
        bell.flush()


atexit.register(_at_exit)
