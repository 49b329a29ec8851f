"""Threads against threads: claims, acks, sweeps, cancels and revivals that meet (Q-CLAIM-2, J-1, J-8, Q-3, Q-6, Q-7)."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from alkstore import State
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.churn import Churn
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.history import History
from contract_tests.report import SKIPPED
from contract_tests.scale import rounds
from contract_tests.steps import Operation, Peek, claimed
from contract_tests.together import WAIT, Together, beside
from contract_tests.travel import MICROSECOND, Clock

Queues = Callable[[int], list[Queue]]


@pytest.fixture(params=["one store", "a store each"])
def queues(request: pytest.FixtureRequest, store: Store, open_store: OpenStore, queue: Queue, clock: Clock) -> Queues:
    """Gives so many handles of ``queue``: all of one store, or each of a store of its own."""

    def give(number: int) -> list[Queue]:
        if request.param == "one store":
            return [queue] * number
        return [queue, *(open_store(clock=clock).queue(queue.name) for _ in range(number - 1))]

    if request.param != "one store" and not store.capabilities.processes:
        pytest.skip(f"{SKIPPED}processes")
    return give


# --- claims against claims ----------------------------------------------------------------------------------------------


@clause("Q-CLAIM-2")
def test_two_workers_and_one_job(queue: Queue, queues: Queues) -> None:
    """Round after round exactly one of two gets the job."""
    two = queues(2)
    with Together(2) as together:
        for turn in range(rounds(500)):
            job_id = queue.enqueue(turn)
            handles = together.all([lambda q=q: q.claim_one("worker") for q in two])
            assert [job_id] == [handle.id for handle in handles if handle is not None]
            assert [True] == [handle.ack() for handle in handles if handle is not None]


@clause("Q-CLAIM-2", "Q-CLAIM-5")
def test_two_workers_and_one_lapsed_job(queue: Queue, queues: Queues, clock: Clock) -> None:
    """A lapsed claim is taken over by exactly one of two, as the next attempt."""
    queue.enqueue("work", max_attempts=2**31 - 1)
    clock.set(claimed(queue).deadline + MICROSECOND)
    two = queues(2)
    with Together(2) as together:
        for turn in range(rounds(300)):
            got = [h for h in together.all([lambda q=q: q.claim_one("worker") for q in two]) if h is not None]
            assert [turn + 2] == [handle.attempt for handle in got]
            clock.set(got[0].deadline + MICROSECOND)


@clause("Q-CLAIM-2", "Q-CLAIM-3", "Q-7")
def test_six_workers_and_240_jobs(queue: Queue, queues: Queues, peek: Peek) -> None:
    """Every job is handed out once and acked once, and each worker gets its own in the order of hand-out."""
    jobs, workers = 240, 6
    six = queues(workers)
    with Together(workers) as together:
        for turn in range(rounds(20)):
            history = History()
            for number in range(jobs):
                history.attempted(f"{turn}-{number}")
            ids = queue.enqueue_many(f"{turn}-{number}" for number in range(jobs))
            for number in range(jobs):
                history.acknowledged(f"{turn}-{number}")
            taken = together.all([lambda q=q, h=history: drain(q, h) for q in six])
            assert {} == history.check().faults
            assert sorted(ids) == sorted(job_id for one in taken for job_id in one)
            assert all(one == sorted(one) for one in taken)
    assert [] == peek()


def drain(queue: Queue, history: History) -> list[int]:
    """Claim and ack until there is nothing, in batches of any size; return the ids in the order of hand-out."""
    dice = random.Random()
    taken: list[int] = []
    while handles := queue.claim_batch("worker", dice.randint(1, 5)):
        for handle in handles:
            history.claimed(handle.payload, handle.attempt)
        taken += [handle.id for handle in handles]
        if dice.random() < 0.5:
            assert len(handles) == queue.ack_batch(handles)
        else:
            assert all(handle.ack() for handle in handles)
        for handle in handles:
            history.done(handle.payload)
    return taken


# --- claims against sweeps ------------------------------------------------------------------------------------------------


@clause("Q-CLAIM-2", "Q-CLAIM-6", "Q-5", "J-8")
def test_claims_racing_with_sweeps(store: Store, queue: Queue, queues: Queues, clock: Clock, peek: Peek) -> None:
    """Each job goes one way: what can be handed out is handed out once, the rest dies once, and nothing is lost."""
    four = queues(4)
    own = store.queue(queue.name, visibility_timeout=1)
    with Together(4) as together:
        for _ in range(rounds(100)):
            lapsed = own.enqueue_many(["lapsed"] * 5, max_attempts=2)
            spent = own.enqueue_many(["spent"] * 5, max_attempts=1)
            assert 10 == len(own.claim_batch("gone", 10))
            expired = own.enqueue_many(["expired"] * 5, expires=2)
            fresh = own.enqueue_many(["fresh"] * 5)
            clock.advance(2)
            swept: list[int] = []
            handles = [
                handle
                for taken in together.all(
                    [
                        lambda: four[0].claim_batch("one", 8),
                        lambda swept=swept: swept.append(four[1].sweep_expired()) or [],
                        lambda: four[2].claim_batch("two", 8),
                        lambda swept=swept: swept.append(four[3].sweep_expired()) or [],
                    ]
                )
                for handle in taken
            ]
            ids = [handle.id for handle in handles]
            assert len(ids) == len(set(ids))
            assert set(ids) <= {*lapsed, *fresh}
            rest = claim_all(queue)
            assert sorted([*lapsed, *fresh]) == sorted([*ids, *(handle.id for handle in rest)])
            swept.append(queue.sweep_expired())
            assert sum(swept) <= 10
            dead = {job.id: job.last_error for job in queue.jobs(State.DEAD)}
            assert {**dict.fromkeys(spent, "max attempts exceeded"), **dict.fromkeys(expired, "expired")} == dead
            assert 20 == len(peek())
            assert all(handle.ack() for handle in [*handles, *rest])
            assert 10 == queue.purge(State.DEAD)


def claim_all(queue: Queue) -> list[JobHandle]:
    """Claim until there is nothing."""
    handles: list[JobHandle] = []
    while batch := queue.claim_batch("rest", 100):
        handles += batch
    return handles


@clause("Q-5", "J-8")
def test_sweeps_racing_with_sweeps_count_each_job_once(queues: Queues, queue: Queue, clock: Clock, peek: Peek) -> None:
    """The numbers that they return add up to the number of jobs moved."""
    three = queues(3)
    with Together(3) as together:
        for _ in range(rounds(50)):
            ids = queue.enqueue_many(["x"] * 50, expires=1)
            clock.advance(1)
            moved = sum(together.all([q.sweep_expired for q in three])) + queue.sweep_expired()
            assert (50, ids) == (moved, [row.id for row in peek() if row.table == "dead"])
            assert 50 == queue.purge(State.DEAD)


# --- the old owner against the new ------------------------------------------------------------------------------------------

EXCLUSIVE: dict[str, Operation] = {
    "ack": lambda handle: handle.ack(),
    "heartbeat": lambda handle: handle.heartbeat(extend=3600),
    "retry": lambda handle: handle.retry("x", delay=3600),
    "fail": lambda handle: handle.fail("x"),
    "release": lambda handle: handle.release(delay=3600),
}
"""Operations after which nobody else can be handed the job at once."""

exclusive = pytest.mark.parametrize("operation", EXCLUSIVE.values(), ids=EXCLUSIVE.keys())


@clause("J-1", "Q-CLAIM-2", needs="processes")
@exclusive
@pytest.mark.parametrize("order", ["owner first", "reclaim first", "at once"])
def test_an_owner_racing_with_a_reclaim(
    order: str, operation: Operation, open_store: OpenStore, queue_name: str, clock: Clock
) -> None:
    """Where the owner's clock says "in time" and the other's "lapsed", exactly one of the two is granted the job."""
    ahead = Clock(clock() + timedelta(seconds=60))
    owner, other = open_store(clock=clock).queue(queue_name), open_store(clock=ahead).queue(queue_name)
    wins: Counter[bool] = Counter()
    with Together(2) as together:
        for _ in range(rounds(100)):
            owner.enqueue("work")
            mine = claimed(owner, "same name")
            clock.set(mine.deadline)
            ahead.set(mine.deadline + MICROSECOND)
            if order == "at once":
                granted, theirs = together.both(lambda mine=mine: operation(mine), lambda: other.claim_one("same name"))
            elif order == "owner first":
                granted, theirs = operation(mine), other.claim_one("same name")
            else:
                theirs = other.claim_one("same name")
                granted = operation(mine)
            assert granted == (theirs is None), "both were granted the job, or neither"
            assert order == "at once" or granted == (order == "owner first")
            wins[granted] += 1
            if theirs is not None:
                assert theirs.ack()
            for state in State:
                owner.purge(state)
    assert rounds(100) == wins.total()


@clause("J-1", "Q-CLAIM-6", "Q-5", needs="processes")
@exclusive
@pytest.mark.parametrize("by", ["claim", "sweep"])
def test_an_owner_racing_with_the_burial_of_its_job(
    by: str, operation: Operation, open_store: OpenStore, queue_name: str, clock: Clock, peek: Peek
) -> None:
    """On the last attempt, where the clocks differ, the owner is granted or the job is buried as exhausted, never both."""
    ahead = Clock(clock() + timedelta(seconds=60))
    owner, other = open_store(clock=clock).queue(queue_name), open_store(clock=ahead).queue(queue_name)

    def bury() -> None:
        if by == "sweep":
            other.sweep_expired()
        else:
            assert other.claim_one("other") is None

    with Together(2) as together:
        for _ in range(rounds(100)):
            owner.enqueue("work", max_attempts=1)
            mine = claimed(owner)
            clock.set(mine.deadline)
            ahead.set(mine.deadline + MICROSECOND)
            granted, _ = together.both(lambda mine=mine: operation(mine), bury)
            buried = ["max attempts exceeded"] == [row.last_error for row in peek()]
            assert granted != buried, "both were granted the job, or neither"
            for state in State:
                owner.purge(state)


@clause("Q-2", "J-1", "Q-CLAIM-2", needs="processes")
def test_a_batch_of_acks_racing_with_a_reclaim(
    open_store: OpenStore, queue_name: str, clock: Clock, peek: Peek
) -> None:
    """Each job of the batch is the owner's or the other's: the two numbers add up, and the reclaimed ones are there."""
    jobs = 20
    ahead = Clock(clock() + timedelta(seconds=60))
    owner, other = open_store(clock=clock).queue(queue_name), open_store(clock=ahead).queue(queue_name)
    with Together(2) as together:
        for _ in range(rounds(200)):
            owner.enqueue_many(range(jobs))
            mine = owner.claim_batch("same name", jobs)
            clock.set(mine[0].deadline)
            ahead.set(mine[0].deadline + MICROSECOND)
            acked, theirs = together.both(
                lambda mine=mine: owner.ack_batch(mine), lambda: other.claim_batch("same name", jobs // 2)
            )
            assert jobs == acked + len(theirs)
            assert [handle.id for handle in theirs] == [row.id for row in peek()]
            assert [True] * len(theirs) == [handle.ack() for handle in theirs]


@clause("J-1", "Q-CLAIM-2")
def test_an_ack_racing_with_the_clock_and_a_reclaim(queue: Queue, queues: Queues, clock: Clock, peek: Peek) -> None:
    """While time passes the deadline, never are both the ack and the reclaim granted, and a refused ack leaves the job."""
    owner, other = queues(2)
    with Together(3) as together:
        for _ in range(rounds(200)):
            queue.enqueue("work")
            mine = claimed(owner)
            clock.set(mine.deadline)
            acked: list[bool] = []
            taken: list[JobHandle | None] = []
            together.all(
                [
                    lambda acked=acked, mine=mine: acked.append(mine.ack()),
                    lambda: clock.advance(MICROSECOND) and None,
                    lambda taken=taken: taken.append(other.claim_one("other")),
                ]
            )
            assert not (acked[0] and taken[0] is not None)
            assert acked[0] == (peek() == [])
            left = taken[0] or other.claim_one("other")
            assert acked[0] == (left is None)
            assert left is None or left.ack()


# --- cancelling, reviving, purging against others ----------------------------------------------------------------------------


@clause("Q-3", "J-1")
@exclusive
def test_a_cancel_racing_with_the_jobs_worker(operation: Operation, queue: Queue, queues: Queues, peek: Peek) -> None:
    """A cancel that is granted leaves nothing behind, whatever the worker does, and one of the two is always granted."""
    worker, operator = queues(2)
    with Together(2) as together:
        for _ in range(rounds(100)):
            job_id = queue.enqueue("work")
            handle = claimed(worker)
            granted, cancelled = together.both(
                lambda handle=handle: operation(handle), lambda job_id=job_id: operator.cancel(job_id)
            )
            assert granted or cancelled
            job = queue.get_job(job_id)
            if cancelled:
                assert job is None
            if granted and job is None and not cancelled:
                assert operation is EXCLUSIVE["ack"]
            if operation in (EXCLUSIVE["ack"], EXCLUSIVE["fail"]):
                assert granted != cancelled, (
                    "a job that is gone or dead can't be cancelled, nor one cancelled be settled"
                )
            queue.purge(State.DEAD)
            assert [] == peek()


@clause("Q-6")
def test_a_dead_job_is_revived_once_however_many_ask(queue: Queue, queues: Queues, peek: Peek) -> None:
    """Of four who ask at one moment, one is told ``True``, and there is one job."""
    four = queues(4)
    job_id = queue.enqueue("work")
    with Together(4) as together:
        for _ in range(rounds(200)):
            assert claimed(queue).fail()
            assert 1 == sum(together.all([lambda q=q: q.retry_dead(job_id) for q in four]))
            assert [(job_id, "live", 0)] == [(row.id, row.table, row.attempts) for row in peek()]


@clause("Q-6", "Q-7")
def test_a_revival_racing_with_a_purge(queue: Queue, queues: Queues, peek: Peek) -> None:
    """The dead job is revived or purged, and not both, nor neither."""
    one, other = queues(2)
    with Together(2) as together:
        for _ in range(rounds(200)):
            job_id = queue.enqueue("work")
            assert claimed(queue).fail()
            revived, purged = together.both(
                lambda job_id=job_id: one.retry_dead(job_id), lambda: other.purge(State.DEAD)
            )
            assert revived == (purged == 0)
            assert [job_id] * revived == [row.id for row in peek()]
            queue.purge(State.PENDING)


@clause("Q-2", "J-2")
def test_acks_of_one_job_at_one_moment(queue: Queue, queues: Queues, peek: Peek) -> None:
    """The same claim's ack, twice by handle and once by bare id, is granted once."""
    three = queues(3)
    with Together(3) as together:
        for _ in range(rounds(200)):
            job_id = queue.enqueue("work")
            handle = claimed(queue)
            granted = together.all(
                [
                    lambda handle=handle: int(handle.ack()),
                    lambda handle=handle: int(three[1].handle(handle.id, handle.token).ack()),
                    lambda job_id=job_id: three[2].ack_batch([job_id]),
                ]
            )
            assert 1 == sum(granted)
            assert [] == peek()


