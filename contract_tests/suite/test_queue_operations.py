"""Queue operations by id: batches of acks, cancelling, looking (Q-1 to Q-4, Q-7, Q-8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from alkstore import ClaimLostError, QueueStats, State, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.harness import Harness
from contract_tests.steps import Operation, Peek, claimed, each_operation, found, three_states
from contract_tests.travel import MICROSECOND, Clock

IMPOSSIBLE = (2**63, 2**63 - 1, 2**64, 10**30, 0, -1, -(2**63), -(2**63) - 1)
"""Ids that no job has, and that no column holds."""


# --- Q-1 -----------------------------------------------------------------------------------------------------------


@clause("Q-1")
def test_an_operation_does_not_see_another_queues_jobs(store: Store, queue: Queue, peek: Peek) -> None:
    """Whatever one queue is asked about another queue's ids, it answers as if they weren't there, and changes nothing."""
    pending, processing, dead = three_states(queue)
    before = peek()
    other = store.queue(queue.name.upper())
    for job_id in (pending, processing, dead):
        assert other.get_job(job_id) is None
        assert False is other.cancel(job_id)
        assert False is other.retry_dead(job_id)
        assert 0 == other.ack_batch([job_id])
    assert other.claim_batch("worker-1", 10) == []
    assert 0 == other.sweep_expired()
    assert [0, 0, 0] == [other.purge(state) for state in State]
    assert [] == other.jobs()
    assert QueueStats(ready=0, scheduled=0, processing=0, dead=0, oldest_ready_age=None) == other.stats()
    assert before == peek()


@clause("Q-1", "J-1", "Q-8")
@each_operation
def test_a_token_is_worth_nothing_in_another_queue(
    operation: Operation, store: Store, queue: Queue, peek: Peek
) -> None:
    """A handle rebuilt under another queue's name, with a true id and a true token, is refused."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = (peek(), found(queue, handle.id))
    assert False is operation(store.queue("another").handle(handle.id, handle.token))
    assert before == (peek(), found(queue, handle.id))


@clause("Q-1")
def test_an_impossible_id_is_simply_not_there(store: Store, queue: Queue) -> None:
    """A number that no job can have is answered like one that no job has, and is never an error."""
    queue.enqueue("work")
    for job_id in IMPOSSIBLE:
        assert queue.get_job(job_id) is None
        assert store.get_job(job_id) is None
        assert False is queue.cancel(job_id)
        assert False is queue.retry_dead(job_id)
        assert 0 == queue.ack_batch([job_id])
        assert False is queue.handle(job_id, 1).ack()
        assert False is queue.handle(1, job_id).ack()


@clause("Q-1")
def test_what_is_no_number_is_no_id(queue: Queue) -> None:
    """An id of a wrong type is a ``ValidationError``, and not a job that isn't there."""
    calls: list[Callable[[Any], object]] = [
        queue.get_job,
        queue.cancel,
        queue.retry_dead,
        lambda job_id: queue.ack_batch([job_id]),
        lambda job_id: queue.handle(job_id, 1),
    ]
    wrong: list[Any] = [True, 1.0, "1", None, b"1"]
    for call in calls:
        for job_id in wrong:
            with pytest.raises(ValidationError):
                call(job_id)


# --- Q-2, Z-7 --------------------------------------------------------------------------------------------------------


@clause("Q-2")
def test_a_batch_of_acks_counts_what_it_acked(queue: Queue, peek: Peek) -> None:
    """Handles and bare ids may be mixed, and no worker's name is asked for."""
    ids = queue.enqueue_many(["a", "b", "c", "d"])
    first, second = queue.claim_batch("one", 2)
    queue.claim_batch("two", 2)
    assert 4 == queue.ack_batch([first, ids[2], second, ids[3]])
    assert [] == peek()


