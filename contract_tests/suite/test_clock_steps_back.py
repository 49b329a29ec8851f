"""A clock that is put back, as a server's may be: what isn't claimable at the new now is not handed out (Q-CLAIM-4, J-1)."""

from __future__ import annotations

from datetime import timedelta

from alkstore import QueueStats, State
from alkstore.protocols import Queue
from contract_tests.clauses import clause
from contract_tests.steps import claimed, found
from contract_tests.travel import MICROSECOND, START, Clock


@clause("Q-CLAIM-4")
def test_what_was_due_once_is_not_handed_out_before_its_time(queue: Queue, clock: Clock) -> None:
    """A claim saw both jobs due and took one; back before their time, the other waits again, to the microsecond."""
    first, second = queue.enqueue_many(["a", "b"], delay=10)
    clock.advance(10)
    assert first == claimed(queue).id
    clock.advance(-MICROSECOND)
    assert queue.claim_one("other") is None
    assert QueueStats(ready=0, scheduled=1, processing=1, dead=0, oldest_ready_age=None) == queue.stats()
    clock.set(START + timedelta(seconds=10))
    assert second == claimed(queue).id


@clause("Q-CLAIM-4", "J-1", "Q-CLAIM-2")
def test_a_claim_that_had_lapsed_is_valid_again(queue: Queue, clock: Clock) -> None:
    """A reclaim saw two lapsed claims and took one; back before the deadline, the other is its owner's, and nobody else's."""
    queue.enqueue_many(["a", "b"])
    first, second = queue.claim_batch("owner", 2)
    clock.set(first.deadline + MICROSECOND)
    assert first.id == claimed(queue, "other").id
    clock.set(second.deadline)
    assert queue.claim_one("other") is None
    assert second.heartbeat()
    assert False is first.ack()
    clock.advance(60)
    assert second.heartbeat()
    assert second.ack()


@clause("Q-CLAIM-4", "Q-CLAIM-3")
def test_a_job_given_back_keeps_its_place_in_time(queue: Queue, clock: Clock) -> None:
    """Released before its ``run_at``, as can only be after a step back, it waits for it like any other."""
    late, early = queue.enqueue("late", delay=20), queue.enqueue("early", delay=10)
    clock.advance(30)
    handles = queue.claim_batch("worker-1", 2)
    assert [early, late] == [handle.id for handle in handles]
    clock.set(START)
    assert [True, True] == [handle.release() for handle in handles]
    assert queue.claim_one("other") is None
    clock.advance(10)
    assert early == claimed(queue).id
    assert queue.claim_one("other") is None
    clock.advance(10)
    assert late == claimed(queue).id


@clause("Q-CLAIM-5", "J-3")
def test_a_claim_made_after_the_step_has_its_full_time(queue: Queue, clock: Clock) -> None:
    """Deadlines count from the new now."""
    queue.enqueue("work", run_at=START - timedelta(days=1))
    clock.advance(timedelta(hours=-1))
    handle = claimed(queue)
    assert clock() + timedelta(seconds=60) == handle.deadline
    clock.set(handle.deadline + MICROSECOND)
    assert 2 == claimed(queue).attempt
    assert State.PROCESSING == found(queue, handle.id).state
