"""Settling what the handlers have done: acks, retries, burials and releases, in batches, until they have come through.

A handler's thread puts down what is to become of its job and takes the next one. One thread settles: the first at once, and
what comes within a few milliseconds of that together, so that a thousand no-op jobs cost a few commits and not a thousand.
What was done twice because of it is no more than without: between a handler's end and its ack there is a moment in any case.

An operation that the database didn't do is done again, on a connection that works: the handler isn't run again for it. The job
is held meanwhile, and its claim extended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple, cast

from alkstore.backoff import draw_for
from alkstore.clock import Micros
from alkstore.engine import Results
from alkstore.errors import AlkstoreError, EngineError, OutcomeUnknownError
from alkstore.limits import CHUNK_BYTES
from alkstore.records import BuryRef, ReleaseRef, ResultRef, RetryRef
from alkstore.results import encode_result, names_of, result_codec
from alkstore.store import Store
from alkstore.texts import EXHAUSTED, FAILED
from alkstore.worker.board import Board
from alkstore.worker.job import RunningJob
from alkstore.worker.outages import Outage
from alkstore.worker.threads import Spawn, await_end

_LOG: Final = logging.getLogger("alkstore.worker")

BATCH: Final = 1_000
"""Jobs settled by one statement, at most."""


class Verdict(Enum):
    """What becomes of a job."""

    ACK = "acked"
    RETRY = "retried"
    FAIL = "failed"
    RELEASE = "released"
    NONE = "settled"
    """Nothing: its claim is gone already, and that is to be told."""


class Completion(NamedTuple):
    """A job, and what is to become of it."""

    job: RunningJob
    verdict: Verdict
    error: str | None = None
    delay: Micros | None = None
    """``None``: of a retry the job's own curve, of a release its old place."""
    result: bytes | None = None
    """What the handler returned, encoded, of a job that keeps it."""


Settled = Callable[[Completion, bool], None]
"""Told of each completion, and whether it came through: if not, the claim was not this worker's any more."""


class Completer:
    """One thread that settles."""

    def __init__(
        self,
        store: Store,
        apart: Store,
        board: Board,
        window: float,
        settled: Settled,
        spawn: Spawn,
        name: str = "completer",
    ) -> None:
        """Settle on ``apart``'s connections, and wake those who wait in ``store``, too."""
        self._store = store
        self._apart = apart
        self._board = board
        self._window = window
        self._settled = settled
        self._changed = threading.Condition()
        self._pending: list[Completion] = []
        self._ending = False
        self._give_up = threading.Event()
        self._thread = spawn(name, self._work)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, completion: Completion) -> None:
        """Have it settled; with no window, by this thread and now."""
        if self._window <= 0 and completion.verdict is not Verdict.RELEASE:
            self._settle_until_done([completion])
            return
        with self._changed:
            self._pending.append(completion)
            self._changed.notify()

    def end(self, seconds: float) -> None:
        """Settle what is left, for so many seconds at most."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        await_end(self._thread, seconds)
        self._give_up.set()

    def _work(self) -> None:
        rested = 0.0
        while True:
            with self._changed:
                while not self._pending:
                    if self._ending:
                        return
                    self._changed.wait()
                deadline = rested + self._window
                while len(self._pending) < BATCH and not self._ending:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    self._changed.wait(left)
                batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            self._settle_until_done(batch)
            rested = time.monotonic()

    def _settle_until_done(self, batch: list[Completion]) -> None:
        groups: dict[tuple[str, Verdict, int], list[Completion]] = {}
        size = 0
        for completion in batch:
            if completion.verdict is Verdict.RETRY:  # drawn once, so that what is told of it is what is done
                completion = completion._replace(delay=_delay(completion))
            size += len(completion.result or b"")  # no statement is to carry a thousand results of a megabyte
            groups.setdefault((completion.job.queue, completion.verdict, size // CHUNK_BYTES), []).append(completion)
        for (queue, verdict, _), group in groups.items():
            outage, in_doubt = Outage(f"settling jobs of {queue!r}"), False
            while not self._give_up.is_set():
                try:
                    done = self._settle(queue, verdict, group)
                except EngineError as exc:
                    in_doubt |= isinstance(exc, OutcomeUnknownError)
                    outage.wait(exc, self._give_up)
                    continue
                except AlkstoreError:
                    _LOG.exception("jobs of %r could not be settled, and will be claimed again", queue)
                    break
                outage.over()
                for completion in group:
                    # Of an operation that was cut off in the middle, a refusal may mean that it had been done (Z-6).
                    self._settled(completion, in_doubt or completion.job.id in done)
                break
            self._board.settled(completion.job for completion in group)

    def _settle(self, queue: str, verdict: Verdict, group: Sequence[Completion]) -> set[int]:
        """Do it, ring, and return the ids of the jobs to which it was done."""
        executor, now = self._apart.auto_executor(), self._apart.now()
        jobs = [completion.job for completion in group]
        match verdict:
            case Verdict.ACK if any(job.keeps_result for job in jobs):
                nothing = encode_result(self._apart, None)
                acked = [ResultRef(each.job.id, _token(each.job), each.result or nothing) for each in group]
                batch = cast(Results, executor).ack_keeping(queue, acked, result_codec(self._apart), now)
                self._ring_results(batch.kept)
                return set(batch.done)
            case Verdict.ACK:
                return set(executor.ack(queue, [job.ref for job in jobs], now))
            case Verdict.FAIL:
                buried = [BuryRef(each.job.id, _token(each.job), each.error or FAILED) for each in group]
                done = set(executor.bury(queue, buried, now))
                self._ring_results(job.id for job in jobs if job.id in done and job.keeps_result)
                return done
            case Verdict.RETRY:
                delays = {each.job.id: _delay(each) for each in group}
                retried = [RetryRef(each.job.id, _token(each.job), delays[each.job.id], each.error) for each in group]
                done = set(executor.retry(queue, retried, EXHAUSTED, now))
                self._ring(queue, done, delays)
                self._ring_results(job.id for job in jobs if job.id in done and job.keeps_result and job.spent)
                return done
            case Verdict.RELEASE:
                released = [ReleaseRef(each.job.id, _token(each.job), each.delay) for each in group]
                done = set(executor.release(queue, released, now))
                self._ring(queue, done, {each.job.id: each.delay or 0 for each in group})
                return done
            case Verdict.NONE:
                return set()

    def _ring(self, queue: str, done: set[int], delays: dict[int, Micros]) -> None:
        if done:
            self._store.wakes.ring({queue: sum(not delays[job_id] for job_id in done)})

    def _ring_results(self, job_ids: Iterable[int]) -> None:
        if names := names_of(job_ids):
            self._store.wakes.ring(dict.fromkeys(names, 0))


def _token(job: RunningJob) -> int:
    return job.handle.token


def _delay(completion: Completion) -> Micros:
    return draw_for(completion.job.row) if completion.delay is None else completion.delay