@clause("Q-2", "Z-12")
def test_batches_of_acks_in_opposite_orders(queue: Queue, queues: Queues, peek: Peek) -> None:
    """Two that name the same jobs, one forwards and one backwards, neither deadlock nor count a job twice."""
    one, other = queues(2)
    with Together(2) as together:
        for _ in range(rounds(100)):
            queue.enqueue_many(range(50))
            ids = [handle.id for handle in queue.claim_batch("worker", 50)]
            forwards, backwards = together.both(
                lambda ids=ids: one.ack_batch(ids), lambda ids=ids: other.ack_batch(reversed(ids))
            )
            assert 50 == forwards + backwards
            assert [] == peek()


# --- what readers see meanwhile -----------------------------------------------------------------------------------------------


@clause("Q-ENQ-3")
@pytest.mark.parametrize(("size", "times"), [(50, 300), (2_500, 20)], ids=["one chunk", "several chunks"])
def test_readers_see_all_of_an_enqueue_many_or_none(size: int, times: int, queues: Queues) -> None:
    """While batches are enqueued, every count is a multiple of their size."""
    writer, reader = queues(2)
    over = threading.Event()
    seen: list[int] = []

    def write() -> None:
        try:
            for _ in range(rounds(times)):
                writer.enqueue_many(range(size))
        finally:
            over.set()

    def read() -> None:
        while not over.is_set():
            seen.append(reader.stats().ready)

    with Together(2) as together:
        together.both(write, read)
    assert {0} == {count % size for count in seen}
    assert seen == sorted(seen)
    assert rounds(times) * size == reader.stats().ready