@clause("Q-2", "J-1")
def test_a_batch_of_acks_passes_over_what_is_not_valid(queue: Queue, clock: Clock) -> None:
    """Stale handles, pending and dead jobs, lapsed claims and unknown ids aren't counted, and stay as they are."""
    pending, _, dead = three_states(queue)
    queue.purge(State.PROCESSING)
    stale, valid = queue.enqueue_many(["stale", "valid"], priority=5)
    lapsed = queue.enqueue("lapsed", priority=-1)
    handles = {handle.id: handle for handle in queue.claim_batch("worker-1", 3)}
    assert handles[stale].release()
    clock.set(handles[lapsed].deadline)
    assert handles[valid].heartbeat(extend=3600)
    clock.advance(MICROSECOND)
    assert stale == claimed(queue).id
    asked = [*handles.values(), pending, dead, lapsed, 2**63 - 1]
    assert 1 == queue.ack_batch(asked)
    assert sorted([pending, dead, lapsed, stale]) == [job.id for job in queue.jobs()]
    assert 0 == queue.ack_batch(asked)


@clause("Q-2", "Q-CLAIM-4")
def test_a_bare_id_counts_until_the_very_deadline(queue: Queue, clock: Clock) -> None:
    """At the deadline a bare id is acked, and one microsecond later it isn't."""
    first, second = queue.enqueue_many(["a", "b"])
    deadline = queue.claim_batch("worker-1", 2)[0].deadline
    clock.set(deadline)
    assert 1 == queue.ack_batch([first])
    clock.set(deadline + MICROSECOND)
    assert 0 == queue.ack_batch([second])


@clause("Q-2")
def test_a_bare_id_speaks_for_whatever_claim_is_current(queue: Queue, clock: Clock) -> None:
    """After a reclaim the old handle isn't counted, and the bare id is."""
    job_id = queue.enqueue("work")
    old = claimed(queue)
    clock.set(old.deadline + MICROSECOND)
    claimed(queue)
    assert 0 == queue.ack_batch([old])
    assert 1 == queue.ack_batch([job_id])


