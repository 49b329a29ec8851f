"""Waiting for jobs, and taking them as they come (clauses W-4, S-3, Z-2, Z-11)."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from alkstore import protocols
from alkstore.errors import (
    AlkstoreError,
    EngineBusyError,
    EngineUnavailableError,
    OutcomeUnknownError,
    StoreClosedError,
)
from alkstore.waiting import Waiter

if TYPE_CHECKING:
    from alkstore.queue import Queue
    from alkstore.store import Store

_LOG: Final = logging.getLogger("alkstore")

_STOP_STEP: Final = 0.1
"""Seconds after which a consumer looks whether it is to stop: an ``Event`` wakes nobody but those who wait for it."""

_FIRST_BACKOFF: Final = 0.05
"""Seconds before a second attempt at a database that can't be reached; doubled up to the poll interval."""


def look(store: Store, queue: str) -> float | None:
    """Return in how many seconds there may be something: 0 or less for now; ``None`` where nothing waits."""
    found = store.auto_session.executor().next_due(queue, store.now())
    return None if found.due is None else (found.due - found.now) / 1_000_000


def wait_for_job(
    store: Store, waiter: Waiter, deadline: float | None, poll: float, over: Callable[[], bool], step: float
) -> bool:
    """Wait until a claim is worth trying, and say so; ``False`` when the deadline (monotonic) has passed, or it is over.

    ``poll`` is how many seconds may pass between two looks; ``over`` is asked every ``step`` seconds.
    """
    waiters, queue = store.wakes.waiters, waiter.queue
    while not over():
        store.check_open()
        if waiters.take(waiter):
            return True
        due = look(store, queue)
        promised = due is not None and due <= 0
        if promised:
            rest = waiters.pause(queue, poll)
            if rest == 0:
                return True
        else:
            waiters.nothing_due(queue)
            rest = poll * random.uniform(0.9, 1.0)
            if due is not None and waiters.is_head(waiter):
                rest = min(rest, due)
        until = time.monotonic() + rest
        waiters.sleep(waiter, until if deadline is None else min(until, deadline), over, step)
        if promised and time.monotonic() >= until:
            return True  # the pause is over
        if deadline is not None and time.monotonic() >= deadline:
            return waiters.take(waiter)
    return False


class Consumer(protocols.Consumer):
    """Gives handles as jobs become claimable."""

    def __init__(
        self, queue: Queue, store: Store, worker: str, batch: int, poll: float, stop: threading.Event | None
    ) -> None:
        self._queue = queue
        self._store = store
        self._worker = worker
        self._batch = batch
        self._poll = poll
        self._stop = stop
        self._step = _STOP_STEP if stop is not None else poll
        self._inside = threading.Lock()
        self._process = os.getpid()
        self._ready: deque[protocols.JobHandle] = deque()
        self._attending: AbstractContextManager[None] | None = None
        self._waiter: Waiter | None = None
        self._failures = 0
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> protocols.JobHandle:
        with self._inside:
            try:
                while not self._is_over():
                    self._store.check_open()
                    if self._ready:
                        return self._ready.popleft()
                    self._fill()
            except BaseException:
                self._end()
                raise
            self._end()
            raise StopIteration

    def _is_over(self) -> bool:
        return self._closed or self._process != os.getpid() or (self._stop is not None and self._stop.is_set())

    def _fill(self) -> None:
        """Claim, or wait until a claim is worth trying."""
        store, waiters = self._store, self._store.wakes.waiters
        try:
            if self._attending is None:
                attending = store.wakes.attending()
                attending.__enter__()
                self._attending = attending
            waiter = self._waiter
            if waiter is None:
                waiter = self._waiter = waiters.enter(self._queue.name)
            elif not wait_for_job(store, waiter, None, self._poll, self._is_over, self._step):
                return
            waiters.take(waiter)
            handles = self._queue.claim_batch(self._worker, self._batch)
        except (EngineUnavailableError, EngineBusyError, OutcomeUnknownError) as exc:
            self._back_off(exc)
            return
        self._failures = 0
        if handles:
            self._waiter = None
            waiters.leave(waiter, more=len(handles) == self._batch)
            self._ready.extend(handles)

    def _back_off(self, exc: AlkstoreError) -> None:
        # Nothing happened, or what was claimed lapses: it may be tried again. Said once per outage.
        level = logging.DEBUG if self._failures else logging.WARNING
        _LOG.log(level, "consuming %r waits for the database: %s", self._queue.name, exc)
        longest = min(self._poll, _FIRST_BACKOFF * 2.0 ** min(self._failures, 20))
        self._failures += 1
        waiters = self._store.wakes.waiters
        if self._waiter is None:
            self._waiter = waiters.enter(self._queue.name)
        until = time.monotonic() + random.uniform(0.5, 1.0) * longest
        waiters.sleep(self._waiter, until, self._is_over, self._step)

    def close(self) -> None:
        """End it; from another thread, too, while its own waits."""
        self._closed = True
        waiter = self._waiter
        if waiter is not None and self._process == os.getpid():
            self._store.wakes.waiters.rouse(waiter)
        if self._inside.acquire(blocking=False):  # else its own thread is in there, and comes out
            try:
                self._end()
            finally:
                self._inside.release()

    def _end(self) -> None:
        """Give back what was claimed and not handed out, and stand in no line any more."""
        self._closed = True
        if self._process != os.getpid():
            self._ready.clear()  # the parent's
            return
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._store.wakes.waiters.leave(waiter, more=False)
        attending, self._attending = self._attending, None
        if attending is not None:
            attending.__exit__(None, None, None)
        while self._ready:
            handle = self._ready.popleft()
            try:
                handle.release()
            except StoreClosedError:
                _LOG.debug("job %d of %r could not be released: the store was closed", handle.id, handle.queue)
            except AlkstoreError:
                # It lapses, and is claimed again; the exception that ends the loop is the one to go up.
                _LOG.warning("job %d of %r could not be released", handle.id, handle.queue, exc_info=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A loop that was left by break, and nothing else refers to.
        self.close()
