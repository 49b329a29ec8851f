"""The front's job handle: one claim, spoken for by its token (clauses J-1 to J-10, Z-3 to Z-6)."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from alkstore import protocols
from alkstore.backoff import draw_for
from alkstore.clock import Duration, Micros, duration, to_datetime
from alkstore.codec import decode_headers
from alkstore.errors import ClaimLostError, StoreClosedError, TransactionError, ValidationError
from alkstore.leaving import Leaving, Statement
from alkstore.records import BuryRef, ClaimRef, Job, JobRow, KeptBatch, ReleaseRef, ResultRef, RetryRef
from alkstore.results import check_results, encode_result, keeping, result_codec, ring_results
from alkstore.session import GoneSession, Home, Session, TransactionSession
from alkstore.telling import Telling, Timing
from alkstore.texts import EXHAUSTED, FAILED, error_text

if TYPE_CHECKING:
    from alkstore.frames import Frame
    from alkstore.store import Store
    from alkstore.transaction import Transaction

_LOG: Final = logging.getLogger("alkstore")


class Claim:
    """What all handles of one claim share: who it is, what is known of it, and whether it was settled."""

    __slots__ = (
        "_deadlines", "queue", "ref", "result", "row", "settled", "settled_in", "timed", "token", "told_lost",
    )  # fmt: skip

    def __init__(self, queue: str, job_id: int, token: int, row: JobRow | None = None) -> None:
        self.queue = queue
        self.ref = ClaimRef(job_id, token)
        self.token = token
        self.row = row
        self._deadlines: list[tuple[Micros, Frame | None]] = []
        self.settled = False
        self.settled_in: Frame | None = None
        self.timed: Timing | None = None
        """How long the work on it takes, where hooks want to know."""
        self.told_lost = False
        self.result: bytes | None = None
        """What an ack was given that came too late inside of ``transaction()``: the final one is judged otherwise."""

    @property
    def may_keep(self) -> bool:
        """Whether the job keeps its result, as far as that is known here."""
        return self.row is None or self.row.keep_result is not None

    @property
    def deadline(self) -> Micros | None:
        """The latest deadline that is known and wasn't rolled back; ``None`` where nothing is known yet."""
        for deadline, frame in reversed(self._deadlines):
            if frame is None or not frame.undone:
                return deadline
        return None if self.row is None else self.row.lease_until

    def extended(self, deadline: Micros, frame: Frame | None) -> None:
        """Remember a new deadline, and what would undo it."""
        if frame is None:
            self._deadlines.clear()
        self._deadlines.append((deadline, frame))

    def settle(self, frame: Frame | None) -> None:
        """Remember that the job was acked, retried, failed or released, and what would undo that."""
        self.settled, self.settled_in = True, frame
        if frame is not None:
            frame.root.note_settled(self.queue, self.ref.job_id)

    def begin_timing(self) -> Timing:
        """Note that the work on it begins, for hooks."""
        timing = self.timed = self.timed or Timing()
        timing.begin()
        return timing

    @property
    def is_settled(self) -> bool:
        """Whether it was settled, and that wasn't rolled back; may ask the database, and raise what that does."""
        return self.settled and (self.settled_in is None or self.settled_in.root.keeps_settled(self, self.settled_in))


