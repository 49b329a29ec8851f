"""Doing something on top of the library, as signal handlers and the garbage collector do: between any two of its steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Steps:
    """How many steps of the library were taken in the block."""

    taken = 0


@contextmanager
def on_top_of(step: int | None, deed: Callable[[], object]) -> Generator[Steps]:
    """Do the deed just before that step which this thread takes in the library in the block; ``None``: only count."""
    steps = Steps()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and not str(frame.f_globals.get("__name__")).startswith(("alkstore", "threading")):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if steps.taken == step:
                deed()
            steps.taken += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)