@clause("J-8", "Q-4", "Q-7")
def test_readers_find_a_moving_job_in_one_place(queue: Queue, queues: Queues, peek: Peek) -> None:
    """While a job goes to the dead and back, it is found at every moment, once."""
    mover, reader = queues(2)
    job_id = queue.enqueue("work")
    over = threading.Event()
    faults: list[object] = []

    def move() -> None:
        try:
            for _ in range(rounds(300)):
                assert claimed(mover).fail()
                assert mover.retry_dead(job_id)
        finally:
            over.set()

    def read() -> None:
        while not over.is_set():
            stats = reader.stats()
            looks: list[tuple[str, object, object]] = [
                ("get_job", True, reader.get_job(job_id) is not None),
                ("jobs", [job_id], [job.id for job in reader.jobs()]),
                ("stats", 1, stats.ready + stats.scheduled + stats.processing + stats.dead),
                ("peek", [job_id], [row.id for row in peek()]),
            ]
            faults.extend(look for look in looks if look[1] != look[2])

    with Together(2) as together:
        together.both(move, read)
    assert [] == faults


# --- all at once -----------------------------------------------------------------------------------------------------


@clause("Q-7", "J-8", "Q-CLAIM-2")
def test_everything_at_once_loses_and_doubles_nothing(queues: Queues, clock: Clock, peek: Peek) -> None:
    """Enqueueing, working, failing, sweeping, reviving and cancelling from many threads: every job ends in one place."""
    *workers, tender, meddler = queues(6)
    churn = Churn(clock, rounds(400))
    churn.run(workers, tender, meddler)
    rows = peek()
    assert len(rows) == len({row.id for row in rows})
    assert {} == churn.history.check(left=[json.loads(row.payload) for row in rows]).faults


