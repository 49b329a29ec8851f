"""What one listener of a store gets, kept for it until it is asked for (clauses W-1, W-2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from alkstore.engine import Subscription
from alkstore.errors import AlkstoreError
from alkstore.monitor import Monitor
from alkstore.records import Notification

_KEPT: Final = 10_000
"""Notifications that are kept for a listener who doesn't take them; then the oldest are lost, and he is told (W-2)."""

GAP: Final = Notification(channel="", payload="", gap=True)
"""Something may have been lost."""


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
        with self._changed:
            self._changed.wait_for(lambda: bool(self._ready) or self._closed or self._error is not None, timeout)
            if self._closed:
                return None
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
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
