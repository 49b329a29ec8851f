"""What is to be done once something is committed, and not before: telling hooks, the test kit's drains.

A session is asked for it (``Session.after_commit``). Whether it is done at once, after the commit, or by a framework that tells
of its own commits is for the frame to know that the session lies in. Wakes wait for the same commit beside it: those of one
transaction are rung together, and even where its outcome isn't known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

Deed: TypeAlias = Callable[[], None]


def do_all(deeds: Sequence[Deed]) -> None:
    """Do them in their order, each of them, whatever another raises; raises the last exception, with the others behind it."""
    with ExitStack() as stack:
        for deed in reversed(deeds):
            stack.callback(deed)
