"""SIGTERM and SIGINT while a worker runs: the first stops it, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that stop a worker."""

in_force: Final[list[Callable[[], None]]] = []
"""What puts the signals back for which this process has handlers of a worker's. A fork's child does: it is no worker, and
whoever has forked it, multiprocessing for one, may have nothing but a SIGTERM to end it by."""

_forking: Final = threading.local()


class Signals:
    """A block in which the signals are the worker's."""

    def __init__(self, stop: Callable[[], None], kill: Callable[[], None], wake: int, *, enabled: bool) -> None:
        """Call ``stop`` at the first, and ``kill`` at the second, before this process ends; both from a signal's handler.

        ``wake`` is a descriptor that doesn't block. At each signal a byte is written to it, by the interpreter and at once: a
        signal that another thread was given, or that came just before this one began to wait, ends no wait by itself.
        """
        self._stop = stop
        self._kill = kill
        self._wake = wake
        self._woken_before = -1
        self._enabled = enabled and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._count = 0

    def __enter__(self) -> None:
        if self._enabled:
            in_force.append(self.put_back)
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._handle)
            self._woken_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            self.put_back()
            in_force.remove(self.put_back)

    def put_back(self) -> None:
        """Have the signals be whose they were before."""
        signal.set_wakeup_fd(self._woken_before)
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            self._kill()
            os._exit(128 + number)
        self._stop()


# --- forks -----------------------------------------------------------------------------------------------------------


def _before_fork() -> None:
    # Held back meanwhile: one that came before they are put back would do nothing, or be forgotten.
    if in_force:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _after_fork_here() -> None:
    mask: set[int] | None = getattr(_forking, "mask", None)
    if mask is not None:
        _forking.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_there() -> None:
    while in_force:
        in_force.pop()()
    _after_fork_here()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_here, after_in_child=_after_fork_there)
