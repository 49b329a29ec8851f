"""The retry curve, as a pure function (J-7)."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from alkstore.backoff import delay_bounds, draw_delay

attempts = st.one_of(st.integers(1, 100), st.integers(1, 2**31 - 1))
bases = st.one_of(st.integers(1, 4_000), st.integers(1, 2**31 - 1))
caps = st.integers(1, 3_600)


@given(st.integers(1, 2_000), bases, caps)
@example(1, 1, 1)
@example(12, 1, 3_600)
@example(13, 1, 3_600)
@example(1, 2**31 - 1, 1)
def test_the_bounds_are_those_of_the_formula(attempt: int, base: int, cap: int) -> None:
    """top = min(cap, base * 2**(attempt - 1)), and the least is the half of it, rounded up."""
    top = min(cap, base * 2 ** (attempt - 1))
    assert (-(-top // 2), top) == delay_bounds(attempt, base, cap)


@given(attempts, bases, caps)
@example(2**31 - 1, 1, 3_600)
@example(10**12, 1, 3_600)
def test_a_draw_is_a_whole_number_within_the_bounds(attempt: int, base: int, cap: int) -> None:
    """For any attempt, without overflow or delay."""
    low, high = delay_bounds(attempt, base, cap)

    seconds = draw_delay(attempt, base, cap)

    assert int is type(seconds)
    assert 1 <= low <= seconds <= high <= cap


@given(attempts, bases, caps)
def test_the_curve_never_falls(attempt: int, base: int, cap: int) -> None:
    """A further attempt, a greater base or a greater cap never shortens the delay's bounds."""
    here = delay_bounds(attempt, base, cap)
    for steeper in [(attempt + 1, base, cap), (attempt, base + 1, cap), (attempt, base, cap + 1)]:
        low, high = delay_bounds(*steeper)
        assert here[0] <= low
        assert here[1] <= high


def test_the_tops_of_the_default_curve() -> None:
    """5, 10, 20, ... 2,560, and 3,600 from then on."""
    assert [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600] == [
        delay_bounds(attempt, 5, 3_600)[1] for attempt in range(1, 13)
    ]


def test_the_draw_is_uniform_with_both_ends() -> None:
    """Each of the 9 delays from 8 to 16 is expected 1,000 times of 9,000: 200 off would be 6.7 standard deviations."""
    counts = Counter(draw_delay(3, 4, 3_600) for _ in range(9_000))

    assert set(range(8, 17)) == set(counts)
    assert all(800 <= count <= 1_200 for count in counts.values()), counts


def test_an_application_that_seeds_random_changes_nothing() -> None:
    """Neither the draws nor the application's own sequence."""
    random.seed(1)
    expected = random.random()
    random.seed(1)
    first = [draw_delay(20, 5, 3_600) for _ in range(20)]
    assert expected == random.random()
    random.seed(1)
    assert first != [draw_delay(20, 5, 3_600) for _ in range(20)]
