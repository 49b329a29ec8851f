"""A claim buries lapsed jobs whose budget is spent (Q-CLAIM-6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alkstore.protocols import Store
from contract_tests.clauses import clause
from contract_tests.harness import Row
from contract_tests.payloads import handed_out
from contract_tests.steps import claimed, found
from contract_tests.travel import MICROSECOND, Clock


@clause("Q-CLAIM-6", "J-8")
def test_a_worker_that_dies_on_its_last_attempt_leaves_a_dead_job(
    store: Store, clock: Clock, peek: Callable[[], list[Row]]
) -> None:
    """The next claim buries it, with the reason, and gives the job after it."""
    queue = store.queue("emails", max_attempts=1)
    buried = queue.enqueue("doomed", priority=9)
    claimed(queue)
    queue.enqueue("next")
    clock.advance(60)
    assert ["next"] == handed_out(queue)  # at the deadline the claim is valid still
    assert "processing" == found(queue, buried).state
    clock.advance(MICROSECOND)

    assert [] == handed_out(queue)

    job = found(queue, buried)
    assert ("dead", "max attempts exceeded", clock(), 1) == (job.state, job.last_error, job.died_at, job.attempts)
    assert (None, None) == (job.worker_id, job.claim_expires_at)
    assert ["dead", "live"] == [row.table for row in peek()]


@clause("Q-CLAIM-6")
def test_a_claim_of_one_job_buries_all_that_are_exhausted(store: Store, clock: Clock, queue_name: str) -> None:
    """Burying doesn't count towards the number asked for."""
    queue = store.queue(queue_name, max_attempts=1)
    queue.enqueue_many(range(5))
    queue.claim_batch("worker", 5)
    clock.advance(61)
    queue.enqueue("fresh")

    assert ["fresh"] == handed_out(queue, 1)
    stats = queue.stats()
    assert (0, 1, 5) == (stats.ready, stats.processing, stats.dead)


@clause("Q-CLAIM-6", "T-4", needs="transactions")
def test_burying_is_of_the_claims_own_transaction(store: Store, clock: Clock, queue_name: str) -> None:
    """A claim that is rolled back has buried nothing, and one that is committed has."""
    queue = store.queue(queue_name, max_attempts=1)
    job_id = queue.enqueue("doomed")
    claimed(queue)
    clock.advance(61)

    with pytest.raises(LookupError), store.transaction() as tx:
        assert tx.queue(queue_name).claim_one("worker") is None
        raise LookupError
    assert "processing" == found(queue, job_id).state
    with store.transaction() as tx:
        assert tx.queue(queue_name).claim_one("worker") is None
    assert "dead" == found(queue, job_id).state


@clause("Q-CLAIM-6", "Q-5")
def test_a_claim_buries_at_most_1000_and_a_sweep_the_rest(store: Store, clock: Clock) -> None:
    """The oldest deadlines first; none of them is handed out; what is left over is the sweep's, which counts it."""
    queue = store.queue("emails", max_attempts=1)
    older = queue.enqueue_many(range(600))
    queue.claim_batch("worker", 600)
    clock.advance(MICROSECOND)
    newer = queue.enqueue_many(range(600), priority=5)
    handles = queue.claim_batch("worker", 600)
    # One of the newer now has the oldest deadline of all, by a shorter lease: age is the deadline's, not the id's.
    clock.advance(1)
    assert handles[-1].heartbeat(1)
    clock.advance(100)
    fresh = queue.enqueue("fresh")

    batch = queue.claim_batch("worker", 10_000)

    assert [fresh] == [handle.id for handle in batch]
    dead = {job.id for job in queue.jobs("dead", limit=10_000)}
    assert 1_000 == len(dead)
    assert {*older, newer[-1]} <= dead
    left = {job.id for job in queue.jobs("processing", limit=10_000)} - {fresh}
    assert {*older, *newer} == dead | left
    assert 200 == queue.sweep_expired() == len(left)
    assert {"max attempts exceeded"} == {job.last_error for job in queue.jobs("dead", limit=10_000)}
    assert [fresh] == [job.id for job in queue.jobs("processing")]


@clause("Q-CLAIM-6")
def test_further_claims_bury_the_rest_too(store: Store, clock: Clock) -> None:
    """A thousand at each, whether or not there is anything to hand out."""
    queue = store.queue("emails", max_attempts=1)
    queue.enqueue_many(range(2_100))
    queue.claim_batch("worker", 2_100)
    clock.advance(61)

    for dead in [1_000, 2_000, 2_100, 2_100]:
        assert queue.claim_one("worker") is None
        assert dead == queue.stats().dead


@clause("Q-CLAIM-6", "Q-1")
def test_a_claim_buries_only_in_its_own_queue(store: Store, clock: Clock) -> None:
    """Another queue's exhausted jobs wait for a claim or sweep of theirs."""
    mine, other = store.queue("mine"), store.queue("other", max_attempts=1)
    job_id = other.enqueue("work")
    claimed(other)
    clock.advance(61)

    assert mine.claim_one("worker") is None
    assert 0 == mine.sweep_expired()
    assert "processing" == found(other, job_id).state
    assert 1 == other.sweep_expired()


@clause("Q-CLAIM-6", "Q-CLAIM-4", "J-6")
def test_a_release_gives_the_budget_back(store: Store, clock: Clock) -> None:
    """A job that was taken and given back isn't exhausted by it, and dies only of attempts that lapsed."""
    queue = store.queue("emails", max_attempts=1)
    queue.enqueue("work")
    for _ in range(5):
        assert claimed(queue).release()
    claimed(queue)
    clock.advance(61)

    assert queue.claim_one("worker") is None
    assert 1 == queue.stats().dead


@clause("Q-CLAIM-6", "J-1")
def test_the_handle_of_a_buried_job_is_refused(store: Store, clock: Clock) -> None:
    """Its worker comes back too late for everything."""
    queue = store.queue("emails", max_attempts=1)
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    clock.advance(61)
    assert queue.claim_one("other") is None
    before = found(queue, job_id)

    assert [False] * 5 == [handle.ack(), handle.heartbeat(), handle.retry("no"), handle.fail("no"), handle.release()]
    assert before == found(queue, job_id)
