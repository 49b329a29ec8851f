"""State machines that drive an engine and the model side by side, and compare them after each step.

Hypothesis draws the steps. Every step is done by the engine and by ``contract_tests.model``; what the engine answered must be
what the model answers: which jobs, in which order, granted or refused. After each step every row is compared, through the
product and through the harness's back door, so that every job ever enqueued is in exactly one place (Q-7), and, while a
transaction is open, so that nobody outside sees any of it (T-2).

Claims are kept for good. Most of them are stale before long, and are used all the same: a stale one must be refused.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
)

from alkstore import Backoff, ClaimLostError
from alkstore.protocols import JobHandle, Queue, Store, Transaction
from contract_tests.compare import length, micros, model_rows, model_view, moment, row_views, stats_view, view
from contract_tests.harness import Harness
from contract_tests.model import SECOND, Fate, ModelClaim, ModelStore, Savepoint, curve
from contract_tests.travel import START, Clock


@dataclass(frozen=True)
class Ground:
    """What a machine stands on: one open store, whose clock it sets, and the back door to its place."""

    harness: Harness
    place: str
    store: Store
    clock: Clock


class Held(NamedTuple):
    """A claim as both sides know it."""

    queue: str
    handle: JobHandle
    claim: ModelClaim


class Stamps(NamedTuple):
    """The options of the handle that enqueues, in the model's units."""

    visibility_timeout: int
    max_attempts: int
    backoff_base: int
    backoff_cap: int
    retention: int | None


class Ask(NamedTuple):
    """What an enqueue says for its one job, in the model's units; ``run_at`` counts from now."""

    priority: int
    delay: int | None
    run_at: int | None
    expires: int | None
    max_attempts: int | None


class Open(NamedTuple):
    """A transaction or savepoint that is open, and the model as it was before."""

    manager: AbstractContextManager[Transaction]
    bound: Transaction
    before: Savepoint


class Undo(Exception):
    """Leaves a block in order to roll it back."""


class _Bound(Protocol):
    """What a store and a transaction have in common."""

    def queue(self, name: str) -> Queue: ...


# Two queues whose names a careless engine would confuse: case, blanks, quotes and patterns count (N-1).
_NAMES: Final = ('It\'s "100%"', 'it\'s "100%" ')
_WORKERS: Final = ("worker", "worker", "Wörker ")
_ERRORS: Final = (None, "", "boom", "später 🜲")
_OUT_OF_RANGE: Final = (-1, 0, 2**63, 2**70)

_runs = itertools.count()

_queues = st.integers(0, len(_NAMES) - 1)
_short = st.sampled_from((0, 1, SECOND, 5 * SECOND, 60 * SECOND))
_positive = st.sampled_from((1, SECOND, 10 * SECOND, 30 * SECOND))
_stamps = st.builds(
    Stamps,
    visibility_timeout=_positive,
    max_attempts=st.integers(1, 3),
    backoff_base=st.sampled_from((1, 2, 5, 7)),
    backoff_cap=st.sampled_from((1, 1, 3, 10, 3600)),
    retention=st.sampled_from((None, None, 0, 5 * SECOND)),
)
_asks = st.builds(
    Ask,
    priority=st.sampled_from((0, 0, 1, -1, 2**31 - 1, -(2**31))),
    delay=st.none() | _short,
    run_at=st.none() | st.sampled_from((-100 * SECOND, -1, 0, 1, 30 * SECOND)),
    expires=st.none() | st.none() | _positive,
    max_attempts=st.none() | st.none() | st.integers(1, 3),
)
_picks = st.lists(st.integers(0, 10_000), max_size=3)
_states = st.sampled_from((Fate.PENDING, Fate.PROCESSING, Fate.DEAD))


