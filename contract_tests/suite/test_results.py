"""What jobs come to: kept with the ack, for a time, and waited for (Z-17)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest
from hypothesis import given

from alkstore import (
    ClaimLostError,
    NotSupportedError,
    Outcome,
    PayloadError,
    Result,
    StoreClosedError,
    TransactionError,
    ValidationError,
)
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.children import Child
from contract_tests.clauses import clause
from contract_tests.fixtures import Connect, OpenStore
from contract_tests.harness import Harness
from contract_tests.payloads import shape
from contract_tests.scale import examples, rounds
from contract_tests.steps import Leave, Peek, claimed, found, leaving
from contract_tests.suite.test_payloads import json_values
from contract_tests.together import WAIT
from contract_tests.travel import MICROSECOND, Clock

HOUR = timedelta(hours=1)


def taken(queue: Queue, **options: object) -> JobHandle:
    """Enqueue a job that keeps its result, unless told otherwise, and claim it."""
    job_id = queue.enqueue("work", **{"keep_result": 3600, **options})  # type: ignore[arg-type]
    handle = claimed(queue)
    assert job_id == handle.id
    return handle


def kept(queue: Queue, job_id: int) -> Result:
    """Return a result that must be there."""
    result = queue.result(job_id)
    assert result is not None
    return result


# --- enqueue -----------------------------------------------------------------------------------------------------


@clause("O-2", "Z-17")
def test_a_job_says_how_long_its_result_is_kept(store: Store, queue: Queue) -> None:
    """As any job does for itself, ``None`` being the default; the stamp outlasts a retry, a death and a revival."""
    first, second = queue.enqueue_many(["a", "b"], keep_result=0.5)
    third = queue.enqueue("c")
    assert [timedelta(seconds=0.5)] * 2 == [found(queue, job_id).keep_result for job_id in (first, second)]
    assert found(queue, third).keep_result is None
    handle = claimed(queue)
    assert handle.job.keep_result == timedelta(seconds=0.5)
    assert handle.retry(delay=0)
    handle = queue.claim_batch("w", 3)[0]
    assert handle.fail("no")
    assert found(queue, first).keep_result == timedelta(seconds=0.5)
    assert queue.retry_dead(first)
    assert found(queue, first).keep_result == timedelta(seconds=0.5)
    rebuilt = claimed(queue)
    assert first == rebuilt.id
    assert rebuilt.ack(result="at last")
    assert "at last" == kept(queue, first).value


@clause("O-4", "Z-1", "Z-17")
@pytest.mark.parametrize("wrong", [0, -1, "60", True, float("nan"), timedelta(0), timedelta(days=40_000)])
def test_a_wrong_time_to_keep_is_refused(queue: Queue, peek: Peek, wrong: object) -> None:
    """And nothing is written."""
    with pytest.raises(ValidationError, match="keep_result"):
        queue.enqueue("work", keep_result=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="keep_result"):
        queue.enqueue_many(["work"], keep_result=wrong)  # type: ignore[arg-type]
    assert [] == peek()


@clause("S-7", "Z-16")
def test_results_that_are_not_declared_are_refused(store: Store, queue: Queue, peek: Peek) -> None:
    """Before anything is written; where they are declared, they are kept."""
    if store.capabilities.results:
        assert taken(queue).ack(result=1)
        return
    for refused in (
        lambda: queue.enqueue("work", keep_result=1),
        lambda: queue.enqueue_many(["work"], keep_result=1),
        lambda: queue.result(1),
        lambda: queue.wait_result(1),
        lambda: store.result(1),
    ):
        with pytest.raises(NotSupportedError, match="results"):
            refused()
    assert [] == peek()
    handle = taken(queue, keep_result=None)
    with pytest.raises(NotSupportedError, match="results"):
        handle.ack(result=1)
    assert handle.ack()


# --- ack ---------------------------------------------------------------------------------------------------------


@clause("Z-17")
def test_a_result_has_all_there_is_to_know(
    store: Store, queue: Queue, clock: Clock, queue_names: Callable[[], str]
) -> None:
    """For its own queue and for the store, and for no other queue."""
    handle = taken(queue)
    finished = clock.advance(7)
    assert handle.ack(result={"sent": [1, None]})
    for result in (queue.result(handle.id), store.result(handle.id)):
        assert result is not None
        assert ({"sent": [1, None]}, b'{"sent":[1,null]}', "json") == (result.value, result.raw, result.codec)
        assert (handle.id, queue.name, Outcome.SUCCEEDED, 1) == (
            result.job_id, result.queue, result.outcome, result.attempts,
        )  # fmt: skip
        assert (finished, finished + HOUR, "worker-1", None) == (
            result.finished_at, result.expires_at, result.worker_id, result.error,
        )  # fmt: skip
    assert store.queue(queue_names()).result(handle.id) is None
    assert queue.get_job(handle.id) is None
    assert (0, 0) == (queue.stats().processing, queue.stats().dead)
    assert [queue.name] == store.queues()
    for nowhere in (0, -1, 2**63, handle.id + 1):
        assert store.result(nowhere) is None


@clause("Z-17")
@examples(100)
@given(value=json_values)
def test_any_result_of_json_comes_back(queue: Queue, value: object) -> None:
    """Equal, of the same types, keys in the same order."""
    handle = taken(queue)
    assert handle.ack(result=value)
    assert shape(value) == shape(kept(queue, handle.id).value)


@clause("Z-17", "Q-ENQ-2")
@pytest.mark.parametrize(
    ("value", "said"),
    [({"a": {1}}, r"result\['a'\].*set"), (float("inf"), "result is inf"), ("\ud800", "surrogate"), (b"", "bytes")],
)
def test_a_result_that_cannot_be_kept_is_refused(queue: Queue, value: object, said: str) -> None:
    """Before anything is written, whether the job keeps it or not; the claim is as it was."""
    for options in ({}, {"keep_result": None}):
        handle = taken(queue, **options)
        with pytest.raises(PayloadError, match=said):
            handle.ack(result=value)
        assert handle.ack()


@clause("Z-17")
def test_a_result_may_be_as_large_as_the_limit(queue: Queue) -> None:
    """A mebibyte, to the byte."""
    handle = taken(queue)
    for size in (5 * 1024 * 1024, 1024 * 1024 - 1):
        with pytest.raises(PayloadError, match=f"result is {size + 2} bytes when encoded, over the limit of 1048576"):
            handle.ack(result="x" * size)
    assert handle.ack(result="x" * (1024 * 1024 - 2))
    assert 1024 * 1024 - 2 == len(kept(queue, handle.id).value)


@clause("Z-17", needs="processes")
def test_a_store_may_have_another_limit_of_results(queue: Queue, open_store: OpenStore, clock: Clock) -> None:
    """An option of its own, beside that of payloads."""
    handle = taken(queue)
    small = open_store(clock=clock, max_result=10).queue(queue.name).handle(handle.id, handle.token)
    with pytest.raises(PayloadError, match="result is 11 bytes"):
        small.ack(result="x" * 9)
    assert small.ack(result="x" * 8)
    for wrong in (0, "1", 2**40):
        with pytest.raises(ValidationError, match="max_result"):
            open_store(max_result=wrong)


@clause("Z-17")
def test_a_job_that_keeps_nothing_leaves_nothing(queue: Queue, store: Store) -> None:
    """Whoever enqueued it has said so, and whoever works it off need not know."""
    handle = taken(queue, keep_result=None)
    assert handle.ack(result="unheard")
    assert queue.result(handle.id) is None
    assert [] == store.queues()


@clause("Z-17", "J-10", "Q-2", "Q-8")
def test_every_ack_of_such_a_job_leaves_its_result(queue: Queue) -> None:
    """``None`` where none was given: by a block, by the batch, by the bare id, by a handle that was rebuilt."""
    with taken(queue) as handle:
        ids = [handle.id]
    rebuilt = taken(queue)
    assert queue.handle(rebuilt.id, rebuilt.token).ack(result="rebuilt")
    assert ("rebuilt", 1) == (kept(queue, rebuilt.id).value, kept(queue, rebuilt.id).attempts)
    batch = [taken(queue), taken(queue, keep_result=None), taken(queue)]
    assert 3 == queue.ack_batch([batch[0], batch[1].id, queue.handle(batch[2].id, batch[2].token), batch[0].id])
    ids += [batch[0].id, batch[2].id]
    assert queue.result(batch[1].id) is None
    assert [(Outcome.SUCCEEDED, None, b"null")] * 3 == [
        (result.outcome, result.value, result.raw) for result in (kept(queue, job_id) for job_id in ids)
    ]


@clause("Z-17", "J-1")
def test_an_ack_that_is_refused_keeps_nothing(queue: Queue, clock: Clock) -> None:
    """Too late, by a claim that was lost, and a second time, when the first result stands."""
    handle = taken(queue)
    clock.set(handle.deadline)
    clock.advance(MICROSECOND)
    assert not handle.ack(result="too late")
    assert not queue.handle(handle.id, handle.token).ack(result="too late")
    assert 0 == queue.ack_batch([handle, handle.id])
    assert queue.result(handle.id) is None
    another = claimed(queue, "another")
    assert not handle.ack(result="lost")
    assert queue.result(handle.id) is None
    assert another.ack(result="first")
    assert not another.ack(result="second")
    result = kept(queue, handle.id)
    assert ("first", 2, "another") == (result.value, result.attempts, result.worker_id)


@clause("Z-17", "J-10", "T-2", needs="transactions")
def test_a_result_commits_with_the_effects_of_its_job(store: Store, queue: Queue) -> None:
    """And is rolled back with them, a savepoint's included; nobody sees it before."""
    handle = taken(queue)
    with leaving(), store.transaction() as tx:
        assert tx.bind(handle).ack(result="undone")
        seen = tx.queue(queue.name).result(handle.id)
        assert seen is not None
        assert "undone" == seen.value
        raise Leave
    assert queue.result(handle.id) is None
    with store.transaction() as tx:
        with leaving(), tx.transaction():
            assert tx.bind(handle).ack(result="undone")
            raise Leave
        assert tx.queue(queue.name).result(handle.id) is None
        assert tx.bind(handle).ack(result="kept")
    assert "kept" == kept(queue, handle.id).value


