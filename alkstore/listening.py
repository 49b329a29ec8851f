"""Listeners: whatever is notified on some channels, in the order of the commits (clauses W-1 to W-3)."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from alkstore import protocols
from alkstore.clock import Duration, duration
from alkstore.engine import Subscription
from alkstore.errors import ValidationError
from alkstore.names import check_name
from alkstore.records import Notification

if TYPE_CHECKING:
    from alkstore.store import Store

PAYLOAD_BYTES: Final = 7_000
"""Longest payload of a notification, in bytes of UTF-8 (W-1)."""


def check_notification(channel: object, payload: object) -> tuple[str, str]:
    """Return both as plain texts; raise ``ValidationError`` for what can't be sent."""
    name = check_name(channel, "channel name")
    if not isinstance(payload, str):
        raise ValidationError(f"payload must be a str, not {type(payload).__name__}")
    text = str.__str__(payload)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValidationError("payload must not contain lone surrogates") from None
    if size > PAYLOAD_BYTES:
        raise ValidationError(f"payload must have at most {PAYLOAD_BYTES} bytes of UTF-8, not {size}")
    if "\0" in text:
        raise ValidationError("payload must not contain NUL")
    return name, text


class Listener(protocols.Listener):
    """What one listener gets."""

    def __init__(self, store: Store, subscription: Subscription) -> None:
        self._store = store
        self._subscription = subscription
        self._closed = False

    def get(self, timeout: Duration | None = None) -> Notification | None:
        """Return the next notification."""
        self._store.check_open()
        seconds = None if timeout is None else duration(timeout, "timeout") / 1_000_000
        return None if self._closed else self._subscription.get(seconds)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notification:
        found = None if self._closed else self.get()
        if found is None:  # it is closed by now, or the parent's of the process that this one was forked from
            raise StopIteration
        return found

    def close(self) -> None:
        """End it."""
        self._closed = True
        self._subscription.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
