"""What a claim may do, and for how long: the job handle (J-1 to J-6, J-8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import pytest

from alkstore import Backoff, Job, State
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.steps import OPERATIONS, Operation, Peek, claimed, each_operation, each_settling, found, refused
from contract_tests.travel import MICROSECOND, Clock

LEASE: Final = timedelta(seconds=60)
"""The default visibility timeout (O-1)."""


# --- the claim that an operation speaks for ------------------------------------------------------------------------


@clause("J-1", "Q-CLAIM-5")
@each_operation
def test_a_stale_owner_of_the_same_name_changes_nothing(
    operation: Operation, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """A's claim lapses and B, a worker of the same name, reclaims: whatever A then does is refused and changes nothing."""
    queue.enqueue("work")
    a = claimed(queue, "same name")
    clock.set(a.deadline + MICROSECOND)
    b = claimed(queue, "same name")
    assert (a.id, 2) == (b.id, b.attempt)
    refused(operation, a, queue, peek)
    assert b.ack()


@clause("J-1", "J-6")
@each_operation
def test_a_stale_owner_changes_nothing_when_the_claim_was_given_back_and_taken_again(
    operation: Operation, queue: Queue, peek: Peek
) -> None:
    """A releases and a worker of the same name claims, at the same attempt, instant and deadline: A's handle is stale."""
    queue.enqueue("work")
    a = claimed(queue, "same name")
    assert a.release()
    b = claimed(queue, "same name")
    assert (a.attempt, a.deadline) == (b.attempt, b.deadline)
    refused(operation, a, queue, peek)
    assert b.ack()


