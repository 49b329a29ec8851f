"""A lock with a way to wait for changes, for threads in which a signal's handler may raise at any moment.

``threading.Condition`` is written in Python, and the interpreter runs handlers between the steps of that: one that raises
after the lock was taken and before the block has begun leaves it locked for ever. (CPython looks for signals when a function
begins, after each call of one in C, and at each turn of a loop; not between a lock's own ``__enter__`` and its block.)
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Final


class Monitor:
    """Entered by ``with``; whoever has entered may wait there for a change, the others being let in meanwhile.

    It may be entered again by the thread that is in it: what the collector finds may be there to be closed.
    """

    __slots__ = ("_lock", "_waiting", "acquire", "release")

    def __init__(self) -> None:
        self._lock: Final = threading.RLock()
        self.acquire: Final[Callable[..., bool]] = self._lock.acquire
        self.release: Final[Callable[[], None]] = self._lock.release
        self._waiting: Final[deque[threading.Lock]] = deque()

    if TYPE_CHECKING:

        def __enter__(self) -> bool: ...

        def __exit__(
            self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        # The lock's own, without a step of Python's between: the property and the getter are written in C, too.
        __enter__ = property(attrgetter("_lock.__enter__"))
        __exit__ = property(attrgetter("_lock.__exit__"))

    def notify_all(self) -> None:
        """Wake all who wait."""
        while self._waiting:
            self._waiting.popleft().release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until somebody notifies, for ``timeout`` seconds at most, and say whether somebody did.

        For a thread that has entered once.
        """
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        told = False
        try:
            self._lock.release()
            told = turn.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))
        finally:
            self._lock.acquire()
            if not told and turn in self._waiting:
                self._waiting.remove(turn)
        return told

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the condition holds, looked at after each notice, and say whether it does; after so long in any case."""
        until = None if timeout is None else time.monotonic() + timeout
        while not (found := condition()):
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found
