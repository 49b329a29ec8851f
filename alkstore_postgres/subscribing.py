"""What one listener of a store gets, kept for it until it is asked for (clauses W-1, W-2)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from alkstore.engine import Subscription
from alkstore.errors import AlkstoreError
from alkstore.helper import take_first
from alkstore.monitor import Monitor
from alkstore.records import GAP, Notification

_KEPT: Final = 10_000
"""Notifications that are kept for a listener who doesn't take them; then the oldest are lost, and he is told (W-2)."""

_LOOK_AROUND: Final = 1.0
"""Seconds that a listener sleeps at most: a signal that comes just before the interpreter waits is only handled afterwards."""


class QueuedSubscription(Subscription):
    """One listener, and what has come for it."""

    def __init__(self, forget: Callable[[QueuedSubscription], None], channels: Mapping[str, str]) -> None:
        """``forget`` is called when it is closed."""
        self._forget = forget
        self.channels: Final = channels
        """The names, by the server's."""
        self._changed = Monitor()
        self._ready: deque[Notification] = deque()
        self._closed = False
        self._error: AlkstoreError | None = None

    def get(self, timeout: float | None) -> Notification | None:
        """Return the next one."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                left = _LOOK_AROUND if until is None else min(until - time.monotonic(), _LOOK_AROUND)
                self._changed.wait_for(lambda: bool(self._ready) or self._closed or self._error is not None, left)
                if self._closed:
                    return None
                error = None if self._ready else self._error
            found = take_first(self._ready)  # not in the block above, whose end is a place for a handler to raise
            if found is not None:
                return found
            if error is not None:
                raise error
            if until is not None and until <= time.monotonic():
                return None

    def put(self, notification: Notification) -> None:
        """Add one; where too many lie here, the oldest make room."""
        with self._changed:
            if len(self._ready) >= _KEPT:
                self._ready.popleft()
                if not self._ready[0].gap:
                    self._ready[0] = GAP
            self._ready.append(notification)
            self._changed.notify_all()

    def fail(self, error: AlkstoreError) -> None:
        """Have ``get`` raise, once it has given what came before."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """End it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._forget(self)

    def disown(self) -> None:
        """In a forked child: it is the parent's."""
        self._changed = Monitor()
        self._closed = True