@clause("Z-7", "Q-2")
def test_a_batch_of_acks_counts_a_job_once(store: Store, queue: Queue) -> None:
    """A handle twice, its rebuilt twin, and its bare id are one job."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    assert 1 == queue.ack_batch([handle, job_id, handle, queue.handle(handle.id, handle.token), job_id])


@clause("Q-2")
def test_a_batch_of_acks_takes_any_iterable(queue: Queue) -> None:
    """A generator will do, and an empty one acks nothing."""
    queue.enqueue_many(["a", "b"])
    assert 2 == queue.ack_batch(handle for handle in queue.claim_batch("worker-1", 2))
    assert 0 == queue.ack_batch([])


@clause("Z-7", "Q-1")
def test_a_handle_of_another_queue_is_not_counted(store: Store, queue: Queue) -> None:
    """It is passed over, and its job stays processing."""
    other = store.queue("another")
    queue.enqueue("a")
    other.enqueue("b")
    mine, theirs = claimed(queue), claimed(other)
    assert 1 == queue.ack_batch([theirs, mine])
    assert State.PROCESSING == found(other, theirs.id).state


@clause("Z-7", "O-4")
def test_a_handle_of_another_store_is_refused(harness: Harness, queue: Queue, peek: Peek) -> None:
    """It is a ``ValidationError``, whatever else is in the batch, and nothing is acked."""
    place = harness.new_place()
    try:
        with harness.open(place) as elsewhere:
            foreign = elsewhere.queue(queue.name)
            foreign.enqueue("theirs")
            queue.enqueue("mine")
            mine, theirs = claimed(queue), claimed(foreign)
            with pytest.raises(ValidationError):
                queue.ack_batch([mine, theirs])
            assert 1 == len(peek())
            assert theirs.ack()
            assert mine.ack()
    finally:
        harness.drop_place(place)


# --- Q-3 -------------------------------------------------------------------------------------------------------------


@clause("Q-3")
def test_cancel_deletes_a_pending_or_processing_job_once(queue: Queue, peek: Peek) -> None:
    """Due, scheduled, claimed or lapsed: it is gone, and a second cancel is ``False``; a dead job stays."""
    pending, processing, dead = three_states(queue)
    assert [True, True, False] == [queue.cancel(job_id) for job_id in (pending, processing, dead)]
    assert [dead] == [row.id for row in peek()]
    assert [False, False] == [queue.cancel(job_id) for job_id in (pending, processing)]


@clause("Q-3")
def test_cancel_deletes_a_job_whose_claim_lapsed(queue: Queue, clock: Clock, peek: Peek) -> None:
    """A lapsed job is processing still, and can be cancelled, out of attempts or not."""
    ids = queue.enqueue_many(["a", "b"], max_attempts=1)
    clock.set(queue.claim_batch("worker-1", 2)[0].deadline + MICROSECOND)
    assert [True, True] == [queue.cancel(job_id) for job_id in ids]
    assert [] == peek()
    assert 0 == queue.sweep_expired()


# --- Q-4, Q-8 --------------------------------------------------------------------------------------------------------


@clause("Q-4")
def test_looking_at_a_job_has_no_effect(store: Store, queue: Queue, clock: Clock, peek: Peek) -> None:
    """Lapsed, expired and past its retention, jobs look the same however often they are looked at."""
    brief = store.queue(queue.name, dead_letter_retention=0, max_attempts=1)
    ids = brief.enqueue_many(["dead", "lapsed", "expired"], expires=100)
    dead, _ = queue.claim_batch("worker-1", 2)
    assert dead.fail()
    clock.advance(1000)
    before = peek()
    seen = [queue.get_job(job_id) for job_id in ids]
    assert seen == [queue.get_job(job_id) for job_id in ids] == [store.get_job(job_id) for job_id in ids]
    assert [State.DEAD, State.PROCESSING, State.PENDING] == [job.state for job in seen if job is not None]
    assert (seen, 3) == (queue.jobs(), queue.stats().dead + queue.stats().processing + queue.stats().ready)
    assert before == peek()


@clause("Q-4")
def test_a_dead_job_can_be_looked_at(queue: Queue, clock: Clock) -> None:
    """It has its ``last_error`` and ``died_at``, and no worker any more."""
    job_id = queue.enqueue({"n": 1})
    handle = claimed(queue)
    clock.advance(1)
    assert handle.fail("it broke")
    job = found(queue, job_id)
    assert (State.DEAD, {"n": 1}, "it broke", clock(), None) == (
        job.state,
        job.payload,
        job.last_error,
        job.died_at,
        job.worker_id,
    )


@clause("Q-8")
def test_a_store_finds_a_job_of_any_queue(store: Store, queue_names: Callable[[], str]) -> None:
    """``store.get_job`` needs no queue, live or dead."""
    queues = [store.queue(queue_names()) for _ in range(3)]
    ids = [queue.enqueue("work") for queue in queues]
    assert claimed(queues[1]).fail()
    assert claimed(queues[2]).heartbeat()
    jobs = [job for job in map(store.get_job, ids) if job is not None]
    assert [(queue.name, job_id) for queue, job_id in zip(queues, ids, strict=True)] == [(j.queue, j.id) for j in jobs]
    assert ["pending", "dead", "processing"] == [str(job.state) for job in jobs]


@clause("Q-8", "Z-15")
def test_a_store_lists_the_queues_that_have_rows(store: Store) -> None:
    """Live or dead, once each, and sorted by code point; a queue without rows isn't there."""
    assert [] == store.queues()
    names = ["b", "B", "a b", "a", "ä", "z", "Z%", "🜲", "\ufb01"]
    for name in names:
        store.queue(name).enqueue_many(["x", "y"])
    assert claimed(store.queue("a")).fail()
    assert claimed(store.queue("b")).fail()
    store.queue("b").purge("pending")
    store.queue("z").purge("pending")
    store.queue("never used")
    assert sorted(set(names) - {"z"}) == store.queues()


