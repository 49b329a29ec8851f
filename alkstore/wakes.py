"""What wakes whom: the store's own waiters at once, those of other processes through the engine (clauses W-4, Z-14)."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from alkstore.doorbell import Doorbell
from alkstore.engine import Engine, Notifying
from alkstore.waiting import Waiters


class Rings:
    """What a transaction is to ring once it is committed."""

    __slots__ = ("notified", "queues")

    def __init__(self) -> None:
        self.queues: dict[str, int] = {}
        """By queue, how many jobs can be had; 0: something may be due sooner."""
        self.notified = False
        """Something was sent to listeners."""

    def add(self, queue: str, count: int) -> None:
        """Note jobs of a queue."""
        self.queues[queue] = self.queues.get(queue, 0) + count

    def __bool__(self) -> bool:
        return bool(self.queues) or self.notified


class Wakes:
    """The wakes of one store."""

    def __init__(self, engine: Engine) -> None:
        self._notifying = cast(Notifying, engine) if engine.capabilities.notify else None
        self._begin()
        _open.add(self)

    def _begin(self) -> None:
        self.waiters = Waiters()
        """Who waits in this store."""
        self._bell = None if self._notifying is None else Doorbell(self._notifying.ring)
        self._process = os.getpid()

    def ring(self, rings: Mapping[str, int], *, notified: bool = False) -> None:
        """Tell of what was just committed."""
        waiters = self.waiters
        for queue, count in rings.items():
            if count:
                waiters.wake(queue, count)
            else:
                waiters.stir(queue)
        if self._bell is not None:
            self._bell.ring(rings, notified=notified)

    @contextmanager
    def attending(self) -> Generator[None]:
        """Hear what others ring, for as long as the block lasts."""
        notifying = self._notifying
        if notifying is None:
            yield
            return
        notifying.attend(self._heard)
        process = self._process
        try:
            yield
        finally:
            if process == os.getpid():  # else it was the parent's attendance
                notifying.leave()

    def _heard(self, queue: str | None, count: int) -> None:
        if queue is not None and count:
            self.waiters.wake(queue, count)
        else:
            self.waiters.stir(queue)

    def close(self) -> None:
        """Ring what is still to be rung, and send everybody away who waits."""
        self.waiters.close()
        if self._bell is not None:
            self._bell.flush()

    def begin_anew(self) -> None:
        """In a fork's child: nobody waits here, and nothing is on its way; locks may be held by threads of the parent."""
        self._begin()


_open: Final[weakref.WeakSet[Wakes]] = weakref.WeakSet()


def _after_in_child() -> None:
    for wakes in list(_open):
        wakes.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
