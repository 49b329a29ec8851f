"""Waiting for jobs, and taking them as they come (clauses W-4, S-3, Z-2, Z-11).

**Giving back.** A consumer that ends releases what it has claimed and not given. That is work on the database, and it is ended
in places where there must be none: in a signal handler, on top of a call of the library that has the write lock or the
only connection; or by the garbage collector, on top of anything. Waiting there for a lock would be waiting for oneself. So where
this thread is in the middle of a call of the library, or has a transaction open, another thread gives back, once it can,
and nobody waits for it. Everywhere else it is done when ``close`` returns.

What ends a consumer changes the consumer's own state by steps that are atomic each (see ``helper``), and locks nothing.
"""

from __future__ import annotations

import inspect
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from alkstore import protocols
from alkstore.backoff import pause
from alkstore.ending import at_end, see_to_the_end
from alkstore.errors import (
    AlkstoreError,
    EngineBusyError,
    EngineUnavailableError,
    OutcomeUnknownError,
    StoreClosedError,
)
from alkstore.forking import survive
from alkstore.helper import Flag, Register
from alkstore.records import ReleaseRef
from alkstore.waiting import Waiter, Waiters

if TYPE_CHECKING:
    from alkstore.queue import Queue
    from alkstore.store import Store

T = TypeVar("T")

_LOG: Final = logging.getLogger("alkstore")

_STOP_STEP: Final = 0.1
"""Seconds after which a consumer looks whether it is to stop: an ``Event`` wakes nobody but those who wait for it."""

_FIRST_BACKOFF: Final = 0.05
"""Seconds before a second attempt at a database that can't be reached; doubled up to the poll interval."""

_GIVEN_BACK_WITHIN: Final = 1.0
"""Seconds that dropping a consumer waits for what it gives back."""


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
    waiters, queue, fell_due = store.wakes.waiters, waiter.queue, False
    while not over():
        store.check_open()
        told = waiters.take(waiter)
        if told or fell_due:
            moment = waiters.stand_back(waiter)
            if told and not moment:
                return True
            _sleep(waiters, waiter, moment, deadline, over, step)
        due, is_head = look(store, queue), waiters.is_head(waiter)  # who becomes the head later is stirred
        rest, promised, falls_due = poll * random.uniform(0.9, 1.0), False, False
        if due is None or due > 0:
            waiters.nothing_due(queue)
            if due is not None and is_head and due <= rest:
                rest, falls_due = due, True
        else:
            held_back = waiters.pause(queue)
            if told or held_back == 0:  # what he was told is his, whoever is the head
                return True
            if is_head:
                rest, promised = held_back, True
        until = _sleep(waiters, waiter, rest, deadline, over, step)
        if promised and time.monotonic() >= until:
            return True  # the pause is over
        fell_due = falls_due and time.monotonic() >= until
        if fell_due:
            waiters.fell_due(waiter)
        if deadline is not None and time.monotonic() >= deadline:
            return waiters.take(waiter)
    return False


def _sleep(
    waiters: Waiters, waiter: Waiter, seconds: float, deadline: float | None, over: Callable[[], bool], step: float
) -> float:
    """Sleep until something is told, at most for so long, and not beyond the deadline; return when that would be over."""
    until = time.monotonic() + seconds
    waiters.sleep(waiter, until if deadline is None else min(until, deadline), over, step)
    return until