@clause("Z-17", "J-10", "Z-3", needs="transactions")
def test_a_handles_transaction_keeps_the_result_that_it_was_given(queue: Queue, clock: Clock) -> None:
    """``None`` without one; and one that was given after the deadline, as the final ack goes by the token alone."""
    handle = taken(queue)
    with handle.transaction():
        pass
    assert (Outcome.SUCCEEDED, None) == (kept(queue, handle.id).outcome, kept(queue, handle.id).value)
    handle = taken(queue)
    with handle.transaction():
        assert handle.ack(result="inside")
    assert "inside" == kept(queue, handle.id).value
    handle = taken(queue)
    with handle.transaction():
        clock.set(handle.deadline)
        clock.advance(MICROSECOND)
        assert not handle.ack(result="slow")
    assert "slow" == kept(queue, handle.id).value
    handle = taken(queue)
    with leaving(), handle.transaction():
        assert handle.ack(result="undone")
        raise Leave
    assert queue.result(handle.id) is None


@clause("Z-17", "J-10", needs="transactions")
def test_a_handles_transaction_that_lost_its_claim_keeps_nothing(queue: Queue) -> None:
    """It isn't entered."""
    handle = taken(queue)
    assert queue.cancel(handle.id)
    with pytest.raises(ClaimLostError), handle.transaction():
        pass
    assert Outcome.CANCELLED is kept(queue, handle.id).outcome


