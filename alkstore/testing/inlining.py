"""Running tasks as soon as they are enqueued."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Final, cast

from alkstore.errors import ValidationError
from alkstore.frames import Frame
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.testing.draining import drain


class _Inline:
    """Drains after each enqueue; in a transaction, after its commit."""

    def __init__(self, tasks: Tasks, *, raise_errors: bool) -> None:
        self._tasks = tasks
        self._raise_errors = raise_errors
        self._here: Final = threading.local()

    def enqueued(self, store: Store, frame: Frame | None) -> None:
        """Run what is due, now or after the commit."""
        if frame is None:
            self._drain(store)
        else:
            frame.root.after_commit(partial(self._drain, store))

    def _drain(self, store: Store) -> None:
        # What a task enqueues itself is done by the drain that the task runs in.
        if not getattr(self._here, "draining", False):
            self._here.draining = True
            try:
                drain(store, self._tasks.handlers(), raise_errors=self._raise_errors)
            finally:
                self._here.draining = False


@contextmanager
def inline(tasks: Tasks, *, raise_errors: bool = True) -> Generator[None]:
    """Within the block, a task that is enqueued is run before ``enqueue`` returns; in a transaction, at its commit.

    It is enqueued first, then claimed, run and settled by ``drain``: so its arguments have been through the same checks and
    through JSON, one with a ``delay`` isn't run before its time, and one that fails is in the store as it would be. What
    a task enqueues itself is run after it. Where its transaction rolls back, it isn't run. On a driver's own
    connection that was joined, nobody tells of the commit: call ``drain`` after it.

    ``raise_errors``: what a task raises comes out of ``enqueue``, or of the transaction's block after the commit. Raises
    ``ValidationError`` for anything else than tasks.
    """
    if not isinstance(cast(object, tasks), Tasks):
        raise ValidationError(f"tasks must be the tasks, not {type(tasks).__name__}")
    before = tasks.on_enqueue
    tasks.on_enqueue = _Inline(tasks, raise_errors=raise_errors).enqueued
    try:
        yield
    finally:
        tasks.on_enqueue = before
