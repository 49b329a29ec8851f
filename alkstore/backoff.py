"""The retry curve (clause J-7): exponential, capped, and jittered over its upper half.

For attempt n (from 1), base b and cap c, in whole seconds: ``top = min(c, b * 2**(n - 1))``, and the delay is drawn
uniformly from the integers ``ceil(top / 2)`` to ``top``, both included. This is "equal jitter" as described in the
AWS Architecture Blog, "Exponential Backoff And Jitter" (Marc Brooker, 2015): half of the delay is certain, so that a
retry is never immediate, and half is spread, so that jobs that failed together don't come back together.
"""

from __future__ import annotations

import random
from typing import Final

from alkstore.clock import SECOND, Micros
from alkstore.records import JobRow

# The system's generator has no state: nothing for a fork to copy into every child, and an application that seeds
# `random` for its own ends neither changes the jitter nor has its sequence changed by it.
_RANDOM: Final = random.SystemRandom()


def delay_bounds(attempt: int, base: int, cap: int) -> tuple[int, int]:
    """Return the least and the greatest delay after the given attempt, in whole seconds (J-7)."""
    doublings = attempt - 1
    # base >= 1, so that from cap.bit_length() doublings on the cap always wins; no huge integer is ever built.
    top = cap if doublings >= cap.bit_length() else min(cap, base << doublings)
    return (top + 1) // 2, top


def draw_delay(attempt: int, base: int, cap: int) -> int:
    """Draw the delay after the given attempt, in whole seconds (J-7)."""
    return _RANDOM.randint(*delay_bounds(attempt, base, cap))


def pause(first: float, longest: float, failures: int, least: float = 0.5) -> float:
    """Draw how many seconds to wait after so many failures before this one: doubled each time, up to ``longest``.

    ``least`` is the part of it that is certain.
    """
    return random.uniform(least, 1.0) * min(longest, first * 2.0 ** min(failures, 20))


def draw_for(row: JobRow) -> Micros:
    """Draw the delay after a claimed job's attempt, by its own curve (J-4)."""
    return draw_delay(row.attempts, row.backoff_base, row.backoff_cap) * SECOND