@clause("Z-17", "T-3", needs="join")
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_result_stands_or_falls_with_the_applications_transaction(
    commits: bool, store: Store, queue: Queue, connect: Connect
) -> None:
    """Acked, or cancelled, on a connection of the application's own."""
    acked, cancelled = taken(queue), queue.enqueue("other", keep_result=60)
    connection = connect()
    joined = store.join(connection)
    assert joined.bind(acked).ack(result="joined")
    assert joined.queue(queue.name).cancel(cancelled)
    inside = joined.queue(queue.name).result(acked.id)
    assert inside is not None
    assert ("joined", queue.name, "worker-1") == (inside.value, inside.queue, inside.worker_id)
    if commits:
        connection.commit()
        assert "joined" == kept(queue, acked.id).value
        assert Outcome.CANCELLED is kept(queue, cancelled).outcome
    else:
        connection.rollback()
        assert (None, None) == (queue.result(acked.id), queue.result(cancelled))


# --- cancelled, purged, dead --------------------------------------------------------------------------------------


@clause("Z-17", "Q-3", "Q-6")
@pytest.mark.parametrize("ends", ["cancel", "purge"])
def test_a_job_that_was_cancelled_leaves_a_tombstone(ends: str, queue: Queue, clock: Clock) -> None:
    """By ``cancel``, and by ``purge`` while it is alive, for its time: one that is pending, and one that is processing."""
    worked = taken(queue)
    waits = queue.enqueue("pending", keep_result=3600)
    without = queue.enqueue("pending")
    now = clock.advance(1)
    if ends == "cancel":
        assert [True] * 3 == [queue.cancel(job_id) for job_id in (worked.id, waits, without)]
    else:
        assert (2, 1) == (queue.purge("pending"), queue.purge("processing"))
    assert queue.result(without) is None
    for job_id, attempts, worker in ((worked.id, 1, "worker-1"), (waits, 0, None)):
        stone = kept(queue, job_id)
        assert (Outcome.CANCELLED, None, None, None) == (stone.outcome, stone.value, stone.raw, stone.codec)
        assert (attempts, worker, now, now + HOUR) == (
            stone.attempts, stone.worker_id, stone.finished_at, stone.expires_at,
        )  # fmt: skip
    assert not worked.ack(result="too late")
    assert Outcome.CANCELLED is kept(queue, worked.id).outcome
    assert not queue.cancel(worked.id)