class JobHandle(protocols.JobHandle):
    """One claim of one job, where it belongs."""

    __slots__ = ("_claim", "_entered_in", "_home", "_inside")

    def __init__(self, home: Home, claim: Claim) -> None:
        self._home = home
        self._claim = claim
        self._inside: Transaction | None = None
        self._entered_in = 0  # the process that entered the block

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} of {self.queue!r}>"

    def within(self, session: Session) -> JobHandle:
        """Return the same claim in another session of the same store; ``ValidationError`` for another store's."""
        self._check_store(session)
        return JobHandle(session, self._claim)

    def _check_store(self, session: Session) -> None:
        if session.store is not self._home.store:
            raise ValidationError("the handle belongs to another store")

    @property
    def claim(self) -> Claim:
        """What it shares with the other handles of its claim."""
        return self._claim

    def ref_for(self, queue: str, session: Session) -> ClaimRef | None:
        """Return the claim's reference for ``ack_batch``; ``None`` where it is another queue's (Z-7)."""
        self._check_store(session)
        return self._claim.ref if self._claim.queue == queue else None

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store that it belongs to."""
        return self._home.store

    @property
    def id(self) -> int:
        """The job's id."""
        return self._claim.ref.job_id

    @property
    def token(self) -> int:
        """The claim token."""
        return self._claim.token

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """Which claim of the job this is, from 1."""
        return self._row().attempts

    @property
    def payload(self) -> Any:
        """The decoded payload."""
        row = self._row()
        return self._home.store.codecs.decode(row.codec, row.payload)

    @property
    def raw(self) -> bytes:
        """The payload's bytes."""
        return self._row().payload

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""
        return decode_headers(self._row().headers)

    @property
    def priority(self) -> int:
        """The priority."""
        return self._row().priority

    @property
    def deadline(self) -> datetime:
        """Until when the claim is valid, as far as this handle knows."""
        known = self._claim.deadline
        if known is None:
            known = self._row().lease_until
        assert known is not None  # noqa: S101 - a claim that is current has a deadline, by the engine's own constraint
        return to_datetime(known)

    @property
    def job(self) -> Job:
        """The record as claimed."""
        return Job.from_row(self._row(), self._home.store.codecs.decode)

    def _row(self) -> JobRow:
        row = self._recall()
        if row is None:
            raise ClaimLostError(f"job {self.id} of {self.queue!r}: this claim is not its current one any more")
        return row

    def _recall(self) -> JobRow | None:
        claim = self._claim
        if claim.row is None:
            self._home.store.check_open()
            claim.row = self._now().executor().recall(claim.queue, claim.ref)
        return claim.row

    def _now(self) -> Session:
        # Inside handle.transaction() the handle is bound to it, but only for the thread it belongs to: a heartbeat from
        # another thread goes its own way, and waits for the row like anybody else.
        inside = self._inside
        return self._home.now() if inside is None or not inside.of_this_thread else TransactionSession(inside)

    # --- what it does --------------------------------------------------------------------------------------------

    def ack(self, *, result: object = None) -> bool:
        """Delete the job, and keep the result where the job says so."""
        store, claim = self._home.store, self._claim
        store.check_open()
        data = None
        if result is not None:
            data = encode_result(store, result)  # a wrong one is never silently passed over
            check_results(store)
        session = self._now()
        if not (claim.may_keep and store.capabilities.results):
            acked = session.executor().ack(claim.queue, [claim.ref], store.now())
            return self._settle(session, acked, lambda hooks: hooks.succeeded(claim))
        ref = self._result_ref(data)
        batch = keeping(session).ack_keeping(claim.queue, [ref], result_codec(store), store.now())
        if self._inside is not None and not batch.done:
            claim.result = data
        return self._settle_keeping(session, batch)

    def _result_ref(self, data: bytes | None) -> ResultRef:
        store = self._home.store
        return ResultRef(self.id, self._claim.token, encode_result(store, None) if data is None else data)

    def _settle_keeping(self, session: Session, batch: KeptBatch) -> bool:
        claim = self._claim
        ring_results(session, batch.kept)
        return self._settle(session, batch.done, lambda hooks: hooks.succeeded(claim))

    def heartbeat(self, extend: Duration | None = None) -> bool:
        """Set the deadline anew."""
        store, claim = self._home.store, self._claim
        store.check_open()
        extension = None if extend is None else duration(extend, "extend", positive=True)
        session = self._now()
        moved = session.executor().extend(claim.queue, [claim.ref], extension, store.now())
        if self.id not in moved:
            note_refused(session, [self])
            return False
        deadline, sooner = moved[self.id]
        claim.extended(deadline, session.frame)
        if sooner:
            session.ring(claim.queue, 0)
        return True

    def retry(self, error: str | BaseException | None = None, delay: Duration | None = None) -> bool:
        """Give the job back for a later attempt, or bury it."""
        store, claim = self._home.store, self._claim
        store.check_open()
        text = error_text(error)
        asked = None if delay is None else duration(delay, "delay")
        session = self._now()
        row, executor = claim.row, session.executor()
        if row is None and (asked is None or store.hooks is not None):
            # A rebuilt handle asks the database for the attempt that the curve needs, and that tells a death from a retry.
            row = claim.row = executor.recall(claim.queue, claim.ref)
            if row is None:
                note_refused(session, [self])
                return False
        if asked is None:
            assert row is not None  # noqa: S101 - asked for just now
            asked = draw_for(row)
        wait = asked
        ref = RetryRef(self.id, claim.token, wait, text)
        changed = executor.retry(claim.queue, [ref], EXHAUSTED, store.now())
        retried = self._settle(session, changed, lambda hooks: _tell_retried(hooks, claim, text, wait))
        if retried:
            session.ring(claim.queue, 0 if wait else 1)
            if claim.row is None or claim.row.attempts >= claim.row.max_attempts:  # it is dead, or may be
                self._ring_result(session)
        return retried

    def fail(self, error: str | BaseException | None = None) -> bool:
        """Move the job to the dead table."""
        store, claim = self._home.store, self._claim
        store.check_open()
        text = error_text(error)
        ref = BuryRef(self.id, claim.token, FAILED if text is None else text)
        session = self._now()
        changed = session.executor().bury(claim.queue, [ref], store.now())
        buried = self._settle(session, changed, lambda hooks: hooks.died(claim, ref.error))
        if buried:
            self._ring_result(session)
        return buried

    def release(self, delay: Duration | None = None) -> bool:
        """Give the job back as if never claimed."""
        store, claim = self._home.store, self._claim
        store.check_open()
        wait = None if delay is None else duration(delay, "delay")
        ref = ReleaseRef(self.id, claim.token, wait)
        session = self._now()
        released = self._settle(session, session.executor().release(claim.queue, [ref], store.now()), None)
        if released:
            session.ring(claim.queue, 0 if wait else 1)
        return released

    def _ring_result(self, session: Session) -> None:
        if self._claim.may_keep and self._home.store.capabilities.results:
            ring_results(session, [self.id])

    def _settle(self, session: Session, changed: list[int], tell: Callable[[Telling], None] | None) -> bool:
        if not changed:
            note_refused(session, [self])
            return False
        self._claim.settle(session.frame)
        hooks = session.store.hooks
        if hooks is not None and tell is not None:
            session.after_commit(lambda: tell(hooks))
        return True

    # --- with handle, and with handle.transaction() ---------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a transaction that commits the job's effects and its ack together."""
        return JobTransaction(self)

    def __enter__(self) -> Self:
        """Begin work that is acked when the block ends well."""
        self._home.store.check_open()
        self._entered_in = os.getpid()
        if self._home.store.hooks is not None:
            self._claim.begin_timing()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack on success, retry on an exception; leave alone what was settled inside."""
        if self._entered_in != os.getpid():
            return  # left by a fork's child: the work and its claim are the parent's
        if value is not None:
            self.retry_after(value)
        elif not self._claim.is_settled and not self.ack():
            raise self.lost()

    def retry_after(self, error: BaseException) -> None:
        """Retry with the exception's text, unless it is settled, and never hide that exception by failing."""
        try:
            if not self._claim.is_settled:
                self.retry(error)
        except StoreClosedError:
            _LOG.debug("job %d of %r failed as the store was closed", self.id, self.queue)
        except Exception:  # noqa: BLE001 - whatever fails here, an application's clock= included: the block's own
            # exception is the one to go up. The job is not lost for it: its claim lapses, and it is claimed again.
            _LOG.warning("job %d of %r failed, and could not be retried", self.id, self.queue, exc_info=True)

    def lost(self) -> ClaimLostError:
        """Return the error to raise where this claim was lost."""
        return ClaimLostError(f"job {self.id} of {self.queue!r}: the claim was lost before the job was acked")

    def tell_lost(self) -> None:
        """Tell the hooks that this claim was lost."""
        note_refused(self._home.store.auto_session, [self])

    @property
    def in_transaction(self) -> bool:
        """Whether a ``transaction()`` of it is open, in whichever thread."""
        return self._inside is not None

    # --- for JobTransaction ---------------------------------------------------------------------------------------

    def begin_inside(self) -> Transaction:
        """Begin a transaction, hold the claim in it, and bind the handle to it (J-10)."""
        store = self._home.store
        session = self._home.now()
        if isinstance(session, GoneSession):
            note_refused(session, [self])
            raise self.lost()
        if session.frame is not None:
            # The claim isn't committed: a transaction of the store's own would not see it, or would wait for it.
            raise TransactionError(
                "the handle is bound to an open transaction or a joined connection: work there, and ack in it"
            )
        transaction = store.transaction()
        transaction.__enter__()
        try:
            if not transaction.executor().hold(self._claim.queue, self._claim.ref, store.now()):
                raise self.lost()
        except BaseException as exc:
            try:
                transaction.__exit__(*sys.exc_info())
            finally:
                transaction.abandon()
            if isinstance(exc, ClaimLostError):
                note_refused(session, [self])
            raise
        self._inside = transaction
        if store.hooks is not None:
            self._claim.begin_timing()
        return transaction

    def ack_inside(self, transaction: Transaction) -> bool:
        """Ack by the token alone, unless the claim was settled inside, by whichever handle or id (J-10, Z-3)."""
        claim = self._claim
        # What was settled elsewhere doesn't count: had it lasted, the claim could not have been held.
        if transaction.has_settled(claim.queue, claim.ref.job_id):
            return True
        store, session = self._home.store, TransactionSession(transaction)
        if claim.may_keep and store.capabilities.results:
            ref = self._result_ref(claim.result)
            batch = keeping(session).conclude_keeping(claim.queue, ref, result_codec(store), store.now())
            return self._settle_keeping(session, batch)
        if not transaction.executor().conclude(claim.queue, claim.ref):
            return False
        claim.settle(transaction)
        hooks = self._home.store.hooks
        if hooks is not None:
            transaction.after_commit(lambda: hooks.succeeded(claim))
        return True

    def works_in(self, transaction: Transaction) -> bool:
        """Say whether it is bound to that transaction of its own."""
        return self._inside is transaction

    def leave_inside(self) -> None:
        """Bind the handle to its own session again."""
        self._inside = None


