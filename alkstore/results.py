"""What jobs have come to: kept by the ack that ends them, asked for, and waited for (clause Z-17).

**Who is woken.** An ack that keeps a result rings a name of the library's own, that of the job, after its commit and with the
queues' wakes (see ``wakes``). Unlike those it is for all who wait for the job, and not for one of them: each has a flag of
his own. An ack of many jobs rings one name for all of them, and whoever waits for any looks.

**Why no wake is lost.** A waiter is among the waiters *before* he looks. What is committed before he looks, he sees; what is
rung afterwards finds him. A ring that doesn't come at all costs until his next look. A job that is buried by a claim or by
the sweep of another process is found by that look, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from alkstore.clock import SECOND, Duration, duration, to_datetime
from alkstore.codec import Codecs, encode
from alkstore.engine import Results
from alkstore.errors import NotSupportedError, PayloadError, ValidationError
from alkstore.helper import Flag
from alkstore.ids import can_exist, check_id
from alkstore.records import Outcome, Result, ResultRow

if TYPE_CHECKING:
    from alkstore.session import Session
    from alkstore.store import Store

ANY_JOB: Final = "_results"
"""Rung for many jobs at once."""

_ONE_JOB: Final = "_result "
"""Rung with the job's id behind it."""

_NAMED: Final = 16
"""Up to so many jobs are rung by their own names; for more, all who wait in the store look."""

_LONGEST_SLEEP: Final = 1.0
"""Seconds after which a waiter looks at the latest whether the store was closed (see ``Waiters.sleep``)."""

_Waiting: TypeAlias = tuple[str, Flag]


class ResultWaiters:
    """Who waits for results in one store. Nothing is locked here (see ``helper``)."""

    def __init__(self) -> None:
        self._waiting: Final[dict[_Waiting, None]] = {}
        self._closed = False

    def enter(self, job_id: int) -> _Waiting:
        """Be told of the job from now on."""
        waiting = (f"{_ONE_JOB}{job_id}", Flag())
        self._waiting[waiting] = None
        return waiting

    def leave(self, waiting: _Waiting) -> None:
        """Be told no more."""
        self._waiting.pop(waiting, None)

    def told(self, name: str | None) -> None:
        """Have those look who wait for what is rung by the name, or (``None``) everybody."""
        for own, flag in list(self._waiting):  # copied in one step
            if name in {None, ANY_JOB, own}:  # names are compared and not read: anybody may ring anything
                flag.set()

    def sleep(self, waiting: _Waiting, until: float) -> None:
        """Sleep until told of the job, or the time (monotonic) has come, or the store is closed."""
        _, flag = waiting
        while not self._closed:
            left = until - time.monotonic()
            if left <= 0 or flag.wait(min(left, _LONGEST_SLEEP)):
                return

    def close(self) -> None:
        """Wake everybody, from now on at once."""
        self._closed = True
        self.told(None)


def is_for_results(name: str) -> bool:
    """Say whether what is rung isn't a queue."""
    return name.startswith("_")  # no queue is called so (N-2)


def ring_results(session: Session, job_ids: Iterable[int]) -> None:
    """Tell those who wait for the jobs, once it is committed."""
    for name in names_of(job_ids):
        session.ring(name, 0)


def names_of(job_ids: Iterable[int]) -> list[str]:
    """Return what to ring for the jobs."""
    ids = list(job_ids)
    return [f"{_ONE_JOB}{job_id}" for job_id in ids] if len(ids) <= _NAMED else [ANY_JOB]


# --- what an ack keeps -----------------------------------------------------------------------------------------------


def encode_result(store: Store, value: object) -> bytes:
    """Return what is stored of a result; raise ``PayloadError`` for what can't be, or is over ``max_result``."""
    return encode_returned(store.codecs, value, store.max_result)


def encode_returned(codecs: Codecs, value: object, limit: int) -> bytes:
    """Do so where there is no store yet."""
    try:
        return encode(codecs.choose(None), value, limit)
    except PayloadError as exc:
        # The codec's words, which are about payloads: of a handler's job nobody should look into the wrong one.
        raise PayloadError("result" + str(exc).removeprefix("payload")) from exc


def result_codec(store: Store) -> str:
    """Return the name of the codec of results."""
    return str.__str__(store.codecs.choose(None).name)


def check_results(store: Store) -> None:
    """Raise ``NotSupportedError`` where the engine doesn't declare the capability ``results``."""
    if not store.capabilities.results:
        raise NotSupportedError("this engine does not declare the capability 'results'")


def keeping(session: Session) -> Results:
    """Return the operations of a session whose engine declares ``results``."""
    return cast(Results, session.executor())


# --- what a job has come to ------------------------------------------------------------------------------------------


def find_result(session: Session, queue: str | None, job_id: int) -> Result | None:
    """Return what a job of the queue, or of any for ``None``, has come to so far."""
    store = session.store
    store.check_open()
    checked = check_id(job_id, "job_id")
    check_results(store)
    row = _look(session, queue, checked)
    return None if row is None else _record(store, row)


def await_result(
    session: Session, queue: str, job_id: int, timeout: Duration | None, poll_interval: Duration
) -> Result | None:
    """Return what a job has come to, once it has; ``None`` when the time is up, or where there is nothing to wait for."""
    store = session.store
    store.check_open()
    checked = check_id(job_id, "job_id")
    seconds = None if timeout is None else duration(timeout, "timeout") / SECOND
    poll = duration(poll_interval, "poll_interval", positive=True) / SECOND
    check_results(store)
    session.executor()
    deadline = None if seconds is None else time.monotonic() + seconds
    waiters = store.wakes.results
    with store.wakes.attending():
        waiting = waiters.enter(checked)
        try:
            while True:
                store.check_open()
                row = _look(session, queue, checked)
                if row is None:
                    return None
                if row.outcome is not None:
                    return _record(store, row)
                if row.keep_result is None:
                    raise ValidationError(f"job {checked} of {queue!r} keeps no result: enqueue it with keep_result")
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    return None
                until = now + poll * random.uniform(0.9, 1.0)
                waiters.sleep(waiting, until if deadline is None else min(until, deadline))
        finally:
            waiters.leave(waiting)


def _look(session: Session, queue: str | None, job_id: int) -> ResultRow | None:
    return keeping(session).result(queue, job_id, session.store.now()) if can_exist(job_id) else None


def _record(store: Store, row: ResultRow) -> Result | None:
    if row.outcome is None or row.finished_at is None:
        return None
    failed = row.outcome is Outcome.FAILED
    return Result(
        job_id=row.job_id,
        queue=row.queue,
        outcome=row.outcome,
        raw=row.payload,
        codec=row.codec,
        attempts=row.attempts,
        finished_at=to_datetime(row.finished_at),
        expires_at=None if row.expires_at is None else to_datetime(row.expires_at),
        worker_id=row.worker_id,
        error=row.error if failed else None,
        _decode=store.codecs.decode,
    )
