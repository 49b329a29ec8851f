"""What a fork does to connections, and how a store survives it (S-4).

A child inherits the very sockets of the parent's connections. Whatever it sent on one would reach the parent's
session: a Terminate message from a close or from the garbage collector ends it, under TLS as a broken record. And as long as
the child holds a copy of a socket, the server doesn't see the parent's death, so that the parent's transaction and
its locks would outlive it. So in the child every inherited descriptor is made one of /dev/null instead: whatever is
written there goes nowhere, and the copy of the socket is closed. The connection objects are kept, unused, until the child
ends; the pool begins anew, with locks of its own.

A connection that another thread is just making can't be found that way: libpq has its descriptor and nobody else. So a
fork waits until none is being made, for a bounded time.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Protocol

from alkstore.monitor import Monitor

_CALM_WITHIN: Final = 5.0
"""Seconds that a fork waits for connections that are being made."""


class Forkable(Protocol):
    """What is told of forks."""

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all open connections."""
        ...

    def begin_anew(self) -> None:
        """In the child, its descriptors made harmless: leave what was inherited alone, and start with nothing."""
        ...


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


class _Gate:
    """Connections that are being made keep forks waiting, for a bounded time."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self._changed = Monitor()
        self._connecting = 0

    @contextmanager
    def connecting(self) -> Generator[None]:
        """Hold forks off while a connection is made."""
        counted = False
        try:
            with self._changed:
                self._connecting += 1
                counted = True
            yield
        finally:
            if counted:
                with self._changed:
                    self._connecting -= 1
                    self._changed.notify_all()

    def close(self) -> None:
        self._changed.acquire()
        # Past that time the fork goes ahead: better a descriptor too many in the child than a process that stands still.
        self._changed.wait_for(lambda: self._connecting == 0, _CALM_WITHIN)

    def open(self) -> None:
        self._changed.release()


_gate: Final = _Gate()
connecting: Final = _gate.connecting


def survive(pool: Forkable) -> None:
    """Have the pool told of forks, for as long as it lives."""
    _known.add(pool)


def _after_in_child() -> None:
    # The threads that hold or wait for the parent's locks don't exist here: all are made anew, none is released.
    _gate.begin_anew()
    pools = list(_known)
    descriptors = [descriptor for pool in pools for descriptor in pool.descriptors()]
    if descriptors:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)
    for pool in pools:
        pool.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_gate.close, after_in_parent=_gate.open, after_in_child=_after_in_child)
