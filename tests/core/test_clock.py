"""Instants and durations, as pure functions (Z-1)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore import clock
from alkstore.clock import EPOCH, LONGEST, MICROSECOND, duration, instant, reading, to_datetime, to_timedelta
from alkstore.errors import ValidationError

LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@given(st.timedeltas(timedelta(0), LONGEST))
def test_a_timedelta_is_taken_exactly(span: timedelta) -> None:
    """There and back."""
    assert span == to_timedelta(duration(span, "delay"))


@given(st.integers(0, 36_525 * 86_400))
def test_whole_seconds_are_taken_exactly(seconds: int) -> None:
    """As ``int``, and as ``float`` where it holds them."""
    assert seconds * 1_000_000 == duration(seconds, "delay") == duration(float(seconds), "delay")


@given(st.floats(0, LONGEST.total_seconds()))
def test_seconds_are_taken_to_the_nearest_microsecond(seconds: float) -> None:
    """Of the very number that the float stands for."""
    exact = Fraction(seconds) * 1_000_000
    assert abs(duration(seconds, "delay") - exact) <= Fraction(1, 2) + Fraction(1, 1_000)


@pytest.mark.parametrize(
    "value",
    [
        *[-1, -1e-9, math.nan, math.inf, -math.inf, True, False, "1", None, b"1", 1j, [1], 10**400, 1e300],
        *[LONGEST + MICROSECOND, -MICROSECOND, timedelta.max, timedelta.min, datetime(2031, 1, 1, tzinfo=UTC)],
    ],
    ids=repr,
)
def test_what_is_no_duration_is_refused_by_name(value: object) -> None:
    """The argument's name is in the message."""
    with pytest.raises(ValidationError, match=r"^delay must"):
        duration(value, "delay")


@pytest.mark.parametrize("value", [0, 0.0, -0.0, timedelta(0), 4e-7])
def test_nothing_is_a_duration_unless_it_has_to_be_over_0(value: timedelta | float) -> None:
    """Judged after rounding."""
    assert 0 == duration(value, "delay")
    with pytest.raises(ValidationError, match="over 0"):
        duration(value, "extend", positive=True)
    assert 1 == duration(6e-7, "extend", positive=True)


def test_100_years_are_the_longest() -> None:
    """In either unit."""
    assert 36_525 * 86_400 * 1_000_000 == duration(LONGEST, "delay") == duration(LONGEST.total_seconds(), "delay")


zones = st.sampled_from([UTC, *[timezone(timedelta(minutes=minutes)) for minutes in (-1439, -480, 345, 1439)]])


@given(st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29), timezones=zones))  # noqa: DTZ001 - bounds are naive
def test_an_instant_is_taken_exactly(when: datetime) -> None:
    """There and back, in UTC."""
    back = to_datetime(instant(when, "run_at"))

    assert when == back
    assert UTC is back.tzinfo


@pytest.mark.parametrize("when", [EPOCH, LAST, LAST - MICROSECOND, EPOCH + MICROSECOND])
def test_the_first_and_the_last_instant_are_taken(when: datetime) -> None:
    """The ends are included."""
    assert when == to_datetime(instant(when, "run_at"))


class Undecided(tzinfo):
    """A time zone that doesn't say its offset."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize(
    "value",
    [
        datetime(2031, 1, 1),  # noqa: DTZ001 - that is the point
        datetime(2031, 1, 1, tzinfo=Undecided()),
        EPOCH - MICROSECOND,
        EPOCH.replace(tzinfo=timezone(timedelta(hours=1))),
        LAST.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        1_900_000_000,
        "2031-01-01",
        None,
        EPOCH.date(),
    ],
    ids=str,
)
def test_what_is_no_instant_is_refused_by_name(value: object) -> None:
    """Naive, out of range, or no ``datetime``."""
    with pytest.raises(ValidationError, match=r"^run_at must"):
        instant(value, "run_at")


@pytest.mark.parametrize(
    "source",
    [lambda: datetime(2031, 1, 1), lambda: 5, lambda: LAST, lambda: EPOCH - MICROSECOND],  # noqa: DTZ001
    ids=["naive", "a number", "in the last century", "before 1970"],
)
def test_a_clock_that_gives_something_else_is_refused(source: Callable[[], datetime]) -> None:
    """Now plus any duration has to be a ``datetime`` still."""
    with pytest.raises(ValidationError, match="clock="):
        reading(source)


def test_a_clock_may_say_what_its_error_says_that_it_may() -> None:
    """To the microsecond."""
    last = datetime(9899, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)
    assert (last - EPOCH) // MICROSECOND == reading(lambda: last)
    with pytest.raises(ValidationError, match="the end of 9899-12-30"):
        reading(lambda: last + MICROSECOND)


def test_a_clock_in_any_zone_is_read_in_microseconds() -> None:
    """Since 1970, UTC."""
    when = datetime(1970, 1, 1, 1, 0, 0, 7, tzinfo=timezone(timedelta(hours=1)))
    assert 7 == reading(lambda: when)


def test_the_hosts_clock_is_the_systems() -> None:
    """In microseconds since 1970, between two readings of the same."""
    before = time.time_ns() // 1_000
    now = clock.host_now()
    assert before <= now <= time.time_ns() // 1_000
