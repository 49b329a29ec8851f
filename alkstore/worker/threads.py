"""The threads of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

Spawn: TypeAlias = Callable[[str, Callable[[], None]], threading.Thread]
"""Makes a thread of a worker's, by its name and what it does, not started: where it fails, the worker stops, and says why."""


def await_end(thread: threading.Thread, seconds: float) -> None:
    """Wait for its end, so long at most; not where it was never started, as there was none to be had."""
    if thread.ident is not None:
        thread.join(seconds)
