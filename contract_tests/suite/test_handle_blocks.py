"""``with handle:``: ack when it ends well, retry when it raises (J-10, Z-3)."""

from __future__ import annotations

from datetime import datetime

import pytest

from alkstore import ClaimLostError, State
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Row
from contract_tests.steps import Leave, Operation, Peek, claimed, each_settling, found, leaving
from contract_tests.travel import MICROSECOND, Clock


@clause("J-10", "J-2")
def test_a_handles_block_acks_when_it_ends_well(queue: Queue, peek: Peek) -> None:
    """``with handle:`` is the ack, and gives the handle itself."""
    queue.enqueue("work")
    handle = claimed(queue)
    with handle as same:
        assert handle is same
        assert 1 == len(peek())
    assert [] == peek()


@clause("J-10", "Z-3")
@pytest.mark.parametrize("error", [ValueError("it broke"), KeyboardInterrupt("it broke"), SystemExit("it broke")])
def test_a_handles_block_retries_on_any_exception(error: BaseException, queue: Queue) -> None:
    """The job is retried with the exception's text, even for a ``BaseException``, and the exception goes on up."""
    job_id = queue.enqueue("work")
    with pytest.raises(type(error)) as raised, claimed(queue):
        raise error
    assert error is raised.value
    job = found(queue, job_id)
    assert (State.PENDING, f"{type(error).__name__}: it broke", 1) == (job.state, job.last_error, job.attempts)
    assert job.run_at > job.created_at


@clause("J-10", "J-4")
def test_a_handles_block_buries_on_an_exception_in_the_last_attempt(queue: Queue) -> None:
    """A retry whose budget is spent is a burial, with the exception's text."""
    job_id = queue.enqueue("work", max_attempts=1)
    with pytest.raises(ValueError, match="it broke"), claimed(queue):
        raise ValueError("it broke")
    job = found(queue, job_id)
    assert (State.DEAD, "ValueError: it broke") == (job.state, job.last_error)


@clause("Z-3", "J-10")
@each_settling
@pytest.mark.parametrize("raises", [False, True], ids=["ends well", "raises"])
def test_a_handle_that_was_settled_inside_is_left_alone(
    settle: Operation, raises: bool, queue: Queue, peek: Peek
) -> None:
    """What was done inside stands, whether the block then ends well or raises."""
    queue.enqueue("work")
    inside: list[list[Row]] = []

    def work() -> None:
        with claimed(queue) as handle:
            assert settle(handle)
            inside.append(peek())
            if raises:
                raise ValueError("too late")

    if raises:
        with pytest.raises(ValueError, match="too late"):
            work()
    else:
        work()
    assert inside == [peek()]


@clause("Z-3", "J-10")
def test_a_refused_final_ack_is_a_lost_claim(queue: Queue, clock: Clock, peek: Peek) -> None:
    """When the claim lapsed inside the block, leaving it raises ``ClaimLostError``, and the job is still there."""
    queue.enqueue("work")
    with pytest.raises(ClaimLostError), claimed(queue) as handle:
        clock.set(handle.deadline + MICROSECOND)
    assert 1 == len(peek())
    assert 2 == claimed(queue).attempt


@clause("Z-3", "J-10")
def test_a_retry_that_is_refused_does_not_hide_the_exception(queue: Queue, clock: Clock) -> None:
    """When the claim was lost and the block raises, it is the block's exception that comes out."""
    queue.enqueue("work")
    with leaving(), claimed(queue) as handle:
        clock.set(handle.deadline + MICROSECOND)
        claimed(queue, "other")
        raise Leave
    assert "other" == found(queue, handle.id).worker_id


@clause("Z-3")
def test_a_retry_that_fails_does_not_hide_the_exception(open_store: OpenStore, queue_name: str, clock: Clock) -> None:
    """When the store is closed inside the block, its exception comes out all the same."""
    store = open_store(clock=clock)
    queue = store.queue(queue_name)
    queue.enqueue("work")
    with leaving(), claimed(queue):
        store.close()
        raise Leave


@clause("Z-3", "T-2")
@each_settling
def test_what_was_settled_in_a_transaction_that_rolled_back_was_not_settled(
    settle: Operation, store: Store, queue: Queue, peek: Peek
) -> None:
    """Neither what a savepoint of it had kept: the block that ends well then acks the job after all."""
    queue.enqueue("work")
    with claimed(queue) as handle:
        with leaving(), store.transaction() as tx:
            with tx.transaction() as inner:
                assert settle(inner.bind(handle))
            raise Leave
        assert 1 == len(peek())
    assert [] == peek()


@clause("Z-3", "Q-2")
def test_a_handle_acked_in_a_batch_inside_is_left_alone(queue: Queue, peek: Peek) -> None:
    """``ack_batch`` settles the handles that it is given, as their own ``ack`` would."""
    queue.enqueue_many(["a", "b"])
    first, second = queue.claim_batch("worker-1", 2)
    with first, second:
        assert 2 == queue.ack_batch([first, second])
    assert [] == peek()


@clause("Z-3", "Z-7", "Q-2")
def test_a_batch_settles_only_the_claim_that_it_acked(queue: Queue, clock: Clock) -> None:
    """A stale handle beside the id, or the current handle, of its job was refused, and its block says so."""
    for beside in ("the id", "the current handle"):
        queue.enqueue("work")
        stale = claimed(queue)
        clock.advance(61)
        current = claimed(queue)
        assert 1 == queue.ack_batch([stale, current.id if beside == "the id" else current])
        with pytest.raises(ClaimLostError), stale:
            pass


@clause("Z-3")
def test_a_clock_that_fails_does_not_hide_the_blocks_exception(
    open_store: OpenStore, queue_name: str, clock: Clock
) -> None:
    """Whatever goes wrong with the retry, the exception of the block goes on up."""
    broken = False

    def now() -> datetime:
        if broken:
            raise RuntimeError("no time")
        return clock()

    queue = open_store(clock=now).queue(queue_name)
    queue.enqueue("work")

    def block() -> None:
        nonlocal broken
        with claimed(queue):
            broken = True
            raise KeyError("it broke")

    with pytest.raises(KeyError, match="it broke"):
        block()