@clause("Z-17")
def test_a_dead_job_says_that_it_failed(queue: Queue, clock: Clock) -> None:
    """And of what, as long as it lies with the dead, whether it keeps results or not; once it is purged, nothing."""
    for options in ({}, {"keep_result": None}):
        handle = taken(queue, **options)
        assert handle.fail("no such address")
        result = kept(queue, handle.id)
        assert (Outcome.FAILED, "no such address", None, 1) == (
            result.outcome, result.error, result.value, result.attempts,
        )  # fmt: skip
        assert (clock(), None) == (result.finished_at, result.expires_at)
        assert queue.retry_dead(handle.id)
        assert queue.result(handle.id) is None
        assert claimed(queue).fail()
        assert 1 == queue.purge("dead")
        assert queue.result(handle.id) is None


# --- for a time ---------------------------------------------------------------------------------------------------


@clause("Z-17", "Q-5")
def test_a_result_is_kept_for_its_time_and_then_gone(store: Store, queue: Queue, clock: Clock) -> None:
    """To the microsecond, swept or not; a sweep removes it for good, and with it the queue that had nothing else."""
    handle, cancelled = taken(queue), queue.enqueue("other", keep_result=3600)
    ended = clock()
    assert handle.ack(result=1)
    assert queue.cancel(cancelled)
    clock.set(ended + HOUR - MICROSECOND)
    assert 0 == queue.sweep_expired()
    assert (1, Outcome.CANCELLED) == (kept(queue, handle.id).value, kept(queue, cancelled).outcome)
    clock.advance(MICROSECOND)
    assert (None, None) == (queue.result(handle.id), store.result(cancelled))
    clock.advance(-1)
    assert 1 == kept(queue, handle.id).value
    clock.advance(1)
    assert [queue.name] == store.queues()
    assert 0 == queue.sweep_expired()
    assert [] == store.queues()
    clock.advance(-1)
    assert (None, None) == (queue.result(handle.id), queue.result(cancelled))


@clause("Z-17", "Q-5", "Q-1", "Z-8", needs="transactions")
def test_a_sweep_removes_any_number_of_results_of_its_own_queue(
    store: Store, queue: Queue, clock: Clock, queue_names: Callable[[], str]
) -> None:
    """Batch after batch; within a transaction, one batch of 1,000."""
    other = store.queue(queue_names())
    bystander = taken(other)
    assert bystander.ack(result="other")
    ids = queue.enqueue_many(range(2_500), keep_result=3600)
    assert 2_500 == queue.ack_batch(queue.claim_batch("w", 2_500))
    clock.advance(HOUR)
    with store.transaction() as tx:
        assert 0 == tx.queue(queue.name).sweep_expired()
    clock.advance(-1)
    assert 1_500 == sum(queue.result(job_id) is not None for job_id in ids)
    clock.advance(1)
    assert 0 == queue.sweep_expired()
    clock.advance(-1)
    assert not any(queue.result(job_id) for job_id in ids)
    assert "other" == kept(other, bystander.id).value


# --- waiting ------------------------------------------------------------------------------------------------------


@clause("Z-17")
def test_what_is_there_is_not_waited_for(store: Store, queue: Queue) -> None:
    """A result, a tombstone and a death come at once; so does nothing, where there is nothing to wait for."""
    acked, failed = taken(queue), taken(queue)
    cancelled = queue.enqueue("other", keep_result=60)
    assert (True, True, True) == (acked.ack(result=1), failed.fail("no"), queue.cancel(cancelled))
    outcomes = [queue.wait_result(job_id) for job_id in (acked.id, failed.id, cancelled)]
    assert [(Outcome.SUCCEEDED, 1), (Outcome.FAILED, None), (Outcome.CANCELLED, None)] == [
        (each.outcome, each.value) for each in outcomes if each is not None
    ]
    for nowhere in (cancelled + 1, 0, -1, 2**63):
        assert queue.wait_result(nowhere) is None
    assert store.queue("another queue").wait_result(acked.id) is None


