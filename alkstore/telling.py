"""Telling hooks: when, of what, and that nothing they do reaches the caller (see ``hooks``).

Where a store has no hooks, there is no ``Telling``, and nothing here is run. Of what no hook has a method for, no record is made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, cast

from alkstore.clock import Micros, to_timedelta
from alkstore.codec import decode_headers, encode_headers
from alkstore.errors import ValidationError
from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, Hooks, Lost, Retried, Succeeded, Swept
from alkstore.limits import HEADER_BYTES, HEADER_ENTRIES
from alkstore.records import JobRow, NewJob

if TYPE_CHECKING:
    from alkstore.handle import Claim
    from alkstore.session import Session
    from alkstore.worker.job import RunningJob

_LOG: Final = logging.getLogger("alkstore")

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

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._enqueueing = _having(hooks, "enqueueing")
        self._enqueued = _having(hooks, "enqueued")
        self._claimed = _having(hooks, "claimed")
        self._running = _having(hooks, "running")
        self._succeeded = _having(hooks, "succeeded")
        self._retried = _having(hooks, "retried")
        self._died = _having(hooks, "died")
        self._lost = _having(hooks, "lost")
        self._swept = _having(hooks, "swept")

    # --- jobs on their way in ------------------------------------------------------------------------------------

    def stamp(self, queue: str, *, many: bool) -> Stamp:
        """Return what gives jobs the hooks' headers; they are asked for them once, when the first job comes by."""
        given: dict[str, str] | None = None

        def stamp(job: NewJob) -> NewJob:
            nonlocal given
            if given is None:
                given = self._headers(Enqueueing(queue=queue, many=many))
            return job._replace(headers=_merged(job.headers, given)) if given else job

        return stamp

    def _headers(self, event: Enqueueing) -> dict[str, str]:
        found: dict[str, str] = {}
        for ask in self._enqueueing:
            with _Guard():
                answer = ask(event)
                for key, value in _plain(answer or {}).items():
                    found.setdefault(key, value)
        return found

    def enqueued(self, session: Session, queue: str, job_ids: Sequence[int]) -> None:
        """Tell of jobs that were stored, once that is committed."""
        if self._enqueued:
            event = Enqueued(queue=queue, job_ids=tuple(job_ids))
            session.after_commit(lambda: _tell(self._enqueued, event))

    # --- claims --------------------------------------------------------------------------------------------------

    def claimed(self, session: Session, rows: Sequence[JobRow]) -> None:
        """Tell of jobs that were claimed, once that is committed."""
        if self._claimed and rows:
            events = [_claimed(row) for row in rows]

            def tell() -> None:
                for event in events:
                    _tell(self._claimed, event)

            session.after_commit(tell)

    def running(self, job: RunningJob) -> AbstractContextManager[object]:
        """Return what the handler is to run in."""
        return _Around(self._running, job)

    # --- how they end --------------------------------------------------------------------------------------------

    def succeeded(self, claim: Claim) -> None:
        """Tell that a claim's job was acked."""
        if self._succeeded:
            _tell(self._succeeded, Succeeded(**_known(claim)))

    def acked_by_id(self, queue: str, job_id: int) -> None:
        """Tell that a job was acked of which nothing else is known."""
        if self._succeeded:
            event = Succeeded(queue=queue, job_id=job_id, attempt=None, worker_id=None, duration=None)
            _tell(self._succeeded, event)

    def retried(self, claim: Claim, error: str | None, delay: Micros) -> None:
        """Tell that a claim's job will be tried again."""
        if self._retried:
            _tell(self._retried, Retried(**_known(claim), error=error, delay=to_timedelta(delay)))

    def died(self, claim: Claim, error: str) -> None:
        """Tell that a claim's job is dead."""
        if self._died:
            _tell(self._died, Died(**_known(claim), error=error))

    def lost(self, claim: Claim) -> None:
        """Tell that a claim is lost, unless that was told."""
        if self._lost and not claim.told_lost:
            claim.told_lost = True
            _tell(self._lost, Lost(**_known(claim)))

    def swept(self, session: Session, queue: str, moved: int) -> None:
        """Tell of jobs that a sweep moved, once that is committed."""
        if self._swept and moved:
            event = Swept(queue=queue, moved=moved)
            session.after_commit(lambda: _tell(self._swept, event))


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


def _having(hooks: Sequence[Hooks], name: str) -> tuple[Callable[[Any], Any], ...]:
    """Return the method of each hook that has one of its own."""
    methods = [getattr(hook, name) for hook in hooks]
    return tuple(method for method in methods if getattr(method, "__func__", None) is not getattr(Hooks, name))


def _known(claim: Claim) -> _Known:
    row = claim.row
    return _Known(
        queue=claim.queue,
        job_id=claim.ref.job_id,
        attempt=None if row is None else row.attempts,
        worker_id=None if row is None else row.worker_id,
        duration=claim.timing.duration,
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


def _tell(methods: tuple[Callable[[Any], object], ...], event: object) -> None:
    for method in methods:
        with _Guard():
            method(event)


class _Guard:
    """A block out of which nothing comes that a hook raises."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Log what was raised; but let go up what a signal's handler raised, Ctrl-C say, which is on the main thread."""
        if value is None:
            return False
        if not isinstance(value, Exception) and threading.current_thread() is threading.main_thread():
            return False
        _LOG.warning("a hook failed", exc_info=value)
        return True


class _Around:
    """The blocks of the hooks around one handler, each within the one before it."""

    __slots__ = ("_blocks", "_job", "_running")

    def __init__(self, running: tuple[Callable[[Any], Any], ...], job: RunningJob) -> None:
        self._running = running
        self._job = job
        self._blocks: list[AbstractContextManager[object]] = []

    def __enter__(self) -> Self:
        """Enter them; one that fails is left out."""
        for ask in self._running:
            with _Guard():
                block: AbstractContextManager[object] | None = ask(self._job)
                if block is not None:
                    block.__enter__()
                    self._blocks.append(block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave them with what the handler raised, which goes on up whatever they say of it."""
        while self._blocks:
            block = self._blocks.pop()
            try:
                block.__exit__(kind, value, trace)
            except BaseException as exc:  # noqa: BLE001 - a runner's thread: no signal's handler raises here
                if exc is not value:  # a block that raises the handler's own again only lets it go up
                    _LOG.warning("a hook failed", exc_info=exc)