@clause("Q-8")
def test_a_store_says_how_it_is(store: Store, clock: Clock) -> None:
    """``health`` names the engine, its versions, and what the store calls now."""
    health = store.health()
    assert health.engine
    assert health.server_version
    assert health.code_version[0] == health.schema_version[0]
    assert health.durability in {"full", "relaxed"}
    assert abs(health.clock_skew) < timedelta(hours=1)
    assert health.oldest_snapshot_age is None or health.oldest_snapshot_age >= timedelta(0)
    assert health.wal_bytes is None or health.wal_bytes >= 0
    assert health.wakes in {"notify", "poll"}
    assert clock() == health.now
    assert timedelta(0) == health.now.utcoffset()


@clause("Q-8")
def test_a_rebuilt_handle_knows_what_the_first_one_knew(store: Store, queue: Queue) -> None:
    """Its attributes are the claim's: payload, headers, attempt, priority and deadline."""
    queue.enqueue({"n": 1}, priority=3, headers={"trace": "x"})
    handle = claimed(queue)
    twin = store.queue(queue.name).handle(handle.id, handle.token)
    assert (handle.id, handle.token, handle.queue) == (twin.id, twin.token, twin.queue)
    assert (handle.payload, handle.raw, dict(handle.headers)) == (twin.payload, twin.raw, dict(twin.headers))
    assert (handle.attempt, handle.priority, handle.deadline) == (twin.attempt, twin.priority, twin.deadline)
    assert handle.job == twin.job
    assert twin.ack()


@clause("Q-8", "J-1")
def test_a_rebuilt_handle_of_a_lost_claim_says_so_when_read(queue: Queue, clock: Clock) -> None:
    """The attributes of a claim that isn't the job's current one raise ``ClaimLostError``; its operations are refused."""
    queue.enqueue("work")
    old = claimed(queue)
    clock.set(old.deadline + MICROSECOND)
    claimed(queue)
    twin = queue.handle(old.id, old.token)
    with pytest.raises(ClaimLostError):
        _ = twin.payload
    assert False is twin.ack()


@clause("Q-8", "N-3")
def test_rebuilding_a_handle_is_no_claim(queue: Queue, peek: Peek) -> None:
    """Any id and token make a handle, without I/O; one that was never handed out is refused everything."""
    job_id = queue.enqueue("work")
    before = peek()
    handle = queue.handle(job_id, 12345)
    assert [False, False, False] == [handle.ack(), handle.fail(), handle.retry(delay=0)]
    assert before == peek()


# --- Q-7 ---------------------------------------------------------------------------------------------------------------


@clause("Q-7", "J-8")
def test_every_job_is_in_one_place_or_gone_for_one_reason(
    store: Store, queue_name: str, clock: Clock, peek: Peek
) -> None:
    """Pending, processing, dead, acked, cancelled, purged, past its retention: the seven together are all that was."""
    queue = store.queue(queue_name, dead_letter_retention=10)
    ids = queue.enqueue_many(range(7))
    acked, failed, outlived, held = queue.claim_batch("worker-1", 4)
    assert outlived.fail()
    clock.advance(10)
    assert acked.ack()
    assert failed.fail()
    assert queue.cancel(ids[4])
    purged = store.queue("purged").enqueue("work")
    assert 1 == store.queue("purged").purge(State.PENDING)
    assert 0 == queue.sweep_expired()
    there = {job.id: job.state for job in queue.jobs()}
    assert {
        failed.id: State.DEAD,
        held.id: State.PROCESSING,
        ids[5]: State.PENDING,
        ids[6]: State.PENDING,
    } == there
    gone = (acked.id, outlived.id, ids[4], purged)
    assert [None, None, None, None] == [store.get_job(job_id) for job_id in gone]
    assert sorted(there) == [row.id for row in peek()]
    assert held.heartbeat()
