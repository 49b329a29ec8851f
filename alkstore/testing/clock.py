"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from alkstore.clock import Duration, duration, instant, to_datetime, to_timedelta
from alkstore.forking import survive


class FrozenClock:
    """What ``alkstore.open(clock=...)`` takes, standing still; any thread may move it, and read it.

    A store that goes by it finds due what is due at that instant: a delay of an hour is over after ``clock.tick(3600)``. Waits
    go by real time all the same (Z-11).
    """

    def __init__(self, start: datetime | None = None) -> None:
        """Stand at ``start``, by default at the instant at which it is made; ``ValidationError`` for a naive one."""
        self._begin_anew()
        self._now = to_datetime(instant(datetime.now(UTC) if start is None else start, "start"))
        survive(self, FrozenClock._begin_anew)

    def _begin_anew(self) -> None:
        """When it is made, and in a fork's child: nobody moves it."""
        self._moving = threading.Lock()

    def __repr__(self) -> str:
        return f"FrozenClock({self._now.isoformat()})"

    def __call__(self) -> datetime:
        """Return where it stands."""
        return self._now

    @property
    def now(self) -> datetime:
        """Where it stands, in UTC."""
        return self._now

    def tick(self, span: Duration) -> datetime:
        """Move it on by a ``timedelta`` or a number of seconds, and return where it stands then.

        Raises ``ValidationError`` for a negative one: ``move_to`` goes back, too.
        """
        step = to_timedelta(duration(span, "span"))
        with self._moving:
            self._now += step
            return self._now

    def move_to(self, when: datetime) -> datetime:
        """Put it to an instant, forwards or backwards, and return that; ``ValidationError`` for a naive one."""
        moved = to_datetime(instant(when, "when"))
        with self._moving:
            self._now = moved
            return moved
