"""Telling hooks: when, of what, and that nothing they do reaches the caller (see ``hooks``).

Where a store has no hooks, there is no ``Telling``, and nothing here is run. Of what no hook has a method for, no record is made.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, cast

from alkstore.calling import Calls, Methods
from alkstore.clock import Micros, to_timedelta
from alkstore.codec import decode_headers, encode_headers
from alkstore.errors import ValidationError
from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, HookFailed, Hooks, Lost, Retried, Succeeded, Swept
from alkstore.limits import HEADER_BYTES, HEADER_ENTRIES
from alkstore.records import JobRow, NewJob

if TYPE_CHECKING:
    from alkstore.handle import Claim
    from alkstore.session import Session
    from alkstore.worker.hands import Hand, Handler
    from alkstore.worker.job import RunningJob

Stamp = Callable[[NewJob], NewJob]
"""Gives a job the hooks' headers."""


class Timing:
    """How long the work on a claim took, as far as that is known."""

    __slots__ = ("_begun", "_seconds")

    def __init__(self) -> None:
        self._begun: float | None = None
        self._seconds: float | None = None

    def begin(self) -> None:
        """Note that the work begins; of blocks within each other the outermost counts."""
        if self._begun is None:
            self._begun = time.monotonic()

    def end(self) -> None:
        """Note that it has ended: what is settled later doesn't make it longer."""
        if self._begun is not None:
            self._seconds = time.monotonic() - self._begun

    @property
    def duration(self) -> timedelta | None:
        """How long it took, or has taken so far; ``None`` where it never began."""
        if self._begun is None:
            return None
        return timedelta(seconds=time.monotonic() - self._begun if self._seconds is None else self._seconds)


class _Known(TypedDict):
    """The fields of ``hooks.Settled``."""

    queue: str
    job_id: int
    attempt: int | None
    worker_id: str | None
    duration: timedelta | None


class Telling:
    """The hooks of one store."""

    def __init__(self, hooks: Sequence[Hooks], *, interruptible: bool = True) -> None:
        self._calls = calls = Calls(hooks, interruptible=interruptible)
        self._enqueueing = calls.of("enqueueing")
        self._enqueued = calls.of("enqueued")
        self._claimed = calls.of("claimed")
        self._running = calls.of("running")
        self._succeeded = calls.of("succeeded")
        self._retried = calls.of("retried")
        self._died = calls.of("died")
        self._lost = calls.of("lost")
        self._swept = calls.of("swept")
        self._deputy = calls.of("deputy")
        self._by_kind: Mapping[type, Methods] = {
            Enqueued: self._enqueued,
            Claimed: self._claimed,
            Succeeded: self._succeeded,
            Retried: self._retried,
            Died: self._died,
            Lost: self._lost,
            Swept: self._swept,
        }

    # --- jobs on their way in ------------------------------------------------------------------------------------

    def stamp(self, queue: str, *, many: bool) -> Stamp:
        """Return what gives jobs the hooks' headers; they are asked for them once, when the first job comes by."""
        given: dict[str, str] | None = None

        def stamp(job: NewJob) -> NewJob:
            nonlocal given
            if given is None:
                given = self.headers(Enqueueing(queue=queue, many=many))
            return job._replace(headers=_merged(job.headers, given)) if given else job

        return stamp

    def headers(self, event: Enqueueing) -> dict[str, str]:
        """Return what the hooks would add to the headers of jobs."""
        found: dict[str, str] = {}
        for method in self._enqueueing:
            with self._calls.guard(method):
                answer = method.call(event)
                for key, value in _plain(answer or {}).items():
                    found.setdefault(key, value)
        return found

    def enqueued(self, session: Session, queue: str, job_ids: Sequence[int]) -> None:
        """Tell of jobs that were stored, once that is committed."""
        if self._enqueued:
            event = Enqueued(queue=queue, job_ids=tuple(job_ids))
            session.after_commit(lambda: self._calls.tell(self._enqueued, event))

    # --- claims --------------------------------------------------------------------------------------------------

    def claimed(self, session: Session, rows: Sequence[JobRow]) -> None:
        """Tell of jobs that were claimed, once that is committed."""
        if self._claimed and rows:
            events = [_claimed(row) for row in rows]

            def tell() -> None:
                for event in events:
                    self._calls.tell(self._claimed, event)

            session.after_commit(tell)

    def running(self, job: RunningJob) -> AbstractContextManager[object]:
        """Return what the handler is to run in."""
        return self._calls.around(self._running, job)

    def run(self, job: RunningJob, handler: Handler, hand: Hand) -> object:
        """Have a worker's hand run the handler in the hooks' blocks, and see how long it takes."""
        timing = job.handle.claim.begin_timing()
        try:
            with self.running(job):
                return hand.run(job, handler)
        finally:
            timing.end()

    def deputies(self, job: RunningJob) -> list[bytes]:
        """Return what stands in for the hooks in the process where the handler is to run, pickled."""
        found: list[bytes] = []
        for method in self._deputy:
            with self._calls.guard(method):
                deputy = method.call(job)
                if deputy is not None:
                    found.append(pickle.dumps(deputy))
        return found

    def relayed(self, event: object, claim: Claim) -> None:
        """Tell what was told in a handler's process, whose own claim this is: of a loss, whoever notices it first."""
        if isinstance(event, Lost) and (event.queue, event.job_id) == (claim.queue, claim.ref.job_id):
            self.lost(claim)
        elif isinstance(event, HookFailed):
            self._calls.failed_elsewhere(event)
        else:
            self._calls.tell(self._by_kind[type(event)], event)

    # --- how they end --------------------------------------------------------------------------------------------

    def succeeded(self, claim: Claim) -> None:
        """Tell that a claim's job was acked."""
        if self._succeeded:
            self._calls.tell(self._succeeded, Succeeded(**_known(claim)))

    def acked_by_id(self, queue: str, job_id: int) -> None:
        """Tell that a job was acked of which nothing else is known."""
        if self._succeeded:
            event = Succeeded(queue=queue, job_id=job_id, attempt=None, worker_id=None, duration=None)
            self._calls.tell(self._succeeded, event)

    def retried(self, claim: Claim, error: str | None, delay: Micros) -> None:
        """Tell that a claim's job will be tried again."""
        if self._retried:
            self._calls.tell(self._retried, Retried(**_known(claim), error=error, delay=to_timedelta(delay)))

    def died(self, claim: Claim, error: str) -> None:
        """Tell that a claim's job is dead."""
        if self._died:
            self._calls.tell(self._died, Died(**_known(claim), error=error))

    def lost(self, claim: Claim) -> None:
        """Tell that a claim is lost, unless that was told."""
        if self._lost and not claim.told_lost:
            claim.told_lost = True
            self._calls.tell(self._lost, Lost(**_known(claim)))

    def swept(self, session: Session, queue: str, moved: int) -> None:
        """Tell of jobs that a sweep moved, once that is committed."""
        if self._swept and moved:
            event = Swept(queue=queue, moved=moved)
            session.after_commit(lambda: self._calls.tell(self._swept, event))


