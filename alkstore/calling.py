"""Calling hooks, so that nothing they do reaches whoever is told of (see ``telling`` for when, and of what).

What one raises is logged, and told to those that have a ``hook_failed``, to be counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from alkstore.hooks import HookFailed, Hooks
from alkstore.texts import describe

if TYPE_CHECKING:
    from alkstore.worker.job import RunningJob

_LOG: Final = logging.getLogger("alkstore")


class Method(NamedTuple):
    """One hook's method, that it has of its own."""

    hook: str
    """Its class."""
    name: str
    call: Callable[[Any], Any]


Methods: TypeAlias = tuple[Method, ...]


class Calls:
    """Calls the hooks of one store."""

    def __init__(self, hooks: Sequence[Hooks], *, interruptible: bool) -> None:
        """``interruptible``: what a signal's handler raises, Ctrl-C say, goes up: it comes on the main thread."""
        self._hooks = hooks
        self._interruptible = interruptible
        self._failed = self.of("hook_failed")

    def of(self, name: str) -> Methods:
        """Return the method of each hook that has one of its own."""
        methods = [(hook, getattr(hook, name)) for hook in self._hooks]
        return tuple(
            Method(type(hook).__qualname__, name, method)
            for hook, method in methods
            if getattr(method, "__func__", None) is not getattr(Hooks, name)
        )

    def tell(self, methods: Methods, event: object) -> None:
        """Call each, whatever another raises."""
        for method in methods:
            with self.guard(method):
                method.call(event)

    def guard(self, method: Method) -> AbstractContextManager[None]:
        """Return a block out of which nothing comes that a hook raises."""
        return _Guard(self, method)

    def is_interrupted(self, error: BaseException) -> bool:
        """Whether it may have come from a signal's handler, on top of the hook."""
        here = self._interruptible and threading.current_thread() is threading.main_thread()
        return here and not isinstance(error, Exception)

    def around(self, running: Methods, job: RunningJob) -> AbstractContextManager[object]:
        """Return the hooks' blocks around one handler."""
        return _Around(self, running, job)

    def failed(self, method: Method, error: BaseException) -> None:
        """Log what a hook raised, and tell of it; not of one that can't bear to be told."""
        _LOG.warning("a hook failed: %s.%s", method.hook, method.name, exc_info=error)
        if self._failed and method.name != "hook_failed":
            self.tell(self._failed, HookFailed(hook=method.hook, method=method.name, error=describe(error)))

    def failed_elsewhere(self, event: HookFailed) -> None:
        """The same of what a hook's deputy raised in another process, which has logged where."""
        _LOG.warning("a hook failed: %s.%s: %s", event.hook, event.method, event.error)
        self.tell(self._failed, event)


class _Guard(AbstractContextManager[None]):
    """A block out of which nothing comes that a hook raises."""

    __slots__ = ("_calls", "_method")

    def __init__(self, calls: Calls, method: Method) -> None:
        self._calls = calls
        self._method = method

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """See to what was raised; but let go up what a signal's handler raised."""
        if value is None or self._calls.is_interrupted(value):
            return False
        self._calls.failed(self._method, value)
        return True


class _Around:
    """The blocks of the hooks around one handler, each within the one before it."""

    __slots__ = ("_blocks", "_calls", "_job", "_running")

    def __init__(self, calls: Calls, running: Methods, job: RunningJob) -> None:
        self._calls = calls
        self._running = running
        self._job = job
        self._blocks: list[tuple[Method, AbstractContextManager[object]]] = []

    def __enter__(self) -> Self:
        """Enter them; one that fails is left out."""
        for method in self._running:
            with self._calls.guard(method):
                block: AbstractContextManager[object] | None = method.call(self._job)
                if block is not None:
                    block.__enter__()
                    self._blocks.append((method, block))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave them with what the handler raised, which goes on up whatever they say of it."""
        while self._blocks:
            method, block = self._blocks.pop()
            try:
                block.__exit__(kind, value, trace)
            except BaseException as exc:  # noqa: BLE001 - whatever it is: the handler has ended, and what it did is told
                if exc is not value:  # a block that raises the handler's own again only lets it go up
                    self._calls.failed(method, exc)
