"""What is claimable, to the microsecond (Q-CLAIM-4)."""

from __future__ import annotations

from datetime import timedelta

from alkstore import Item
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.payloads import handed_out
from contract_tests.steps import claimed, found
from contract_tests.travel import MICROSECOND, Clock

MINUTE = timedelta(minutes=1)


@clause("Q-CLAIM-4")
def test_a_job_is_due_from_its_run_at_on(queue: Queue, clock: Clock) -> None:
    """Not a microsecond earlier, and at that very microsecond."""
    due = clock() + MINUTE
    queue.enqueue("by instant", run_at=due)
    queue.enqueue("by delay", delay=60)

    clock.set(due - MICROSECOND)
    assert [] == handed_out(queue)
    clock.set(due)
    assert ["by instant", "by delay"] == handed_out(queue)


@clause("Q-CLAIM-4", "J-1")
def test_a_claim_is_valid_to_the_microsecond_of_its_deadline(queue: Queue, clock: Clock) -> None:
    """At the deadline it is the worker's still, and a microsecond later it is anybody's."""
    queue.enqueue("work")
    handle = claimed(queue)
    assert clock() + MINUTE == handle.deadline

    clock.set(handle.deadline)
    assert queue.claim_one("thief") is None
    assert handle.heartbeat()

    clock.set(handle.deadline)
    assert queue.claim_one("thief") is None
    clock.set(handle.deadline + MICROSECOND)
    again = claimed(queue, "heir")
    assert (handle.id, 2, "heir") == (again.id, again.attempt, again.job.worker_id)
    assert not handle.ack()
    assert again.ack()


@clause("Q-CLAIM-4", "J-1")
def test_at_its_deadline_a_job_can_be_acked_and_later_it_cannot(queue: Queue, clock: Clock) -> None:
    """Also where nobody has claimed it meanwhile."""
    queue.enqueue_many(["in time", "too late"])
    in_time, too_late = queue.claim_batch("worker", 2)

    clock.set(in_time.deadline)
    assert in_time.ack()
    clock.set(too_late.deadline + MICROSECOND)
    assert not too_late.ack()
    assert "processing" == found(queue, too_late.id).state


@clause("Q-CLAIM-4")
def test_a_job_is_expired_from_its_expiry_on(queue: Queue, clock: Clock) -> None:
    """A microsecond before, it is handed out; at that very microsecond, never again."""
    expired = clock() + MINUTE
    queue.enqueue_many(["early", "late"], expires=60)

    clock.set(expired - MICROSECOND)
    assert ["early"] == handed_out(queue, 1)
    clock.set(expired)
    assert [] == handed_out(queue)
    assert 2 == queue.sweep_expired()


@clause("Q-CLAIM-4", "Q-5")
def test_a_job_past_its_expiry_is_never_handed_out(queue: Queue, clock: Clock) -> None:
    """Not when it was scheduled for later, nor claimed and lapsed, nor given back."""
    queue.enqueue("scheduled past its expiry", delay=120, expires=60)
    queue.enqueue("due at its expiry", delay=60, expires=60)
    queue.enqueue_many(
        [Item("lapsed", priority=3), Item("released", priority=2), Item("retried", priority=1)], expires=60
    )
    _lapsed, released, retried = queue.claim_batch("worker", 3)
    clock.advance(50)
    assert released.release(delay=20)
    assert retried.retry(delay=0)

    clock.advance(30)
    assert [] == handed_out(queue)
    clock.advance(timedelta(days=1))
    assert [] == handed_out(queue)
    assert 5 == queue.sweep_expired()
    assert {"expired"} == {job.last_error for job in queue.jobs("dead")}


@clause("Q-CLAIM-4", "J-1")
def test_a_claim_outlives_its_jobs_expiry(queue: Queue, clock: Clock) -> None:
    """Expiry keeps a job from being handed out; what was handed out before can be finished."""
    job_id = queue.enqueue("work", expires=5)
    handle = claimed(queue)

    clock.advance(10)

    assert handle.heartbeat()
    assert handle.ack()
    assert queue.get_job(job_id) is None


@clause("Q-CLAIM-4")
def test_a_job_whose_budget_is_spent_is_not_handed_out(store: Store, clock: Clock) -> None:
    """A lapsed job comes again only as long as attempts are left."""
    queue = store.queue("emails", max_attempts=3)
    job_id = queue.enqueue("work")

    for attempt in [1, 2, 3]:
        handle = claimed(queue)
        assert (job_id, attempt) == (handle.id, handle.attempt)
        clock.advance(61)
    assert [] == handed_out(queue)
    assert "dead" == found(queue, job_id).state


@clause("Q-CLAIM-4")
def test_a_clock_that_steps_back_hands_nothing_out_too_early(queue: Queue, clock: Clock) -> None:
    """What was due, lapsed or expired for a later now is judged again by the earlier one."""
    due = clock() + MINUTE
    queue.enqueue("scheduled", run_at=due)
    queue.enqueue("other", run_at=due, priority=1)
    clock.set(due)
    assert ["other"] == handed_out(queue, 1)

    clock.set(due - MICROSECOND)
    assert [] == handed_out(queue)
    clock.set(due)
    assert ["scheduled"] == handed_out(queue)


@clause("Q-CLAIM-4")
def test_a_clock_that_steps_back_makes_nothing_lapse_too_early(queue: Queue, clock: Clock) -> None:
    """A claim that had lapsed for somebody's later now isn't taken away at an earlier one."""
    queue.enqueue_many(["a", "b"])
    handles = queue.claim_batch("worker", 2)
    deadline = handles[0].deadline
    clock.set(deadline + MICROSECOND)
    assert ["a"] == handed_out(queue, 1)

    clock.set(deadline)
    assert [] == handed_out(queue)
    assert handles[1].ack()


@clause("Q-CLAIM-4", "Q-6")
def test_waiting_jobs_do_not_hide_those_that_are_due(queue: Queue, clock: Clock) -> None:
    """Thousands scheduled at a greater priority, leased or expired stand before one that is ready."""
    many = 3_000
    queue.enqueue_many(range(many), priority=3, expires=1)
    queue.enqueue_many(range(many), priority=2, delay=MINUTE)
    clock.advance(1)
    queue.enqueue_many(range(many), priority=1)
    assert many == len(queue.claim_batch("worker", many))
    queue.enqueue("the one")

    assert ["the one"] == handed_out(queue)
    clock.advance(MINUTE - timedelta(seconds=1))
    assert list(range(many)) == handed_out(queue, 10_000)
