"""A clock that the tests set, to pass as ``clock=``: time stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

MICROSECOND: Final = timedelta(microseconds=1)

START: Final = datetime(2031, 5, 6, 7, 8, 9, 123_457, tzinfo=UTC)
"""Where the clock stands at first: years from the real now, so that an engine which asks another clock is found out,
and with microseconds, so that one which rounds is."""


class Clock:
    """A settable clock, safe to share by threads."""

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._now = start

    def __call__(self) -> datetime:
        """Return the instant at which the clock stands: this is what ``clock=`` is called for."""
        with self._lock:
            return self._now

    def set(self, instant: datetime) -> None:
        """Put the clock to an instant, forwards or backwards."""
        with self._lock:
            self._now = instant

    def advance(self, span: timedelta | float) -> datetime:
        """Move the clock by a ``timedelta`` or a number of seconds, backwards if negative; return the new instant."""
        step = span if isinstance(span, timedelta) else timedelta(seconds=span)
        with self._lock:
            self._now += step
            return self._now