def telling(hooks: object) -> Telling | None:
    """Return what tells the hooks, ``None`` where there are none; raise ``ValidationError`` for what isn't hooks."""
    if isinstance(hooks, str | bytes | Mapping) or not isinstance(hooks, Iterable):
        raise ValidationError(f"hooks must be an iterable of Hooks, not {type(cast(object, hooks)).__name__}")
    checked: list[Hooks] = []
    for hook in cast(Iterable[object], hooks):
        if not isinstance(hook, Hooks):
            named = f"the class {hook.__name__}" if isinstance(hook, type) else type(hook).__name__
            raise ValidationError(f"hooks must hold instances of alkstore.Hooks, not {named}")
        checked.append(hook)
    return Telling(checked) if checked else None


def _known(claim: Claim) -> _Known:
    row = claim.row
    return _Known(
        queue=claim.queue,
        job_id=claim.ref.job_id,
        attempt=None if row is None else row.attempts,
        worker_id=None if row is None else row.worker_id,
        duration=None if claim.timed is None else claim.timed.duration,
    )


def _claimed(row: JobRow) -> Claimed:
    now = (row.lease_until or 0) - row.visibility_timeout
    return Claimed(
        queue=row.queue,
        job_id=row.id,
        attempt=row.attempts,
        worker_id=row.worker_id,
        waited=to_timedelta(max(now - row.run_at, 0)),
    )


def _plain(headers: Mapping[object, object]) -> dict[str, str]:
    plain: dict[str, str] = {}
    for key, value in headers.items():
        if isinstance(key, str) and isinstance(value, str):
            plain[str.__str__(key)] = str.__str__(value)
    return plain


def _merged(own: str, given: Mapping[str, str]) -> str:
    """Return a job's own headers and those that are given besides, as far as there is room for them (O-2)."""
    merged = decode_headers(own)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in merged.items())
    for key, value in given.items():
        try:
            more = len(key.encode()) + len(value.encode())
        except UnicodeEncodeError:  # a lone surrogate
            continue
        if key not in merged and len(merged) < HEADER_ENTRIES and size + more <= HEADER_BYTES:
            merged[key] = value
            size += more
    return encode_headers(merged)
