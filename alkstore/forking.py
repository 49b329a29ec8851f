"""What a forked child makes anew: whatever another thread of the parent may have had locked just then (clause S-4).

That thread doesn't exist in the child, so that nobody there would ever let go of the lock. Nor can the child do it: what the lock
guards may be half changed. So whoever keeps a lock in something that a child can come upon says here how it is made anew, and with
it what it guards. The engines have to do more, and in an order of their own: see ``fork`` in each.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_renewals: Final[dict[weakref.ref[Any], Callable[[Any], None]]] = {}


def survive(thing: T, renew: Callable[[T], None]) -> None:
    """Have it done to the thing in a fork's child, before anything else is done there; for as long as it lives."""
    _renewals[weakref.ref(thing, _renewals.pop)] = renew  # one step, as in ``helper``


def _after_in_child() -> None:
    for reference, renew in list(_renewals.items()):
        thing = reference()
        if thing is not None:
            renew(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