@clause("Q-CLAIM-3", "Q-CLAIM-1")
def test_jobs_that_fall_due_together_are_handed_out_to_all_who_ask(queue: Queue, queues: Queues, clock: Clock) -> None:
    """Six workers ask at the moment at which 1,000 jobs are due: each gets one, and of the highest priority there is.

    None is passed over because somebody is just looking after those that have become due.
    """
    workers = 6
    six = queues(workers)
    with Together(workers) as together:
        for _ in range(rounds(40)):
            queue.enqueue_many(range(workers), priority=1)
            queue.enqueue_many(range(1_000), priority=9, delay=1)
            clock.advance(2)
            handles = together.all([lambda worker=worker: worker.claim_one("w") for worker in six])
            assert [9] * workers == [0 if handle is None else handle.priority for handle in handles]
            queue.purge("pending")
            queue.purge("processing")


@clause("Q-CLAIM-3", "T-2", needs="processes")
def test_a_claim_in_an_open_transaction_keeps_nothing_but_its_own_jobs(
    open_store: OpenStore, queue: Queue, clock: Clock
) -> None:
    """Jobs that became due before it are handed out to others, in order, whether or not its transaction has ended.

    Where an engine has one writer at a time, the others wait for it; either way they get what comes next.
    """
    queue.enqueue_many(range(1_000), delay=1)
    clock.advance(2)
    other = open_store(clock=clock).queue(queue.name)
    with ThreadPoolExecutor(1) as thread:
        with open_store(clock=clock).transaction() as tx:
            mine = claimed(tx.queue(queue.name))
            claims = beside(thread, lambda: other.claim_batch("other", 3))
        taken = claims.result(WAIT)
    assert [0, 1, 2, 3] == [mine.payload, *(handle.payload for handle in taken)]
