"""Doing something on top of the library, as signal handlers and the garbage collector do: between any two of its steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class StruckError(BaseException):
    """What a handler raises, as Ctrl-C does: nothing that anybody expects."""


class Steps:
    """How many steps of the library were taken in the block."""

    taken = 0


@contextmanager
def on_top_of(step: int | None, deed: Callable[[], object]) -> Generator[Steps]:
    """Do the deed just before that step which this thread takes in the library in the block; ``None``: only count."""
    steps = Steps()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and not _is_the_librarys(frame):
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


@contextmanager
def struck_at(step: int | None) -> Generator[Steps]:
    """Have a signal's handler raise ``StruckError`` at that place of the library in the block; ``None``: only count them.

    Counted is where CPython runs handlers: where a function begins, and where a call of one in C has returned; in the library,
    and in whatever it calls. What is raised in a finalizer nobody gets to see, so that those are left out.
    """
    steps = Steps()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event not in {"call", "c_return"} or not _is_within_the_library(frame):
            return
        steps.taken += 1
        if steps.taken - 1 == step:
            sys.setprofile(None)  # a handler isn't run on top of itself
            raise StruckError

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield steps
    finally:
        sys.setprofile(before)


def _is_within_the_library(frame: FrameType) -> bool:
    within = False
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_name == "__del__":
            return False
        within = within or _is_the_librarys(outer)
        outer = outer.f_back
    return within


def _is_the_librarys(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("alkstore", "threading"))
