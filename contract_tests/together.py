"""Threads that do their calls at one moment, round after round."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

WAIT: Final = 120.0
"""Seconds after which a call is taken to hang. Generous: it judges liveness, not speed."""


class Together:
    """So many threads, that wait for one another before each round; a context manager.

    They are the same ones in every round, so that an engine with a connection per thread isn't judged by its connecting. Every
    other round is begun in the opposite order, so that neither side of a race is always first off the mark.
    """

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(size)
        self._barrier = threading.Barrier(size)
        self._backwards = False

    def all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Do the calls, one per thread, at one moment, and return what they return, in order; the first error is raised."""
        assert len(calls) == self._barrier.parties, "a call for each thread, or they wait for ever"

        def one(call: Callable[[], T]) -> T:
            self._barrier.wait(WAIT)
            return call()

        order = range(len(calls))
        running = {index: self._pool.submit(one, calls[index]) for index in (order[::-1] if self._backwards else order)}
        self._backwards = not self._backwards
        return [running[index].result(WAIT) for index in order]

    def both(self, one: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
        """Do two different calls at one moment, and return what each returns."""
        kept: list[B] = []
        first: list[A] = []
        self.all([lambda: first.append(one()), lambda: kept.append(other())])
        return first[0], kept[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._barrier.abort()
        self._pool.shutdown()


def beside(thread: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    """Start a call in another thread, and give it the time to get through, or as far as the lock that it has to wait for.

    Not a synchronisation: done already, waiting, or not yet begun are all right, and what the tests then ask holds for each.
    """
    running = thread.submit(call)
    with suppress(TimeoutError):
        running.result(timeout=0.15)
    return running
