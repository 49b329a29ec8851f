"""Leaving a ``with`` block so that what it has open ends, wherever a signal's handler raises (clauses T-1, T-5).

A ``with`` statement calls ``__exit__`` once. A handler that raises as that begins keeps it from doing anything, and nobody calls it
again; what was entered stays open, as the name behind ``as``, and the frames of the exception on its way up, still refer to it.

But the statement has ``__exit__`` itself from before the block begins until it has been called. So it is given one that nothing
else refers to, and the end of that is seen: by a weak reference, so that there is nothing to do, and no place for a handler to
raise in vain, where the block was left as it should be.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol


class Leavable(Protocol):
    """What is entered by ``with``, and ends when the block is left."""

    statement: Statement | None
    """What sees the statement let go of it; ``None`` where there is none, or nothing is left to do."""

    @property
    def entered(self) -> bool:
        """Whether a block of it has begun."""
        ...

    def abandon(self) -> None:
        """End what is still open, without a word; called when the statement is over, and whenever it may be needed."""
        ...


class Statement(weakref.ref["partial[Any]"]):
    """The ``with`` statement, as far as it is seen: it has the ``partial``."""

    __slots__ = ("_entered",)

    _entered: weakref.ref[Leavable]

    @classmethod
    def over(cls, exit_: partial[Any], entered: Leavable) -> Statement:
        """Return what abandons it as soon as the statement is over, unless it is forgotten before."""
        statement = cls(exit_, _let_go)
        statement._entered = weakref.ref(entered)
        return statement

    def let_go(self) -> None:
        """Abandon what was entered."""
        entered = self._entered()
        if entered is not None:
            entered.abandon()


def _let_go(statement: weakref.ref[Any]) -> None:
    assert isinstance(statement, Statement)  # noqa: S101 - nothing else has it for its callback
    statement.let_go()


class Leaving:
    """``__exit__`` of something ``Leavable``, as a ``with`` statement asks for it: before it enters."""

    def __init__(self, leave: Callable[..., None]) -> None:
        """Leave by the function, of the instance and ``__exit__``'s own arguments."""
        self._leave: Final = leave

    def __get__(self, entered: Leavable | None, kind: type | None = None) -> Callable[..., None]:
        """Return the function, or what calls it for the instance."""
        if entered is None:
            return self._leave
        # Not a method: the interpreter takes those apart, and lets go of them, before it calls the function.
        exit_ = partial(self._leave, entered)
        if not entered.entered:  # else it is no statement that asks
            entered.statement = Statement.over(exit_, entered)
        return exit_