@clause("Z-17")
def test_waiting_ends_when_the_time_is_up(queue: Queue) -> None:
    """With nothing."""
    job_id = queue.enqueue("work", keep_result=60)
    for timeout in (0, 0.05, timedelta(milliseconds=50)):
        assert queue.wait_result(job_id, timeout) is None


@clause("Z-17", "T-5", needs="transactions")
def test_what_can_never_come_is_not_waited_for(store: Store, queue: Queue) -> None:
    """A job that keeps none, and a wait within a transaction, are refused."""
    job_id = queue.enqueue("work")
    with pytest.raises(ValidationError, match="keep_result"):
        queue.wait_result(job_id)
    for wrong in ({"timeout": -1}, {"poll_interval": 0}, {"timeout": "1"}):
        with pytest.raises(ValidationError):
            queue.wait_result(job_id, **wrong)  # type: ignore[arg-type]
    with store.transaction() as tx, pytest.raises(TransactionError):
        tx.queue(queue.name).wait_result(job_id)


ENDINGS: dict[str, Callable[[Queue, JobHandle], object]] = {
    "ack": lambda _, handle: handle.ack(result="done"),
    "rebuilt": lambda queue, handle: queue.handle(handle.id, handle.token).ack(result="done"),
    "batch": lambda queue, handle: queue.ack_batch([handle.id]),
    "cancel": lambda queue, handle: queue.cancel(handle.id),
    "purge": lambda queue, _: queue.purge("processing"),
    "fail": lambda _, handle: handle.fail("no"),
    "retry": lambda _, handle: handle.retry("no"),
}


@clause("Z-17")
@pytest.mark.parametrize("ending", ENDINGS)
def test_all_who_wait_for_a_job_are_woken_by_its_end(ending: str, queue: Queue) -> None:
    """Whatever ends it, and by nothing but the wake."""
    with ThreadPoolExecutor(3) as pool:
        for _ in range(rounds(20)):
            handle = taken(queue, max_attempts=1)
            waits = [pool.submit(queue.wait_result, handle.id, WAIT, poll_interval=1_000) for _ in range(3)]
            assert ENDINGS[ending](queue, handle)
            results = [each.result(WAIT) for each in waits]
            assert [kept(queue, handle.id)] * 3 == results


@clause("Z-17", "T-2", needs="transactions")
def test_a_transaction_wakes_those_who_wait_when_it_commits(store: Store, queue: Queue) -> None:
    """And not before."""
    with ThreadPoolExecutor(1) as pool:
        for _ in range(rounds(20)):
            handle = taken(queue)
            waits = pool.submit(queue.wait_result, handle.id, WAIT, poll_interval=1_000)
            with handle.transaction():
                handle.ack(result="inside")
                assert not waits.done()
            result = waits.result(WAIT)
            assert result is not None
            assert "inside" == result.value


@clause("Z-17", "W-4", needs=("processes", "notify"))
def test_a_result_wakes_those_who_wait_in_other_processes(harness: Harness, place: str, queue: Queue) -> None:
    """Two processes, many rounds, and nothing but the wake to tell of it."""
    ids = queue.enqueue_many(range(rounds(200)), keep_result=3600)
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(Child(harness, place, "await_results", queue=queue.name, ids=ids, now=None))
            for _ in range(2)
        ]
        for job_id in ids:
            handle = claimed(queue)
            assert job_id == handle.id
            assert ["waits"] * 2 == [child.hear() for child in waiting]
            assert handle.ack(result={"job": job_id})
            assert [["succeeded", {"job": job_id}]] * 2 == [child.hear() for child in waiting]
        for child in waiting:
            child.finish()


@clause("Z-17", "S-3")
def test_closing_the_store_ends_the_wait(store: Store, queue: Queue) -> None:
    """With the error that says so; and nothing else of results can be used then."""
    job_id = queue.enqueue("work", keep_result=60)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(queue.wait_result, job_id, poll_interval=1_000)
        with pytest.raises(TimeoutError):
            waits.result(0.2)
        store.close()
        with pytest.raises(StoreClosedError):
            waits.result(WAIT)
    for refused in (queue.result, queue.wait_result, store.result):
        with pytest.raises(StoreClosedError):
            refused(job_id)
