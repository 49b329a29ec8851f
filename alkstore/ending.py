"""What is to be done before a process ends (clauses Q-ENQ-4, Z-14).

``atexit`` isn't enough: a process of ``multiprocessing``'s that was forked, by a server or not, ends without it. That module has
finalizers of its own for those, and forgets in such a process all that were made before it began. So it is told by whoever
makes something there that is to be brought to an end, and not before.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Final

_LAST: Final = -100
"""Among the finalizers: the application's own may still enqueue."""

_deeds: Final[list[Callable[[], None]]] = []
_told_in = 0
"""The process in which it was seen to that they are done."""


def at_end(deed: Callable[[], None], *, first: bool = False) -> None:
    """Have it done at the end of each process that has called ``see_to_the_end``, ``first`` or after the others."""
    _deeds.insert(0 if first else len(_deeds), deed)


def see_to_the_end() -> None:
    """Have all of them done at the end of this process. Costs nothing when it was seen to."""
    global _told_in  # noqa: PLW0603 - one step, and doing it twice does no harm
    process = os.getpid()
    if _told_in == process:
        return
    if "multiprocessing.util" in sys.modules:
        from multiprocessing import process as processes
        from multiprocessing import util

        if processes.parent_process() is not None:
            util.Finalize(None, _at_end, exitpriority=_LAST)
    _told_in = process


def _at_end() -> None:
    for deed in _deeds:
        deed()


atexit.register(_at_end)