def note_settled(session: Session, queue: str, job_id: int, handles: Iterable[JobHandle]) -> None:
    """Remember that a claim was acked from outside, by its id or by these handles of it (Z-3)."""
    frame, claims = session.frame, [handle.claim for handle in handles]
    if frame is not None:
        frame.root.note_settled(queue, job_id)
    for claim in claims:
        claim.settle(frame)
    hooks = session.store.hooks
    if hooks is not None:
        session.after_commit(lambda: hooks.succeeded(claims[0]) if claims else hooks.acked_by_id(queue, job_id))


def note_refused(session: Session, handles: Iterable[JobHandle]) -> None:
    """Tell that the claim of these handles turned out lost, unless it is by the handles' own doing that it is over."""
    hooks = session.store.hooks
    if hooks is not None:
        for claim in {handle.claim for handle in handles if not handle.claim.settled}:
            session.after_commit(partial(hooks.lost, claim))


def _tell_retried(hooks: Telling, claim: Claim, error: str | None, delay: Micros) -> None:
    row = claim.row
    if row is not None and row.attempts >= row.max_attempts:
        hooks.died(claim, EXHAUSTED if error is None else error)
    else:
        hooks.retried(claim, error, delay)


class JobTransaction(AbstractContextManager["Transaction"]):
    """What ``handle.transaction()`` gives: effects and ack in one commit (J-10, Z-3)."""

    def __init__(self, handle: JobHandle) -> None:
        self._handle = handle
        self._transaction: Transaction | None = None
        self.statement: Statement | None = None

    @property
    def entered(self) -> bool:
        """Whether its block has begun."""
        return self._transaction is not None

    def __enter__(self) -> Transaction:
        """Begin; raise ``ClaimLostError`` where the claim isn't valid."""
        self._transaction = self._handle.begin_inside()
        return self._transaction

    def _leave(
        self, _kind: type[BaseException] | None, value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Ack and commit; on an exception roll back and then retry the job with its text."""
        handle, transaction = self._handle, self._transaction
        if transaction is None:
            return
        if value is not None:
            self._undo(handle, transaction, value, retry=True)
            return
        try:
            acked = handle.ack_inside(transaction)
            if acked:
                transaction.__exit__(None, None, None)
        except BaseException as exc:
            self._undo(handle, transaction, exc, retry=True)
            raise
        handle.leave_inside()
        if not acked:
            lost = handle.lost()
            self._undo(handle, transaction, lost, retry=False)  # there is no claim left to retry by
            handle.tell_lost()
            raise lost
        self.statement = None

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
        ) -> None:
            """Ack and commit; on an exception roll back and then retry the job with its text."""

    else:
        __exit__ = Leaving(_leave)

    def abandon(self) -> None:
        """Roll back, where a signal's handler kept it from ending; the claim lapses."""
        transaction = self._transaction
        if transaction is not None:
            transaction.abandon()
            if self._handle.works_in(transaction):
                self._handle.leave_inside()

    @staticmethod
    def _undo(handle: JobHandle, transaction: Transaction, error: BaseException, *, retry: bool) -> None:
        try:
            transaction.__exit__(type(error), error, error.__traceback__)
        finally:
            handle.leave_inside()
        if retry and transaction.is_of_this_process():  # in a fork's child, the job is the parent's to retry
            handle.retry_after(error)