@clause("J-1")
@each_operation
def test_a_lapsed_claim_is_refused_though_nobody_else_has_the_job(
    operation: Operation, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """One microsecond past the deadline everything is refused, also while the job is unclaimed; it is then reclaimed."""
    queue.enqueue("work")
    late = claimed(queue)
    clock.set(late.deadline + MICROSECOND)
    refused(operation, late, queue, peek)
    assert late.id == claimed(queue).id


@clause("J-1", "Q-CLAIM-4")
@each_operation
def test_a_claim_is_valid_at_its_very_deadline(operation: Operation, queue: Queue, clock: Clock) -> None:
    """At the deadline itself nobody else is handed the job, and the claim's operations still apply."""
    queue.enqueue("work")
    handle = claimed(queue)
    clock.set(handle.deadline)
    assert queue.claim_one("other") is None
    assert operation(handle)


@clause("J-1")
@each_settling
def test_a_settled_claim_refuses_everything(
    settle: Operation, store: Store, queue_names: Callable[[], str], peek: Peek
) -> None:
    """After an ack, retry, failure or release the claim is over: a second ack is a refusal, and so is all else."""
    for operation in OPERATIONS.values():
        queue = store.queue(queue_names())
        queue.enqueue("work")
        handle = claimed(queue)
        assert settle(handle)
        refused(operation, handle, queue, peek)


@clause("J-1", "Q-3")
@each_operation
def test_a_cancelled_jobs_handle_revives_nothing(operation: Operation, queue: Queue, peek: Peek) -> None:
    """After a cancel every operation of the worker's handle is refused, and the job stays gone."""
    handle_id = queue.enqueue("work")
    handle = claimed(queue)
    assert queue.cancel(handle_id)
    refused(operation, handle, queue, peek)
    assert peek() == []


@clause("J-1", "Q-6")
@each_operation
def test_a_claim_from_before_a_revival_is_refused(operation: Operation, queue: Queue, peek: Peek) -> None:
    """A job that failed, was revived and claimed again by the same worker obeys the new claim only."""
    queue.enqueue("work")
    old = claimed(queue)
    assert old.fail()
    assert queue.retry_dead(old.id)
    refused(operation, old, queue, peek)
    new = claimed(queue)
    assert (old.id, 1) == (new.id, new.attempt)
    refused(operation, old, queue, peek)
    assert new.ack()


@clause("J-1")
@each_operation
def test_a_swept_jobs_handle_is_refused(operation: Operation, queue: Queue, clock: Clock, peek: Peek) -> None:
    """A job that is swept away as expired while it is worked on is dead, and its handle is refused."""
    queue.enqueue("work", expires=5)
    handle = claimed(queue)
    clock.advance(5)
    assert 1 == queue.sweep_expired()
    refused(operation, handle, queue, peek)


@clause("J-1")
@each_operation
def test_a_rebuilt_handle_is_the_same_claim(
    operation: Operation, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """A handle rebuilt from id and token is judged as the claim that it names: valid, and stale after a reclaim."""
    queue.enqueue("first")
    queue.enqueue("second")
    first, second = queue.claim_batch("worker-1", 2)
    assert operation(store.queue(queue.name).handle(first.id, first.token))
    clock.set(second.deadline + MICROSECOND)
    queue.claim_batch("worker-1", 2)
    refused(operation, store.queue(queue.name).handle(second.id, second.token), queue, peek)


# --- ack and heartbeat ---------------------------------------------------------------------------------------------


@clause("J-2")
def test_an_ack_deletes_the_job(queue: Queue, peek: Peek) -> None:
    """After an ack there is no row, live or dead, and no job to look at."""
    job_id = queue.enqueue("work")
    assert claimed(queue).ack()
    assert [] == peek()
    assert queue.get_job(job_id) is None


@clause("J-2")
def test_an_ack_deletes_only_its_own_job(queue: Queue, peek: Peek) -> None:
    """The other jobs of the queue stay as they are."""
    first, second = queue.enqueue_many(["a", "b"])
    handle = claimed(queue)
    before = [row for row in peek() if row.id == second]
    assert handle.ack()
    assert (first, before) == (handle.id, peek())


@clause("J-3")
def test_a_heartbeat_sets_the_deadline_from_now(queue: Queue, clock: Clock) -> None:
    """A heartbeat makes the deadline now plus the job's own visibility timeout, on the row and on the handle."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    now = clock.advance(10)
    assert handle.heartbeat()
    assert (now + LEASE, now + LEASE) == (handle.deadline, found(queue, job_id).claim_expires_at)


@clause("J-3")
def test_heartbeats_never_add_up(queue: Queue, clock: Clock) -> None:
    """Many heartbeats at one instant leave the deadline where one would."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    for _ in range(5):
        assert handle.heartbeat(extend=30)
    assert clock() + timedelta(seconds=30) == found(queue, job_id).claim_expires_at


@clause("J-3")
def test_a_heartbeat_can_bring_the_deadline_nearer(queue: Queue, clock: Clock) -> None:
    """``extend`` is absolute: shorter than what is left, it shortens the claim, to the microsecond."""
    queue.enqueue("work")
    handle = claimed(queue)
    assert handle.heartbeat(extend=MICROSECOND)
    clock.advance(MICROSECOND)
    assert queue.claim_one("other") is None
    clock.advance(MICROSECOND)
    assert False is handle.heartbeat()
    assert handle.id == claimed(queue, "other").id


@clause("J-3", "Q-CLAIM-4")
def test_a_heartbeat_keeps_the_job_from_others(queue: Queue, clock: Clock) -> None:
    """With heartbeats in time a claim outlasts many visibility timeouts, and the attempt isn't counted again."""
    job_id = queue.enqueue("work", max_attempts=1)
    handle = claimed(queue)
    for _ in range(5):
        clock.set(handle.deadline)
        assert handle.heartbeat()
        assert queue.claim_one("other") is None
    assert 1 == found(queue, job_id).attempts
    assert handle.ack()


@clause("J-3", "O-1")
def test_a_heartbeat_goes_by_the_jobs_own_timeout(store: Store, queue_name: str, clock: Clock) -> None:
    """The length comes from the stamp on the job, not from the options of the handle that claimed it."""
    store.queue(queue_name, visibility_timeout=7).enqueue("work")
    handle = claimed(store.queue(queue_name, visibility_timeout=1000))
    clock.advance(3)
    assert handle.heartbeat()
    assert clock() + timedelta(seconds=7) == handle.deadline


@clause("J-3")
def test_a_heartbeat_changes_nothing_but_the_deadline(queue: Queue, clock: Clock, peek: Peek) -> None:
    """Worker, attempts, run_at and all else stay; so does a later extension of a job that was extended before."""
    queue.enqueue("work", headers={"trace": "1"})
    handle = claimed(queue)
    before = peek()
    clock.advance(1)
    assert handle.heartbeat(extend=500)
    assert before == peek()


# --- retry -----------------------------------------------------------------------------------------------------------


@clause("J-4")
def test_a_retried_job_is_pending_again_after_its_delay(queue: Queue, clock: Clock) -> None:
    """After ``retry(error, delay)`` it has no owner, keeps its attempts and the error, and is due to the microsecond."""
    job_id = queue.enqueue("work", priority=3)
    assert claimed(queue).retry("it broke", delay=10)
    job = found(queue, job_id)
    due = clock() + timedelta(seconds=10)
    assert (State.PENDING, 1, due, None, None, "it broke", None, 3) == (
        job.state,
        job.attempts,
        job.run_at,
        job.worker_id,
        job.claim_expires_at,
        job.last_error,
        job.died_at,
        job.priority,
    )
    clock.set(due - MICROSECOND)
    assert queue.claim_one("other") is None
    clock.set(due)
    assert 2 == claimed(queue).attempt


@clause("J-4")
def test_a_retry_without_delay_waits_as_the_curve_says(store: Store, queue_name: str, clock: Clock) -> None:
    """Each attempt's delay is whole seconds, in the bounds for that attempt, of the curve stamped on the job."""
    enqueuing = store.queue(queue_name, backoff=Backoff(base=3, cap=20), max_attempts=9)
    job_id = enqueuing.enqueue("work")
    other = store.queue(queue_name, backoff=Backoff(base=1000, cap=3600))
    for attempt, (low, high) in enumerate([(2, 3), (3, 6), (6, 12), (10, 20), (10, 20)], start=1):
        handle = claimed(other)
        assert attempt == handle.attempt
        assert handle.retry()
        wait = found(other, job_id).run_at - clock()
        assert timedelta(seconds=low) <= wait <= timedelta(seconds=high)
        assert timedelta(0) == wait % timedelta(seconds=1)
        clock.advance(wait)


@clause("J-4")
def test_a_rebuilt_handle_retries_on_the_curve_of_its_attempt(store: Store, queue_name: str, clock: Clock) -> None:
    """A handle rebuilt from id and token draws for the job's attempt, with the job's own base and cap."""
    queue = store.queue(queue_name, backoff=Backoff(base=64, cap=3600))
    job_id = queue.enqueue("work")
    assert claimed(queue).retry(delay=0)
    handle = claimed(queue)
    assert store.queue(queue_name).handle(handle.id, handle.token).retry()
    wait = found(queue, job_id).run_at - clock()
    assert timedelta(seconds=64) <= wait <= timedelta(seconds=128)


@clause("J-4")
def test_a_retry_with_delay_0_is_due_at_once(queue: Queue) -> None:
    """An explicit delay of 0 is a delay, and not a request for the curve."""
    queue.enqueue("work")
    assert claimed(queue).retry(delay=0)
    assert 2 == claimed(queue).attempt


@clause("J-4", "J-8")
@pytest.mark.parametrize(
    ("error", "kept"),
    [("it broke", "it broke"), (None, "max attempts exceeded"), ("", "")],
    ids=["text", "none", "empty"],
)
def test_a_retry_on_the_last_attempt_buries_the_job(
    error: str | None, kept: str, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """With its budget spent the job is dead, with the error or ``max attempts exceeded``, in one table only."""
    job_id = queue.enqueue("work", max_attempts=2)
    assert claimed(queue).retry("earlier", delay=0)
    clock.advance(1)
    assert claimed(queue).retry(error, delay=0)
    job = found(queue, job_id)
    assert (State.DEAD, 2, kept, clock()) == (job.state, job.attempts, job.last_error, job.died_at)
    assert [(job_id, "dead")] == [(row.id, row.table) for row in peek()]
    assert queue.claim_one("other") is None


@clause("J-4", "Z-5")
def test_a_retry_without_an_error_keeps_the_earlier_one(queue: Queue) -> None:
    """``None`` leaves the live row's last error as it was; ``""`` replaces it."""
    job_id = queue.enqueue("work")
    assert claimed(queue).retry("first", delay=0)
    assert claimed(queue).retry(delay=0)
    assert "first" == found(queue, job_id).last_error
    assert claimed(queue).retry("", delay=0)
    assert "" == found(queue, job_id).last_error


# --- fail ------------------------------------------------------------------------------------------------------------


@clause("J-5", "J-8")
@pytest.mark.parametrize(
    ("error", "kept"), [("bad data", "bad data"), (None, "failed"), ("", "")], ids=["text", "none", "empty"]
)
def test_a_failed_job_is_dead_at_once(error: str | None, kept: str, queue: Queue, clock: Clock, peek: Peek) -> None:
    """``fail`` buries, budget or no budget, with the error or ``failed``; all else that the job says stays as it was."""
    job_id = queue.enqueue({"n": 1}, priority=7, expires=3600, headers={"trace": "x"})
    handle = claimed(queue)
    before = found(queue, job_id)
    died = clock.advance(1)
    assert handle.fail(error)
    job = found(queue, job_id)
    assert (State.DEAD, kept, died, None, None) == (
        job.state,
        job.last_error,
        job.died_at,
        job.worker_id,
        job.claim_expires_at,
    )
    assert _lasting(before) == _lasting(job)
    assert [(job_id, "dead", kept)] == [(row.id, row.table, row.last_error) for row in peek()]


def _lasting(job: Job) -> tuple[Any, ...]:
    """Return what a job keeps when it dies."""
    return (
        job.queue,
        job.payload,
        job.raw,
        job.codec,
        dict(job.headers),
        job.priority,
        job.attempts,
        job.max_attempts,
        job.created_at,
        job.run_at,
        job.expires_at,
        job.visibility_timeout,
    )


# --- release -----------------------------------------------------------------------------------------------------------


@clause("J-6")
def test_a_released_job_is_as_if_never_claimed(queue: Queue, clock: Clock, peek: Peek) -> None:
    """Its ``run_at``, attempts and all else are what they were before the claim, and nobody owns it."""
    job_id = queue.enqueue("work")
    before = (peek(), found(queue, job_id))
    handle = claimed(queue)
    clock.advance(5)
    assert handle.release()
    assert before == (peek(), found(queue, job_id))


@clause("J-6", "Q-CLAIM-3")
def test_a_released_job_takes_its_old_place(queue: Queue, clock: Clock) -> None:
    """It comes before those that were due after it, though it was released later."""
    first = queue.enqueue("first")
    clock.advance(1)
    second = queue.enqueue("second")
    clock.advance(1)
    assert claimed(queue).release()
    assert [first, second] == [handle.id for handle in queue.claim_batch("other", 2)]


@clause("J-6")
def test_a_delayed_release_is_due_after_its_delay(queue: Queue, clock: Clock) -> None:
    """With a delay, 0 included, ``run_at`` is now plus it."""
    job_id = queue.enqueue("work")
    clock.advance(3)
    assert claimed(queue).release(delay=0)
    assert clock() == found(queue, job_id).run_at
    assert claimed(queue).release(delay=10)
    due = clock() + timedelta(seconds=10)
    assert due == found(queue, job_id).run_at
    clock.set(due - MICROSECOND)
    assert queue.claim_one("other") is None
    clock.set(due)
    assert job_id == claimed(queue).id


@clause("J-6")
def test_a_release_gives_back_its_own_attempt_only(queue: Queue, clock: Clock) -> None:
    """Earlier claims that lapsed stay counted, so that a job which kills its workers still ends."""
    job_id = queue.enqueue("work", max_attempts=3)
    lapsed = claimed(queue)
    clock.set(lapsed.deadline + MICROSECOND)
    handle = claimed(queue)
    assert 2 == handle.attempt
    assert handle.release()
    assert 1 == found(queue, job_id).attempts
    assert 2 == claimed(queue).attempt


@clause("J-6")
def test_a_release_on_the_last_attempt_leaves_one(queue: Queue) -> None:
    """A job with one attempt can be released and claimed any number of times."""
    queue.enqueue("work", max_attempts=1)
    for _ in range(3):
        handle = claimed(queue)
        assert 1 == handle.attempt
        assert handle.release()
    assert claimed(queue).ack()


@clause("J-6")
def test_a_release_keeps_the_last_error(queue: Queue) -> None:
    """What an earlier attempt failed of is still on the row."""
    job_id = queue.enqueue("work")
    assert claimed(queue).retry("earlier", delay=0)
    assert claimed(queue).release()
    assert "earlier" == found(queue, job_id).last_error


@clause("J-3", "T-2")
def test_a_heartbeat_that_was_rolled_back_is_forgotten(store: Store, queue: Queue) -> None:
    """The handle knows the deadline as it was before, and one that was committed afterwards."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = handle.deadline
    with suppress(ZeroDivisionError), store.transaction() as tx:
        bound = tx.bind(handle)
        assert bound.heartbeat(1_000)
        assert before < bound.deadline
        raise ZeroDivisionError
    assert before == handle.deadline
    with store.transaction() as tx:
        assert tx.bind(handle).heartbeat(2_000)
    assert timedelta(seconds=2_000 - 60) == handle.deadline - before