class StoreMachine(RuleBasedStateMachine):
    """One store, two queues, one thread, and time that only goes forward."""

    claims: Bundle[Held] = Bundle("claims")

    goes_back = False
    """Whether time may be put back, as a server's clock may be."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        self.ground.clock.set(START)
        self.model = ModelStore()
        self.open: list[Open] = []
        self.held: list[Held] = []
        run = next(_runs)
        self.names = [f"{name}{run}" for name in _NAMES]

    # --- helpers -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Return what the settable clock shows."""
        return micros(self.ground.clock())

    def here(self, queue: str) -> Queue:
        """Return the queue where calls are allowed: in the innermost transaction, or else in the store."""
        where: _Bound = self.open[-1].bound if self.open else self.ground.store
        return where.queue(queue)

    def bound(self, held: Held) -> JobHandle:
        """Return the handle where its operations are allowed."""
        return self.open[-1].bound.bind(held.handle) if self.open else held.handle

    def known_ids(self) -> list[int]:
        """Return the ids of all jobs ever, and some that no job can have."""
        return [*sorted(self.model.fates), *_OUT_OF_RANGE]

    def hold(self, queue: str, handles: list[JobHandle], claims: list[ModelClaim]) -> list[Held]:
        """Compare what was handed out, in order, and keep it."""
        assert [claim.job for claim in claims] == [handle.id for handle in handles]
        held = [Held(queue, handle, claim) for handle, claim in zip(handles, claims, strict=True)]
        for one in held:
            expected = self.model.jobs[one.claim.job]
            assert (queue, expected.attempts, expected.priority) == (
                one.handle.queue,
                one.handle.attempt,
                one.handle.priority,
            )
            assert (expected.payload, expected.deadline) == (one.handle.payload, micros(one.handle.deadline))
            assert model_view(expected) == view(one.handle.job)
        self.held += held
        return held

    def follow_retry(self, held: Held, error: str | None) -> None:
        """Have the model retry as the engine has, with the delay that was drawn there, whose bounds are checked (J-7).

        Hypothesis repeats what it has seen, and a delay of another length would lead elsewhere: where the curve left anything
        to chance, the job is cancelled then.
        """
        job, claim = self.model.jobs[held.claim.job], held.claim
        low, high, delay = 0, 0, 0
        if not job.spent:
            found = self.here(held.queue).get_job(claim.job)
            assert found is not None
            seconds, rest = divmod(micros(found.run_at) - self.now, SECOND)
            low, high = curve(job.attempts, job.backoff_base, job.backoff_cap)
            assert rest == 0, "the curve gives whole seconds"
            assert low <= seconds <= high
            delay = seconds * SECOND
        assert self.model.retry(self.now, claim, error, delay)
        if low != high:
            assert self.model.cancel(held.queue, claim.job) is self.here(held.queue).cancel(claim.job) is True

    # --- enqueue and claim ---------------------------------------------------------------------------------------

    @rule(queue=_queues, stamps=_stamps, asks=st.lists(_asks, min_size=1, max_size=4))
    def enqueue(self, queue: int, stamps: Stamps, asks: list[Ask]) -> None:
        """Enqueue jobs, each with its own options, through a handle with the stamps."""
        name = self.names[queue]
        where: Store | Transaction = self.open[-1].bound if self.open else self.ground.store
        handle = where.queue(
            name,
            visibility_timeout=length(stamps.visibility_timeout),
            max_attempts=stamps.max_attempts,
            backoff=Backoff(stamps.backoff_base, stamps.backoff_cap),
            dead_letter_retention=None if stamps.retention is None else length(stamps.retention),
        )
        for number, ask in enumerate(asks):
            job_id = handle.enqueue(
                {"n": number},
                priority=ask.priority,
                delay=None if ask.delay is None else length(ask.delay),
                run_at=None if ask.run_at is None else moment(self.now + ask.run_at),
                expires=None if ask.expires is None else length(ask.expires),
                max_attempts=ask.max_attempts,
            )
            self.model.enqueue(
                self.now,
                job_id,
                name,
                {"n": number},
                visibility_timeout=stamps.visibility_timeout,
                max_attempts=stamps.max_attempts if ask.max_attempts is None else ask.max_attempts,
                backoff_base=stamps.backoff_base,
                backoff_cap=stamps.backoff_cap,
                retention=stamps.retention,
                priority=ask.priority,
                delay=ask.delay,
                run_at=None if ask.run_at is None else self.now + ask.run_at,
                expires=ask.expires,
            )

    @rule(target=claims, queue=_queues, worker=st.sampled_from(_WORKERS))
    def claim_one(self, queue: int, worker: str) -> MultipleResults[Held]:
        """Claim the next job."""
        name = self.names[queue]
        handle = self.here(name).claim_one(worker)
        claims = self.model.claim(self.now, name, worker, 1)
        return multiple(*self.hold(name, [] if handle is None else [handle], claims))

    @rule(target=claims, queue=_queues, worker=st.sampled_from(_WORKERS), n=st.integers(-1, 5))
    def claim_batch(self, queue: int, worker: str, n: int) -> MultipleResults[Held]:
        """Claim several jobs, in the exact order."""
        name = self.names[queue]
        handles = self.here(name).claim_batch(worker, n)
        return multiple(*self.hold(name, handles, self.model.claim(self.now, name, worker, n)))

    @rule(target=claims, held=claims)
    def rebuild(self, held: Held) -> Held:
        """Rebuild a handle from id and token, as another process would."""
        return held._replace(handle=self.ground.store.queue(held.queue).handle(held.handle.id, held.handle.token))

    # --- handles, stale ones and all -----------------------------------------------------------------------------

    @rule(held=claims)
    def ack(self, held: Held) -> None:
        """Ack: once, and only by the valid claim."""
        assert self.model.ack(self.now, held.claim) == self.bound(held).ack()

    @rule(held=claims, extend=st.none() | _positive)
    def heartbeat(self, held: Held, extend: int | None) -> None:
        """Heartbeat, with a length or with the job's own."""
        expected = self.model.heartbeat(self.now, held.claim, extend)
        assert expected == self.bound(held).heartbeat(None if extend is None else length(extend))

    @rule(held=claims, error=st.sampled_from(_ERRORS), delay=_short)
    def retry_after(self, held: Held, error: str | None, delay: int) -> None:
        """Retry with a delay that the caller says."""
        expected = self.model.retry(self.now, held.claim, error, delay)
        assert expected == self.bound(held).retry(error, delay=length(delay))

    @rule(held=claims, error=st.sampled_from(_ERRORS))
    def retry(self, held: Held, error: str | None) -> None:
        """Retry with a delay that the curve draws: its bounds are checked, and then the model is told."""
        granted = self.bound(held).retry(error)
        assert (self.model.valid(self.now, held.claim) is not None) == granted
        if granted:
            self.follow_retry(held, error)

    @rule(held=claims, error=st.sampled_from(_ERRORS))
    def fail(self, held: Held, error: str | None) -> None:
        """Fail: dead at once."""
        assert self.model.fail(self.now, held.claim, error) == self.bound(held).fail(error)

    @rule(held=claims, delay=st.none() | _short)
    def release(self, held: Held, delay: int | None) -> None:
        """Release, into the old place or a later one."""
        expected = self.model.release(self.now, held.claim, delay)
        assert expected == self.bound(held).release(None if delay is None else length(delay))

    @precondition(lambda self: not self.open and self.ground.store.capabilities.transactions)
    @rule(held=claims, ending=st.sampled_from(("well", "badly", "acked", "failed")), late=st.booleans())
    def exactly_once(self, held: Held, ending: str, late: bool) -> None:
        """Run a job inside ``handle.transaction()``, whose claim may lapse meanwhile without being taken (J-10)."""
        begun, valid = self.now, self.model.valid(self.now, held.claim)
        try:
            with held.handle.transaction() as tx:
                assert valid is not None, "entered with a claim that isn't valid"
                if ending == "acked":
                    assert held.handle.ack()
                elif ending == "failed":
                    assert held.handle.fail("inside")
                if late and valid.deadline is not None:
                    self.ground.clock.set(moment(valid.deadline + 1))
                assert tx.queue(held.queue).get_job(held.handle.id) is None or ending != "acked"
                if ending == "badly":
                    raise Undo("badly")
        except ClaimLostError:
            assert valid is None
            return
        except Undo:
            assert ending == "badly"
        assert valid is not None
        if ending == "badly":
            if self.model.valid(self.now, held.claim):
                self.follow_retry(held, "Undo: badly")
        elif ending == "failed":
            assert self.model.fail(begun, held.claim, "inside")
        else:
            assert self.model.conclude(held.claim)

    # --- queue operations ----------------------------------------------------------------------------------------

    @rule(queue=_queues, stale=_picks, bare=_picks)
    def ack_batch(self, queue: int, stale: list[int], bare: list[int]) -> None:
        """Ack handles, stale and of the other queue too, and bare ids, existing or not, each job once."""
        name, ids = self.names[queue], self.known_ids()
        held = [self.held[pick % len(self.held)] for pick in stale if self.held]
        named = [ids[pick % len(ids)] for pick in bare]
        expected = self.model.ack_batch(self.now, name, [*(one.claim for one in held), *named])
        assert expected == self.here(name).ack_batch([*(self.bound(one) for one in held), *named])

    @rule(queue=_queues, pick=st.integers(0, 10_000))
    def cancel(self, queue: int, pick: int) -> None:
        """Cancel any job: gone, acked, dead, of the other queue, or never there."""
        name, ids = self.names[queue], self.known_ids()
        job_id = ids[pick % len(ids)]
        assert self.model.cancel(name, job_id) == self.here(name).cancel(job_id)

    @rule(queue=_queues, pick=st.integers(0, 10_000))
    def retry_dead(self, queue: int, pick: int) -> None:
        """Revive any job; only a dead one of the queue can be."""
        name, ids = self.names[queue], self.known_ids()
        job_id = ids[pick % len(ids)]
        assert self.model.retry_dead(self.now, name, job_id) == self.here(name).retry_dead(job_id)

    @rule(queue=_queues)
    def sweep(self, queue: int) -> None:
        """Sweep the queue."""
        name = self.names[queue]
        assert self.model.sweep(self.now, name) == self.here(name).sweep_expired()

    @rule(queue=_queues, state=_states)
    def purge(self, queue: int, state: Fate) -> None:
        """Purge one state of the queue."""
        name = self.names[queue]
        assert self.model.purge(name, state) == self.here(name).purge(state.value)

    # --- time ----------------------------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 10_000), beside=st.sampled_from((0, 0, 1, -1)))
    def travel_to_an_edge(self, pick: int, beside: int) -> None:
        """Go to the very instant at which something changes, or to the microsecond before or after it."""
        edges = {
            edge + beside
            for job in self.model.jobs.values()
            for edge in (
                job.run_at,
                job.deadline,
                job.expires_at,
                None if job.died_at is None or job.retention is None else job.died_at + job.retention,
            )
            if edge is not None
        }
        reachable = sorted(edge for edge in edges if self.goes_back or edge > self.now)
        assume(reachable)
        self.ground.clock.set(moment(reachable[pick % len(reachable)]))

    @rule(seconds=st.sampled_from((1, 10, 100, 5000)))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.ground.clock.advance(seconds)

    # --- transactions --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 3 and self.ground.store.capabilities.transactions)
    @rule()
    def begin(self) -> None:
        """Open a transaction, or a savepoint where one is open."""
        manager = self.open[-1].bound.transaction() if self.open else self.ground.store.transaction()
        self.open.append(Open(manager, manager.__enter__(), self.model.savepoint()))

    @precondition(lambda self: bool(self.open))
    @rule()
    def commit(self) -> None:
        """Leave the innermost block well."""
        self.open.pop().manager.__exit__(None, None, None)

    @precondition(lambda self: bool(self.open))
    @rule()
    def roll_back(self) -> None:
        """Leave the innermost block by an exception, which comes out: all that it did never happened."""
        left = self.open.pop()
        reason = Undo("rolled back")
        assert not left.manager.__exit__(Undo, reason, None), "the exception was swallowed"
        self.model.rollback(left.before)

    # --- after each step -----------------------------------------------------------------------------------------

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        """Compare every row, count and lookup with the model (Q-7)."""
        for name in self.names:
            queue = self.here(name)
            assert [model_view(job) for job in self.model.listing(name)] == [view(job) for job in queue.jobs(limit=500)]
            assert self.model.stats(self.now, name) == stats_view(queue.stats())
        for job_id in self.known_ids()[-8:]:
            expected, found = self.model.get(self.names[0], job_id), self.here(self.names[0]).get_job(job_id)
            assert (None if expected is None else model_view(expected)) == (None if found is None else view(found))

    @invariant()
    def outsiders_see_what_is_committed(self) -> None:
        """Compare the rows that the back door sees with the model as it was before the open transaction (T-2)."""
        committed = self.open[0].before.jobs if self.open else self.model.jobs
        found = row_views(self.ground.harness.peek(self.ground.place), self.names)
        assert model_rows(committed.values()) == found

    def teardown(self) -> None:
        """Close what is open, and leave no rows for the next run to wade through."""
        while self.open:
            self.open.pop().manager.__exit__(Undo, Undo("the run is over"), None)
        for name in self.names:
            for state in (Fate.PENDING, Fate.PROCESSING, Fate.DEAD):
                self.ground.store.queue(name).purge(state.value)


class UnsteadyClockMachine(StoreMachine):
    """The same, with a clock that also steps back: what isn't claimable at the new now may not be handed out (Q-CLAIM-4)."""

    goes_back = True

    @rule(seconds=st.sampled_from((1, 10, 100)))
    def step_back(self, seconds: int) -> None:
        """Put the clock back."""
        self.ground.clock.advance(-seconds)
