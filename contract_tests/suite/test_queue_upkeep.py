"""Looking after a queue: counting, paging, reviving, purging (Q-6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from alkstore import Job, QueueStats, State, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.steps import Operation, Peek, claimed, each_operation, found, three_states
from contract_tests.travel import MICROSECOND, START, Clock

# --- counts and pages ---------------------------------------------------------------------------------------------


@clause("Q-6")
def test_stats_count_rows_as_they_stand(store: Store, queue: Queue, clock: Clock) -> None:
    """Due, not yet due, claimed (lapsed or not) and dead; an expired row counts until it is swept."""
    queue.enqueue_many(["a", "b"], expires=30)
    queue.enqueue("later", delay=100)
    queue.enqueue_many(["lapses", "holds", "dies"], priority=1)
    lapses, holds, dies = queue.claim_batch("worker-1", 3)
    assert dies.fail()
    assert holds.heartbeat(extend=3600)
    clock.set(lapses.deadline + MICROSECOND)
    store.queue("another").enqueue("not counted")
    age = clock() - START
    assert QueueStats(ready=2, scheduled=1, processing=2, dead=1, oldest_ready_age=age) == queue.stats()
    assert 2 == queue.sweep_expired()
    assert QueueStats(ready=0, scheduled=1, processing=2, dead=3, oldest_ready_age=None) == queue.stats()


@clause("Q-6", "Q-CLAIM-4")
def test_stats_tell_ready_from_scheduled_to_the_microsecond(queue: Queue, clock: Clock) -> None:
    """At its ``run_at`` a job is ready, with an age of 0; a microsecond before, it is scheduled."""
    queue.enqueue("work", delay=10)
    clock.advance(timedelta(seconds=10) - MICROSECOND)
    assert QueueStats(ready=0, scheduled=1, processing=0, dead=0, oldest_ready_age=None) == queue.stats()
    clock.advance(MICROSECOND)
    assert QueueStats(ready=1, scheduled=0, processing=0, dead=0, oldest_ready_age=timedelta(0)) == queue.stats()
    clock.advance(MICROSECOND)
    assert MICROSECOND == queue.stats().oldest_ready_age


@clause("Q-6")
def test_stats_take_the_age_from_the_oldest_ready_job(queue: Queue, clock: Clock) -> None:
    """The least ``run_at`` counts, whatever the priority, and not that of a claimed job."""
    queue.enqueue("claimed", priority=9, run_at=clock() - timedelta(hours=9))
    queue.enqueue("low", priority=-1, run_at=clock() - timedelta(hours=2))
    queue.enqueue("high", priority=1, run_at=clock() - timedelta(hours=1))
    claimed(queue)
    assert timedelta(hours=2) == queue.stats().oldest_ready_age


@clause("Q-6")
def test_pages_go_by_id(queue: Queue) -> None:
    """``after`` and ``limit`` walk through all states in the order of ids, and a state alone by itself."""
    ids = queue.enqueue_many([{"n": n} for n in range(10)], delay=5)
    early = queue.enqueue_many(["x", "y", "z"])
    for handle in queue.claim_batch("worker-1", 2):
        assert handle.id in early
    assert claimed(queue).fail()
    pages: list[Job] = []
    while page := queue.jobs(after=pages[-1].id if pages else None, limit=4):
        assert len(page) <= 4
        pages += page
    assert [*ids, *early] == [job.id for job in pages] == [job.id for job in queue.jobs()]
    assert ids[2:5] == [job.id for job in queue.jobs(State.PENDING, after=ids[1], limit=3)]
    assert early[:2] == [job.id for job in queue.jobs("processing")]
    assert early[2:] == [job.id for job in queue.jobs(State.DEAD)]
    assert [] == queue.jobs(after=early[-1])


@clause("Q-6")
def test_pages_have_bounds(queue: Queue) -> None:
    """A hundred jobs unless asked otherwise, none for a limit of 0 or less, and no page without end."""
    queue.enqueue_many(range(101))
    assert 100 == len(queue.jobs())
    assert 101 == len(queue.jobs(limit=10_000))
    assert [] == queue.jobs(limit=0) == queue.jobs(limit=-1)
    assert [] == queue.jobs(after=2**63) == queue.jobs(after=2**63 - 1)
    assert 101 == len(queue.jobs(after=-5, limit=500))
    with pytest.raises(ValidationError):
        queue.jobs(limit=10_001)


@clause("Q-6", "O-4")
def test_a_state_that_there_is_not_is_refused(queue: Queue, peek: Peek) -> None:
    """``jobs`` and ``purge`` take a ``State`` or its text; purging has no default."""
    queue.enqueue("work")
    wrong: list[Any] = ["done", "", "PENDING", 1, b"dead"]
    for state in wrong:
        with pytest.raises(ValidationError):
            queue.jobs(state)
        with pytest.raises(ValidationError):
            queue.purge(state)
    with pytest.raises((TypeError, ValidationError)):
        queue.purge()  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        queue.purge(None)  # pyright: ignore[reportArgumentType]
    assert 1 == len(peek())


# --- revival and purging --------------------------------------------------------------------------------------------


@clause("Q-6", "J-8")
def test_a_revived_job_is_pending_again_under_its_id(queue: Queue, clock: Clock, peek: Peek) -> None:
    """No attempts, due now, its expiry lifted; all its other stamps, and what it last failed of, are kept."""
    job_id = queue.enqueue({"n": 1}, priority=7, expires=60, max_attempts=2, headers={"trace": "x"})
    assert claimed(queue).fail("it broke")
    dead = found(queue, job_id)
    clock.advance(3600)
    assert queue.retry_dead(job_id)
    job = found(queue, job_id)
    assert (State.PENDING, 0, clock(), None, None, "it broke") == (
        job.state,
        job.attempts,
        job.run_at,
        job.expires_at,
        job.died_at,
        job.last_error,
    )
    kept: Callable[[Job], tuple[Any, ...]] = lambda one: (  # noqa: E731
        one.id,
        one.queue,
        one.payload,
        one.codec,
        dict(one.headers),
        one.priority,
        one.max_attempts,
        one.created_at,
        one.visibility_timeout,
    )
    assert kept(dead) == kept(job)
    assert [(job_id, "live")] == [(row.id, row.table) for row in peek()]
    assert 1 == claimed(queue).attempt


@clause("Q-6", "O-1")
def test_a_revived_job_keeps_its_own_timeout_curve_and_retention(store: Store, queue_name: str, clock: Clock) -> None:
    """Claim, retry and retention after a revival go by the stamps of the enqueue, whoever revives."""
    own = store.queue(queue_name, visibility_timeout=7, max_attempts=2, dead_letter_retention=11)
    job_id = own.enqueue("work")
    other = store.queue(queue_name)
    assert claimed(other).fail()
    assert other.retry_dead(job_id)
    handle = claimed(other)
    assert clock() + timedelta(seconds=7) == handle.deadline
    assert handle.fail()
    clock.advance(timedelta(seconds=11) - MICROSECOND)
    assert 0 == other.sweep_expired()
    assert other.get_job(job_id) is not None
    clock.advance(MICROSECOND)
    assert 0 == other.sweep_expired()
    assert other.get_job(job_id) is None


@clause("Q-6")
def test_only_a_dead_job_can_be_revived_and_only_once(queue: Queue, peek: Peek) -> None:
    """Pending and processing jobs are ``False``, and so is the second revival."""
    pending, processing, dead = three_states(queue)
    assert [False, False, True, False] == [queue.retry_dead(i) for i in (pending, processing, dead, dead)]
    assert 3 == len(peek())


@clause("Q-6")
@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("spelt", ["state", "text"])
def test_purging_deletes_the_rows_of_one_state(
    state: State, spelt: str, store: Store, queue: Queue, peek: Peek
) -> None:
    """The queue's rows in that state are gone, and counted; other states and queues stay."""
    three_states(queue)
    three_states(store.queue("another"))
    assert 1 == queue.purge(state if spelt == "state" else str(state))
    assert [] == queue.jobs(state)
    assert (2, 3) == (len(queue.jobs()), len(store.queue("another").jobs()))
    assert 5 == len(peek())
    assert 0 == queue.purge(state)


@clause("Q-6", "J-1")
@each_operation
def test_a_purged_jobs_handle_is_refused(operation: Operation, queue: Queue, peek: Peek) -> None:
    """Purging what is being processed takes the job from its worker, as a cancel does."""
    queue.enqueue("work")
    handle = claimed(queue)
    assert 1 == queue.purge(State.PROCESSING)
    assert False is operation(handle)
    assert [] == peek()


@clause("Q-6")
def test_purging_deletes_more_than_one_batch_holds(queue: Queue, peek: Peek) -> None:
    """Thousands of rows go in one call, in bounded batches, and the number is the whole."""
    queue.enqueue_many(range(2_345))
    assert 2_345 == queue.purge(State.PENDING)
    assert [] == peek()
