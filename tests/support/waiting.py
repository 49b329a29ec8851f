"""Waiting on a real condition, with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE = 0.02
"""Seconds between two looks: short against anything the tests wait for, long enough not to burn a core."""


def wait_until(predicate: Callable[[], T], timeout: float, what: str) -> T:
    """Look until `predicate` returns something true, and return that.

    `timeout` is in seconds; `what` completes the sentence "waited 5 s for ...". Raises TimeoutError when the
    deadline passes. The predicate is called at least once, and once more after the last pause, so that a
    machine that stalls doesn't turn a true condition into a failure.
    """
    deadline = time.monotonic() + timeout
    while True:
        last_look = time.monotonic() >= deadline
        value = predicate()
        if value:
            return value
        if last_look:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(_PAUSE)
