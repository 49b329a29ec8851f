"""The front's queue: checks, resolves, encodes, and asks the engine (clauses O, Q-ENQ, Q-CLAIM, Q)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from alkstore import protocols
from alkstore.clock import Duration, duration, host_now, to_timedelta
from alkstore.codec import Codec, encode
from alkstore.consuming import Consumer, wait_for_job
from alkstore.engine import Executor, SweepTexts
from alkstore.errors import TransactionError, ValidationError, shown
from alkstore.handle import Claim, JobHandle, note_refused, note_settled
from alkstore.helper import Register
from alkstore.ids import can_exist, check_id
from alkstore.items import Item
from alkstore.limits import BURY_PER_CLAIM, ID_MAX, PAGE_MAX, POLL_INTERVAL, RIPEN_PER_UNIT, SWEEP_BATCH
from alkstore.names import check_name
from alkstore.options import (
    JobOptions,
    QueueFields,
    QueueOptions,
    Stamps,
    check_int,
    merge_options,
    queue_options,
    resolve_enqueue,
)
from alkstore.records import ClaimRef, Job, JobRow, NewJob, QueueStats, Result, ResultRef, State
from alkstore.results import (
    ANY_JOB,
    await_result,
    check_results,
    encode_result,
    find_result,
    keeping,
    result_codec,
    ring_results,
)
from alkstore.session import Session
from alkstore.spool import Spool
from alkstore.texts import EXHAUSTED, EXPIRED

_SWEEP_TEXTS: Final = SweepTexts(expired=EXPIRED, exhausted=EXHAUSTED)
_CLAIM_MAX: Final = 2**31 - 1


class Queue(protocols.Queue):
    """A queue of jobs, in a session."""

    __slots__ = ("_codec", "_codec_name", "_consumers", "_name", "_options", "_session", "_stamps", "_store")

    def __init__(self, session: Session, name: str, options: QueueOptions, codec: Codec) -> None:
        self._session = session
        self._store = session.store
        self._consumers: Register[Consumer] = Register()
        self._name = name
        self._options = options
        self._stamps = Stamps.of(options)
        self._codec = codec
        self._codec_name = str.__str__(codec.name)  # plain, whatever kind of str it is

    @classmethod
    def make(
        cls, session: Session, name: object, options: object, codec: object, fields: QueueFields | Mapping[str, object]
    ) -> Queue:
        """Check everything and make the handle; no I/O (N-1 to N-3, O-1, O-4)."""
        checked = check_name(name, "queue name")
        resolved = queue_options(options, cast(Mapping[str, object], fields))
        return cls(session, checked, resolved, session.store.codecs.choose(codec))

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}>"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    @property
    def options(self) -> QueueOptions:
        """The options stamped on jobs."""
        return self._options

    # --- in ------------------------------------------------------------------------------------------------------

    def enqueue(self, payload: object, **options: Unpack[JobOptions]) -> int:
        """Store a job and return its id."""
        store = self._store
        store.check_open()
        job = self._resolve(payload, cast(Mapping[str, object], options))
        session, hooks = self._session, store.hooks
        executor = session.executor()
        if hooks is not None:
            job = hooks.stamp(self._name, many=False)(job)
        job_id = executor.insert(self._name, (job,), store.now())[0]
        session.ring(self._name, _can_be_had(job))
        if hooks is not None:
            hooks.enqueued(session, self._name, [job_id])
        return job_id

    def enqueue_many(self, items: Iterable[object], **options: Unpack[JobOptions]) -> list[int]:
        """Store many jobs, all or none, and return their ids."""
        self._store.check_open()
        _check_iterable(items, "items", "payloads or Items")
        common = cast(Mapping[str, object], options)
        pattern = self._stamped(b"", common)  # wrong even where there are no items
        codec, limit, hooks = self._codec, self._store.max_payload, self._store.hooks
        stamp = None if hooks is None else hooks.stamp(self._name, many=True)
        own = ready = 0
        with Spool(pattern) as spool:
            for item in items:
                if isinstance(item, Item):
                    job = self._resolve(item.payload, merge_options(common, item.options))
                    own += 1
                    ready += _can_be_had(job)
                    spool.add(job if stamp is None else stamp(job))
                else:
                    spool.add_alike(encode(codec, item, limit))
            if stamp is not None and spool.chunks:
                spool.pattern = stamp(pattern)
            ids = self._insert(spool)
        if ids:
            ready += _can_be_had(pattern) * (len(ids) - own)
            self._session.ring(self._name, ready)
            if hooks is not None:
                hooks.enqueued(self._session, self._name, ids)
        return ids

    def _resolve(self, payload: object, options: Mapping[str, object]) -> NewJob:
        return self._stamped(encode(self._codec, payload, self._store.max_payload), options)

    def _stamped(self, data: bytes, options: Mapping[str, object]) -> NewJob:
        job = resolve_enqueue(self._stamps, self._codec_name, data, options)
        if job.keep_result is not None:
            check_results(self._store)
        return job

    def _insert(self, spool: Spool) -> list[int]:
        session, store = self._session, self._store
        executor = session.executor()
        if spool.chunks == 0:
            return []
        if spool.chunks == 1:
            return executor.insert(self._name, next(iter(spool)), store.now())
        if not store.capabilities.transactions:
            return executor.insert(self._name, [job for chunk in spool for job in chunk], store.now())
        # All or none: a transaction of its own, or within the caller's a savepoint, so that a failure that the caller
        # catches doesn't leave half of the chunks behind.
        frame = session.frame
        with store.transaction() if frame is None else frame.all_or_none() as transaction:
            inner = transaction.executor()
            now = store.now()
            if now is None:
                now = inner.now()  # one now for all the chunks (O-3)
            return [job_id for chunk in spool for job_id in inner.insert(self._name, chunk, now)]

    # --- out -----------------------------------------------------------------------------------------------------

    def claim_one(self, worker_id: str) -> protocols.JobHandle | None:
        """Claim the next job."""
        handles = self.claim_batch(worker_id, 1)
        return handles[0] if handles else None

    def claim_batch(self, worker_id: str, n: int) -> list[protocols.JobHandle]:
        """Claim at most ``n`` jobs."""
        session, store, name = self._session, self._store, self._name
        store.check_open()
        worker = check_name(worker_id, "worker_id")
        if isinstance(n, bool) or not isinstance(cast(object, n), int):
            raise ValidationError(f"n must be an int, not {type(n).__name__}")
        if n <= 0:
            return []
        count = min(n, _CLAIM_MAX)
        executor = session.executor()
        while True:
            batch = executor.claim(name, worker, count, EXHAUSTED, BURY_PER_CLAIM, RIPEN_PER_UNIT, store.now())
            if not batch.again:
                break
        store.wakes.waiters.claimed(name, len(batch.rows))
        if store.hooks is not None:
            store.hooks.claimed(session, batch.rows)
        claims = [_claim_of(row) for row in batch.rows]
        return [JobHandle(session.for_claim(claim), claim) for claim in claims]

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until a claim is worth trying, and say whether it is."""
        store = self._store
        store.check_open()
        seconds = None if timeout is None else duration(timeout, "timeout") / 1_000_000
        self._check_can_wait()
        deadline = None if seconds is None else time.monotonic() + seconds
        waiters = store.wakes.waiters
        with store.wakes.attending():
            waiter = waiters.enter(self._name)
            try:
                return wait_for_job(store, waiter, deadline, POLL_INTERVAL, lambda: False, POLL_INTERVAL)
            finally:
                waiters.leave(waiter, more=False)

    def consume(
        self,
        worker_id: str,
        *,
        batch: int = 1,
        poll_interval: Duration = POLL_INTERVAL,
        stop: threading.Event | None = None,
    ) -> Consumer:
        """Return handles as jobs become claimable."""
        store = self._store
        store.check_open()
        worker = check_name(worker_id, "worker_id")
        size = check_int(batch, "batch", 1, _CLAIM_MAX)
        poll = duration(poll_interval, "poll_interval", positive=True) / 1_000_000
        if stop is not None and not isinstance(cast(object, stop), threading.Event):
            raise ValidationError(f"stop must be a threading.Event, not {type(stop).__name__}")
        self._check_can_wait()
        consumer = Consumer(self, store, worker, size, poll, stop)
        self._consumers.add(consumer)
        return consumer

    def _check_can_wait(self) -> None:
        if self._session.frame is not None:
            raise TransactionError(
                "a queue that is bound to a transaction or a joined connection can't be waited on: what is open there "
                "would be kept open, and see nothing new; wait on store.queue(name)"
            )
        self._session.executor()

    def handle(self, job_id: int, token: int) -> JobHandle:
        """Rebuild a handle from its id and token."""
        self._store.check_open()
        checked = check_id(job_id, "job_id")
        if isinstance(token, bool) or not isinstance(cast(object, token), int):
            raise ValidationError(f"token must be an int, not {type(token).__name__}")
        return JobHandle(self._session, Claim(self._name, _fit(checked), _fit(token)))

    def ack_batch(self, handles_or_ids: Iterable[protocols.JobHandle | int]) -> int:
        """Ack many at once and return how many."""
        session, store = self._session, self._store
        store.check_open()
        _check_iterable(handles_or_ids, "handles_or_ids", "handles and ids")
        named: dict[ClaimRef, list[JobHandle]] = {}  # what was named, in order, each once
        for entry in cast(Iterable[object], handles_or_ids):
            if isinstance(entry, JobHandle):
                ref = entry.ref_for(self._name, session)
                if ref is not None:
                    named.setdefault(ref, []).append(entry)
            elif isinstance(entry, int) and not isinstance(entry, bool):
                if can_exist(entry):
                    named.setdefault(ClaimRef(int(entry), None), [])
            else:
                raise ValidationError(f"handles_or_ids must hold handles and ids, not {type(entry).__name__}")
        executor = session.executor()
        count = 0
        while named:
            # One round, but for jobs that are named by several claims: which of those it was must be known (Z-3).
            refs: dict[int, ClaimRef] = {}
            for ref in named:
                refs.setdefault(ref.job_id, ref)
            acked = set(self._ack(executor, list(refs.values()), named))
            count += len(acked)
            for job_id, ref in refs.items():
                handles = named.pop(ref)
                if job_id in acked:
                    note_settled(session, self._name, job_id, handles)
                else:
                    note_refused(session, handles)
            named = {ref: handles for ref, handles in named.items() if ref.job_id not in acked}
        return count

    def _ack(self, executor: Executor, refs: list[ClaimRef], named: Mapping[ClaimRef, list[JobHandle]]) -> list[int]:
        """Ack in one statement: in the plain one where no job can keep a result."""
        store, session = self._store, self._session
        known = all((handles := named[ref]) and not handles[0].claim.may_keep for ref in refs)
        if known or not store.capabilities.results:
            return executor.ack(self._name, refs, store.now())
        nothing = encode_result(store, None)
        keepers = [ResultRef(ref.job_id, ref.token, nothing) for ref in refs]
        batch = keeping(session).ack_keeping(self._name, keepers, result_codec(store), store.now())
        ring_results(session, batch.kept)
        return batch.done

    # --- looking after -------------------------------------------------------------------------------------------

    def cancel(self, job_id: int) -> bool:
        """Delete a pending or processing job."""
        return self._on_one(job_id, self._cancel)

    def _cancel(self, executor: Executor, job_id: int) -> bool:
        store, session = self._store, self._session
        if not store.capabilities.results:
            return bool(executor.cancel(self._name, [job_id]))
        batch = keeping(session).cancel_keeping(self._name, [job_id], store.now())
        ring_results(session, batch.kept)
        return bool(batch.done)

    def retry_dead(self, job_id: int) -> bool:
        """Make a dead job pending again."""
        store = self._store
        revived = self._on_one(
            job_id, lambda executor, checked: bool(executor.revive(self._name, [checked], store.now()))
        )
        if revived:
            self._session.ring(self._name, 1)
        return revived

    def _on_one(self, job_id: object, operation: Callable[[Executor, int], bool]) -> bool:
        self._store.check_open()
        checked = check_id(job_id, "job_id")
        executor = self._session.executor()
        return can_exist(checked) and operation(executor, checked)

    def get_job(self, job_id: int) -> Job | None:
        """Return the queue's job, dead ones included."""
        return find_job(self._session, self._name, job_id)

    def result(self, job_id: int) -> Result | None:
        """Return what the queue's job has come to."""
        return find_result(self._session, self._name, job_id)

    def wait_result(
        self, job_id: int, timeout: Duration | None = None, *, poll_interval: Duration = POLL_INTERVAL
    ) -> Result | None:
        """Return what the queue's job has come to, waiting for it."""
        self._store.check_open()
        self._check_can_wait()
        return await_result(self._session, self._name, job_id, timeout, poll_interval)

    def jobs(self, state: State | str | None = None, after: int | None = None, limit: int = 100) -> list[Job]:
        """Return a page of the queue's jobs by id."""
        store = self._store
        store.check_open()
        wanted = None if state is None else check_state(state)
        least = 0 if after is None else check_id(after, "after")
        if isinstance(limit, bool) or not isinstance(cast(object, limit), int) or limit > PAGE_MAX:
            raise ValidationError(f"limit must be an int of at most {PAGE_MAX}, not {shown(limit)}")
        if limit <= 0:
            return []
        executor = self._session.executor()
        if least >= ID_MAX:
            return []
        rows = executor.list(self._name, wanted, max(least, 0), limit)
        return [Job.from_row(row, store.codecs.decode) for row in rows]

    def stats(self) -> QueueStats:
        """Count the queue's rows."""
        store = self._store
        store.check_open()
        row = self._session.executor().stats(self._name, store.now())
        oldest = row.oldest_ready_at
        return QueueStats(
            ready=row.ready,
            scheduled=row.scheduled,
            processing=row.processing,
            dead=row.dead,
            oldest_ready_age=None if oldest is None else to_timedelta(row.now - oldest),
        )

    def sweep_expired(self) -> int:
        """Move expired jobs to the dead table, and delete dead ones past their retention."""
        session, store = self._session, self._store
        store.check_open()
        executor = session.executor()
        moved = 0
        while True:
            batch = executor.sweep(self._name, SWEEP_BATCH, _SWEEP_TEXTS, store.now())
            moved += batch.moved
            if not batch.again or _keeps(session):
                break
        if store.capabilities.results:
            if moved:
                session.ring(ANY_JOB, 0)  # whoever waits for one of them
            while keeping(session).prune_results(self._name, SWEEP_BATCH, store.now()) >= SWEEP_BATCH:
                if _keeps(session):
                    break
        if store.hooks is not None:
            store.hooks.swept(session, self._name, moved)
        return moved

    def purge(self, state: State | str) -> int:
        """Delete the queue's rows in the state."""
        session, store = self._session, self._store
        store.check_open()
        wanted = check_state(state)
        executor = session.executor()
        deleted = 0
        while True:
            if store.capabilities.results:
                batch = keeping(session).purge_keeping(self._name, wanted, SWEEP_BATCH, store.now())
                if batch.deleted:
                    session.ring(ANY_JOB, 0)
            else:
                batch = executor.purge(self._name, wanted, SWEEP_BATCH)
            deleted += batch.deleted
            if not batch.again or _keeps(session):
                return deleted

    def __enter__(self) -> Self:
        """Return the handle itself."""
        self._store.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumers; claims stay."""
        for consumer in self._consumers.living():
            consumer.close()


def find_job(session: Session, queue: str | None, job_id: object) -> Job | None:
    """Return a job of the queue, or of any for ``None`` (Q-4, Q-8)."""
    store = session.store
    store.check_open()
    checked = check_id(job_id, "job_id")
    executor = session.executor()
    row = executor.get(queue, checked) if can_exist(checked) else None
    return None if row is None else Job.from_row(row, store.codecs.decode)


def check_state(state: object) -> State:
    """Return the ``State`` meant by itself or by its text; raise ``ValidationError``."""
    try:
        return State(cast(Any, state))
    except ValueError:
        raise ValidationError(f"state must be one of {', '.join(State)}, not {shown(state)}") from None


def _keeps(session: Session) -> bool:
    """Say whether a batch isn't committed yet, so that it has to be the only one (Z-8)."""
    return session.frame is not None and session.frame.keeps


def _can_be_had(job: NewJob) -> int:
    """Return 1 for a job that is due when it is stored, as far as can be told here, else 0."""
    return int(job.run_at <= (0 if job.run_at_is_offset else host_now()))


def _check_iterable(value: object, name: str, of: str) -> None:
    # A text or a mapping is iterable too, and would become one job a character or a key: surely not what was meant.
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not isinstance(value, Iterable):
        raise ValidationError(f"{name} must be an iterable of {of}, not {type(cast(object, value)).__name__}")


def _claim_of(row: JobRow) -> Claim:
    token = row.token
    assert token is not None  # noqa: S101 - the engine has just claimed it
    return Claim(row.queue, row.id, token, row)


def _fit(number: int) -> int:
    """Return the number, or 0, which no job's id and no token is, for one that no column can hold."""
    return number if can_exist(number) else 0