class Consumer(protocols.Consumer):
    """Gives handles as jobs become claimable."""

    _made = False
    """A signal's handler may raise in the middle of making one, and ``__del__`` is called then, too."""

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
        self._begin_anew()
        self._process = os.getpid()
        self._ready: deque[protocols.JobHandle] = deque()
        self._attending: deque[AbstractContextManager[None]] = deque()
        """At most one, taken in one step by whoever is to end it."""
        self._waiter: Waiter | None = None
        self._failures = 0
        self._closed = False
        self._made = True
        _open.add(self)
        survive(self, Consumer._begin_anew)
        see_to_the_end()

    def _begin_anew(self) -> None:
        """When it is made, and in a fork's child, where it has ended: nobody is asking."""
        self._inside = threading.RLock()
        """One thread at a time asks for the next; whoever ends it doesn't take this."""
        self._asked = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> protocols.JobHandle:
        with self._inside:
            if self._asked:
                raise RuntimeError("a handler asks for the next job on top of a call that is about to give it")
            try:
                self._asked = True
                while not self._is_over():
                    self._store.check_open()
                    with suppress(IndexError):  # there is none, or somebody ended it just now
                        return self._ready.popleft()
                    # Not while that is being handled: an error on the way would have it, and this frame, as its context.
                    self._fill()
            except BaseException:
                self._end()
                raise
            finally:
                self._asked = False
            self._end()
            raise StopIteration

    def _is_over(self) -> bool:
        return self._closed or self._process != os.getpid() or (self._stop is not None and self._stop.is_set())

    def _fill(self) -> None:
        """Claim, or wait until a claim is worth trying.

        Whatever it takes on after somebody has ended the consumer, ``__next__`` gives back: it looks again, and ends it, too.
        """
        store, waiters = self._store, self._store.wakes.waiters
        try:
            if not self._attending:
                attending = store.wakes.attending()
                attending.__enter__()
                self._attending.append(attending)
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
            self._ready.extend(handles)
            self._waiter = None
            waiters.leave(waiter, more=len(handles) == self._batch)

    def _back_off(self, exc: AlkstoreError) -> None:
        # Nothing happened, or what was claimed lapses: it may be tried again, unless that is in vain. Said once per outage.
        if isinstance(exc, EngineUnavailableError) and exc.lasting:
            raise exc
        level = logging.DEBUG if self._failures else logging.WARNING
        _LOG.log(level, "consuming %r waits for the database: %s", self._queue.name, exc)
        until = time.monotonic() + pause(_FIRST_BACKOFF, self._poll, self._failures)
        self._failures += 1
        waiters = self._store.wakes.waiters
        waiter = self._waiter
        if waiter is None:
            waiter = self._waiter = waiters.enter(self._queue.name)
        waiters.sleep(waiter, until, self._is_over, self._step)

    def close(self) -> None:
        """End it; from another thread, too, while its own waits."""
        self._end()

    def _end(self) -> None:
        """Give back what was claimed and not handed out, and stand in no line any more."""
        leftovers = self._detach()
        if not leftovers:
            return
        if self._is_in_the_way(directly=False):
            leftovers.hand_over()
        else:
            leftovers.give_back()

    def _is_in_the_way(self, *, directly: bool) -> bool:
        """Say whether this thread may have something that whoever gives back must wait for."""
        # An open transaction has no frame here, and yet the write lock or a connection.
        return _is_interrupting(directly=directly) or self._store.open_transaction() is not None

    def _detach(self) -> Leftovers:
        """End it as far as no database is needed for it, and return what is left; from anywhere."""
        self._closed = True
        leftovers = Leftovers(self._store, self._queue.name)
        if self._process != os.getpid():
            self._ready.clear()  # the parent's
            return leftovers
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiters = self._store.wakes.waiters
            waiters.leave(waiter, more=False)
            waiters.rouse(waiter)  # its own thread may be asleep
        leftovers.take(self._ready, self._attending)
        return leftovers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drop(self) -> Flag | None:
        """End it without waiting; return what will be set when something was given back for it."""
        leftovers = self._detach()
        if not leftovers:
            return None
        done = leftovers.hand_over()
        return done if leftovers.handles else None

    def __del__(self) -> None:
        # A loop that was left by break, and nothing else refers to; or the collector, on top of anything, be it a lock of
        # the application's own. So nothing is done on this thread. Where it is not known to be in the way of what is to be
        # done, it waits for it, but not for ever.
        done = self.drop() if self._made else None
        if done is not None and not self._is_in_the_way(directly=True):
            done.wait(_GIVEN_BACK_WITHIN)


class Leftovers:
    """What a consumer leaves behind."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store = store
        self._queue = queue
        self.handles: list[protocols.JobHandle] = []
        """Claimed, and not given."""
        self._attending: list[AbstractContextManager[None]] = []

    def take(self, ready: deque[protocols.JobHandle], attending: deque[AbstractContextManager[None]]) -> None:
        """Take it over; each one comes to one taker, whoever else takes at the same time."""
        self.handles.extend(_taken(ready))
        self._attending.extend(_taken(attending))

    def __bool__(self) -> bool:
        return bool(self.handles or self._attending)

    def hand_over(self) -> Flag | None:
        """Have another thread give it back; returns at once what is set once it is done, or ``None``: it never is."""
        done = self._store.wakes.give_back(self.give_back)
        if done is None and self.handles:
            _LOG.warning(
                "%d jobs of %r could not be released, as there is no thread for it: their claims lapse",
                len(self.handles), self._queue,
            )  # fmt: skip
        return done

    def give_back(self) -> None:
        """Give it back."""
        for attending in self._attending:
            attending.__exit__(None, None, None)
        if not self.handles:
            return
        store, refs = self._store, [ReleaseRef(handle.id, handle.token, None) for handle in self.handles]
        try:
            released = store.auto_session.executor().release(self._queue, refs, store.now())
        except StoreClosedError:
            _LOG.debug("%d jobs of %r could not be released: the store was closed", len(refs), self._queue)
        except AlkstoreError:
            # They lapse, and are claimed again; the exception that ends the loop is the one to go up.
            _LOG.warning("%d jobs of %r could not be released", len(refs), self._queue, exc_info=True)
        else:
            store.auto_session.ring(self._queue, len(released))


def _taken(things: deque[T]) -> list[T]:
    taken: list[T] = []
    while True:
        try:
            taken.append(things.popleft())
        except IndexError:
            return taken


def _is_interrupting(*, directly: bool) -> bool:
    """Say whether this thread was in the middle of a call of the library when that was interrupted to end a consumer.

    From here outwards there are first the library's own frames that lead here from the method that was called. Whatever frames
    of the library come further out are of calls that haven't returned; the collector comes ``directly`` on top of them.
    """
    outside = False
    frame = inspect.currentframe()
    while frame is not None:
        ours = _is_the_librarys(str(frame.f_globals.get("__name__")))
        if ours and outside:
            return True
        outside = not ours or outside or (directly and frame.f_code is Consumer.__del__.__code__)
        frame = frame.f_back
    return False


def _is_the_librarys(module: str) -> bool:
    """Say whether it is the library's, or an engine's; what runs an application's handlers has nothing they would wait for."""
    return module.partition(".")[0].startswith("alkstore") and not module.startswith("alkstore.worker")


_open: Final[Register[Consumer]] = Register()


def _at_exit() -> None:
    # While threads can still be had. ``wakes`` waits for them, for a bounded time: its own runs after this one.
    for consumer in _open.living():
        consumer.drop()


at_end(_at_exit, first=True)
