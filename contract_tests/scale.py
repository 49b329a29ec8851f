"""How much the suite does: one setting for every number of rounds and of examples.

``ALKSTORE_TEST_SCALE`` multiplies them all: 0.1 by default, for a run of a minute or two; 1 for a soak.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SCALE_VARIABLE = "ALKSTORE_TEST_SCALE"
DEFAULT_SCALE = 0.1


def scale() -> float:
    """Return the scale that the environment asks for; raise ``ValueError`` for what isn't a number over 0."""
    text = os.environ.get(SCALE_VARIABLE, "").strip()
    try:
        value = float(text) if text else DEFAULT_SCALE
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{SCALE_VARIABLE} must be a number over 0, such as 0.1 or 1, not {text!r}")
    return value


def rounds(n: int) -> int:
    """Return how many of ``n`` rounds to do at this scale: one at least."""
    return max(1, round(n * scale()))


def examples(n: int) -> settings:
    """Return Hypothesis settings, to decorate a test with, for ``n`` examples at scale 1.

    They are the test's own, so that the profile of an author's other tests is neither needed nor changed. No deadline:
    a database on a busy machine is slow at times, and that is no failure. The fixtures of a test are shared by its examples,
    which is why every example takes a queue of its own.
    """
    return settings(
        max_examples=rounds(n),
        deadline=None,
        derandomize=False,
        print_blob=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
