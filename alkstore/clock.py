"""Instants and durations: checked at the door, and whole microseconds from there on.

Engines get and give ``int``s: an instant is microseconds since 1970-01-01 UTC, a duration is microseconds. Integers
compare and add exactly on every database, where intervals with days, session time zones and 8-byte floats don't.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from alkstore.errors import ValidationError, shown

Duration: TypeAlias = timedelta | int | float
"""A ``timedelta``, or a number of seconds."""

Micros: TypeAlias = int
"""Microseconds: since 1970-01-01 UTC for an instant, or of length for a duration."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = 1_000_000
LONGEST: Final = timedelta(days=36_525)
"""The longest duration, 100 years (Z-1)."""

_INSTANT_END: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // MICROSECOND
_CLOCK_END: Final = _INSTANT_END - LONGEST // MICROSECOND


def duration(value: object, name: str, *, positive: bool = False) -> Micros:
    """Return a duration in microseconds, to the nearest one.

    Raises ``ValidationError`` naming the argument ``name`` for a wrong type (``bool`` included), NaN, an infinity, a
    negative duration, one over 100 years, and with ``positive`` also for one that rounds to zero (Z-1).
    """
    wanted = f"{name} must be a timedelta or a number of seconds"
    if isinstance(value, timedelta):
        span = value
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValidationError(f"{wanted}, not {type(value).__name__}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValidationError(f"{wanted}, and finite, not {value}")
    elif value > LONGEST.total_seconds():
        raise ValidationError(f"{name} must be at most 100 years")
    elif value < 0:
        raise ValidationError(f"{name} must not be negative")
    else:
        # timedelta rounds half to even and splits off the fraction first: multiplying by 1e6 would be off by one.
        span = timedelta(seconds=value)
    if span < timedelta(0):
        raise ValidationError(f"{name} must not be negative")
    if span > LONGEST:
        raise ValidationError(f"{name} must be at most 100 years")
    micros = span // MICROSECOND
    if positive and micros == 0:
        raise ValidationError(f"{name} must be over 0 (one microsecond at least)")
    return micros


def instant(value: object, name: str) -> Micros:
    """Return an instant in microseconds since 1970-01-01 UTC.

    Raises ``ValidationError`` naming the argument ``name`` for anything that is not a timezone-aware ``datetime``
    within the years 1970 to 9999 (UTC).
    """
    if not isinstance(value, datetime):
        raise ValidationError(f"{name} must be a timezone-aware datetime, not {type(value).__name__}")
    try:
        aware = value.utcoffset() is not None
    except Exception as exc:
        raise ValidationError(f"{name} has a time zone that doesn't work: {exc!r}") from exc
    if not aware:
        raise ValidationError(f"{name} must be timezone-aware, and {shown(value)} has no time zone")
    micros = (value - EPOCH) // MICROSECOND
    if not 0 <= micros <= _INSTANT_END:
        raise ValidationError(f"{name} must lie within the years 1970 to 9999, not {shown(value)}")
    return micros


def reading(clock: Callable[[], datetime]) -> Micros:
    """Read a store's ``clock=``.

    Raises ``ValidationError`` where it gives no aware ``datetime`` from 1970 to the end of 9899-12-30: a century is kept
    free so that now plus any duration is still a ``datetime``.
    """
    micros = instant(clock(), "what clock= returns")
    if micros > _CLOCK_END:
        raise ValidationError("what clock= returns must lie between 1970-01-01 and the end of 9899-12-30")
    return micros


def host_now() -> Micros:
    """Return the host's clock, for engines whose database has none of its own."""
    return time.time_ns() // 1_000


def to_datetime(micros: Micros) -> datetime:
    """Return the instant as an aware ``datetime`` in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def to_timedelta(micros: Micros) -> timedelta:
    """Return the duration as a ``timedelta``."""
    return timedelta(microseconds=micros)
