"""``handle.transaction()``: the job's effects and its ack in one commit (J-10, Z-3, Z-7)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from alkstore import ClaimLostError, State, TransactionError
from alkstore.protocols import Queue, Store, Transaction
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.steps import Leave, Operation, Peek, claimed, each_settling, found, leaving
from contract_tests.together import beside
from contract_tests.travel import MICROSECOND, Clock

RESULTS = "results"
"""The effect of a job, here, is a job in this queue: any table of the same database would do."""


def effect(tx: Transaction, what: str = "done") -> None:
    """Do the work of a job inside its transaction."""
    tx.queue(RESULTS).enqueue(what)


def results(store: Store) -> list[object]:
    """Return the effects that are there."""
    return [job.payload for job in store.queue(RESULTS).jobs(limit=10_000)]


@clause("J-10")
def test_the_effects_and_the_ack_are_committed_together(store: Store, queue: Queue, peek: Peek) -> None:
    """Before the block ends outsiders see neither, and afterwards both."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = peek()
    with handle.transaction() as tx:
        effect(tx)
        assert before == peek()
    assert [RESULTS] == [row.queue for row in peek()]
    assert ["done"] == results(store)
    assert False is handle.ack()


@clause("J-10", "Z-3")
@pytest.mark.parametrize("error", [ValueError("it broke"), KeyboardInterrupt("it broke"), SystemExit("it broke")])
def test_an_exception_undoes_the_effects_and_retries_the_job(error: BaseException, store: Store, queue: Queue) -> None:
    """Nothing of the block is left, the job is pending again with the text, and the exception goes on up."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)

    def block() -> None:
        with handle.transaction() as tx:
            effect(tx)
            raise error

    with pytest.raises(type(error)) as raised:
        block()
    assert error is raised.value
    job = found(queue, job_id)
    assert (State.PENDING, 1, f"{type(error).__name__}: it broke") == (job.state, job.attempts, job.last_error)
    assert timedelta(seconds=3) <= job.run_at - job.created_at <= timedelta(seconds=5)
    assert [] == results(store)


@clause("J-10", "J-4")
def test_an_exception_in_the_last_attempt_buries_the_job(store: Store, queue: Queue) -> None:
    """The retry after the rollback finds the budget spent."""
    job_id = queue.enqueue("work", max_attempts=1)
    with leaving(), claimed(queue).transaction() as tx:
        effect(tx)
        raise Leave("it broke")
    job = found(queue, job_id)
    assert (State.DEAD, "Leave: it broke") == (job.state, job.last_error)
    assert [] == results(store)


@clause("J-10")
@pytest.mark.parametrize("how", ["lapsed", "reclaimed", "acked", "cancelled"])
def test_a_claim_that_is_not_valid_is_lost_on_entry(
    how: str, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """``ClaimLostError`` is raised, the block isn't begun, nothing is changed, and the thread is free."""
    queue.enqueue("work")
    handle = claimed(queue)
    if how == "acked":
        assert handle.ack()
    elif how == "cancelled":
        assert queue.cancel(handle.id)
    else:
        clock.set(handle.deadline + MICROSECOND)
        if how == "reclaimed":
            claimed(queue)
    before = (peek(), queue.jobs())
    with pytest.raises(ClaimLostError), handle.transaction():
        pytest.fail("the block was begun")
    assert before == (peek(), queue.jobs())
    with store.transaction() as tx:
        effect(tx)
    assert ["done"] == results(store)


@clause("J-10", "Q-CLAIM-4")
def test_a_claim_is_held_on_entry_up_to_its_very_deadline(store: Store, queue: Queue, clock: Clock) -> None:
    """At the deadline the block is begun, and what it does is committed."""
    queue.enqueue("work")
    handle = claimed(queue)
    clock.set(handle.deadline)
    with handle.transaction() as tx:
        effect(tx)
    assert (["done"], []) == (results(store), queue.jobs())


@clause("J-10")
def test_the_final_ack_is_judged_by_the_token_alone(store: Store, queue: Queue, clock: Clock) -> None:
    """A deadline that passes inside the block, with nobody else having the job, doesn't matter."""
    queue.enqueue("work")
    handle = claimed(queue)
    with handle.transaction() as tx:
        effect(tx)
        clock.set(handle.deadline + timedelta(hours=1))
    assert (["done"], []) == (results(store), queue.jobs())
    assert queue.claim_one("other") is None


@clause("J-10", "Z-3")
@pytest.mark.parametrize("how", ["reclaimed", "cancelled", "purged", "swept"])
def test_a_claim_lost_inside_undoes_everything(how: str, store: Store, queue: Queue, clock: Clock, peek: Peek) -> None:
    """If by the end the claim isn't the job's current one, ``ClaimLostError`` is raised, and all is as before."""
    queue.enqueue("work", expires=3600)
    handle = claimed(queue)
    before = (peek(), queue.jobs())

    def block() -> None:
        with handle.transaction() as tx:
            effect(tx)
            within = tx.queue(queue.name)
            if how == "reclaimed":
                clock.set(handle.deadline + MICROSECOND)
                assert handle.id == claimed(within, "other").id
            elif how == "cancelled":
                assert within.cancel(handle.id)
            elif how == "purged":
                assert 1 == within.purge(State.PROCESSING)
            else:
                clock.advance(3600)
                assert 1 == within.sweep_expired()

    with pytest.raises(ClaimLostError):
        block()
    assert before == (peek(), queue.jobs())
    assert [] == results(store)


@clause("Z-3", "J-10")
@each_settling
def test_settling_inside_replaces_the_ack(settle: Operation, store: Store, queue: Queue, peek: Peek) -> None:
    """Inside, the handle is bound to the transaction: what it does is committed with the effects, and no ack is added."""
    queue.enqueue("work")
    handle = claimed(queue)
    twin_queue = store.queue("twin")
    twin_queue.enqueue("work")
    twin = claimed(twin_queue)
    assert settle(twin)
    before = peek()
    with handle.transaction() as tx:
        effect(tx)
        assert settle(handle)
        assert before == peek()
    assert ["done"] == results(store)
    mine, expected = store.queue(queue.name).jobs(), twin_queue.jobs()
    shape: Callable[[Queue], list[object]] = lambda q: [  # noqa: E731
        (job.state, job.attempts, job.last_error, job.worker_id) for job in q.jobs()
    ]
    assert (shape(twin_queue), len(expected)) == (shape(queue), len(mine))


@clause("Z-3", "J-10")
@each_settling
def test_an_exception_after_settling_inside_undoes_that_too(settle: Operation, store: Store, queue: Queue) -> None:
    """What was settled was rolled back with the rest, so that the job is retried after all."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    with leaving(), handle.transaction() as tx:
        effect(tx)
        assert settle(handle)
        raise Leave("it broke")
    job = found(queue, job_id)
    assert (State.PENDING, 1, "Leave: it broke") == (job.state, job.attempts, job.last_error)
    assert [] == results(store)


@clause("Z-3", "T-2")
@each_settling
def test_settling_in_an_undone_savepoint_does_not_replace_the_ack(
    settle: Operation, store: Store, queue: Queue
) -> None:
    """It never happened, and so the job is acked at the end."""
    queue.enqueue("work")
    handle = claimed(queue)
    with handle.transaction() as tx:
        effect(tx)
        with leaving(), tx.transaction() as inner:
            assert settle(inner.bind(handle))
            raise Leave
    assert (["done"], []) == (results(store), queue.jobs())


@clause("J-10", "J-3")
def test_a_heartbeat_inside_does_not_replace_the_ack(store: Store, queue: Queue, clock: Clock) -> None:
    """Neither does a refused operation settle anything."""
    queue.enqueue("work")
    handle = claimed(queue)
    with handle.transaction() as tx:
        assert handle.heartbeat(extend=5)
        clock.advance(6)
        assert False is handle.heartbeat()
        effect(tx)
    assert (["done"], []) == (results(store), queue.jobs())


@clause("Z-3", "J-10")
def test_a_retry_that_is_refused_after_the_rollback_does_not_hide_the_exception(
    store: Store, queue: Queue, clock: Clock
) -> None:
    """The claim lapsed meanwhile: the job stays as it is, for the next claim, and the block's exception comes out."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    with leaving(), handle.transaction() as tx:
        effect(tx)
        clock.set(handle.deadline + MICROSECOND)
        raise Leave
    job = found(queue, job_id)
    assert (State.PROCESSING, 1, None) == (job.state, job.attempts, job.last_error)
    assert 2 == claimed(queue).attempt
    assert [] == results(store)


@clause("Z-3", "J-10")
def test_a_store_closed_inside_does_not_hide_the_exception(
    open_store: OpenStore, queue_name: str, clock: Clock, peek: Peek
) -> None:
    """Neither rollback nor retry can be done by a closed store, and the block's exception comes out all the same."""
    closing = open_store(clock=clock)
    queue = closing.queue(queue_name)
    queue.enqueue("work")
    with leaving(), claimed(queue).transaction() as tx:
        effect(tx)
        closing.close()
        raise Leave


@clause("J-10", "Q-8")
def test_a_rebuilt_handle_has_transactions_too(store: Store, queue: Queue) -> None:
    """Exactly once works from id and token alone."""
    queue.enqueue("work")
    handle = claimed(queue)
    with store.queue(queue.name).handle(handle.id, handle.token).transaction() as tx:
        effect(tx)
    assert (["done"], []) == (results(store), queue.jobs())
    with pytest.raises(ClaimLostError), handle.transaction():
        pytest.fail("entered twice")


@clause("J-10", "T-5")
def test_other_handles_need_binding_inside(store: Store, queue: Queue) -> None:
    """The transaction is one of the store like any other: auto-commit calls are refused in it, bound ones are not."""
    queue.enqueue_many(["a", "b"])
    first, second = queue.claim_batch("worker-1", 2)
    with first.transaction() as tx:
        with pytest.raises(TransactionError):
            second.ack()
        assert tx.bind(second).ack()
        effect(tx)
    assert (["done"], []) == (results(store), queue.jobs())


@clause("J-10", "Z-4")
def test_a_handle_can_be_used_in_a_second_transaction_after_a_failed_first(store: Store, queue: Queue) -> None:
    """A plain transaction that rolled back leaves the claim valid for ``handle.transaction()``."""
    queue.enqueue("work")
    handle = claimed(queue)
    with leaving(), store.transaction() as tx:
        assert tx.bind(handle).ack()
        effect(tx)
        raise Leave
    with handle.transaction() as tx:
        effect(tx)
    assert (["done"], []) == (results(store), queue.jobs())


# --- against others ----------------------------------------------------------------------------------------------------


@clause("J-10", "Q-CLAIM-2", needs="processes")
def test_a_job_held_in_its_transaction_is_not_reclaimed(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock
) -> None:
    """Though its claim has lapsed, another store gets nothing while it is held, and nothing after its commit."""
    outside = open_store(clock=clock).queue(queue.name)
    queue.enqueue("work")
    handle = claimed(queue)
    with ThreadPoolExecutor(1) as thread:
        with handle.transaction() as tx:
            effect(tx)
            clock.set(handle.deadline + timedelta(hours=1))
            other = beside(thread, lambda: outside.claim_one("other"))
        assert other.result(timeout=60) is None
    assert (["done"], []) == (results(store), queue.jobs())


@clause("J-10", needs="processes")
def test_a_job_whose_transaction_failed_is_reclaimed(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock
) -> None:
    """After the rollback of a lapsed claim the next one finds the job, and does it once."""
    outside = open_store(clock=clock).queue(queue.name)
    queue.enqueue("work")
    handle = claimed(queue)
    with leaving(), handle.transaction() as tx:
        effect(tx, "first")
        clock.set(handle.deadline + timedelta(hours=1))
        raise Leave
    again = claimed(outside, "other")
    with again.transaction() as tx:
        effect(tx, "second")
    assert (["second"], []) == (results(store), queue.jobs())


@clause("Z-7", "Q-3", needs="processes")
@pytest.mark.parametrize("ends_well", [True, False], ids=["commits", "rolls back"])
def test_a_cancel_against_an_open_transaction_of_the_job_waits_for_it(
    ends_well: bool, store: Store, open_store: OpenStore, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """The first to commit wins: after the job's commit the cancel is ``False``; after its rollback the job is cancelled."""
    outside = open_store(clock=clock).queue(queue.name)
    queue.enqueue("work")
    handle = claimed(queue)

    def block(thread: ThreadPoolExecutor) -> None:
        with handle.transaction() as tx:
            effect(tx)
            running.append(beside(thread, lambda: outside.cancel(handle.id)))
            if not ends_well:
                raise Leave

    running: list[Future[object]] = []
    with ThreadPoolExecutor(1) as thread:
        if ends_well:
            block(thread)
        else:
            with leaving():
                block(thread)
        assert (not ends_well) is running[0].result(timeout=60)
    assert (["done"] if ends_well else []) == results(store)
    assert [] == queue.jobs()


@clause("Z-7", "J-10", "Q-3")
def test_a_cancel_that_came_first_loses_the_claim(store: Store, queue: Queue, peek: Peek) -> None:
    """The job's transaction is then refused on entry, and the cancelled job is never revived."""
    queue.enqueue("work")
    handle = claimed(queue)
    with store.transaction() as tx:
        assert tx.queue(queue.name).cancel(handle.id)
    with pytest.raises(ClaimLostError), handle.transaction():
        pytest.fail("entered")
    assert [] == peek()


@clause("T-6")
def test_reading_first_and_writing_later_never_fails_for_a_concurrent_writer(store: Store, queue: Queue) -> None:
    """Threads that each read and then write in one transaction all come through: they wait their turn."""
    jobs, workers = 40, 4
    queue.enqueue_many(range(jobs))

    def work(number: int) -> int:
        done = 0
        while True:
            with store.transaction() as tx:
                within = tx.queue(queue.name)
                within.stats()
                within.jobs()
                handle = within.claim_one(f"worker-{number}")
                if handle is None:
                    return done
                effect(tx, str(handle.payload))
                assert handle.ack()
            done += 1

    with ThreadPoolExecutor(workers) as threads:
        assert sum(threads.map(work, range(workers))) == jobs
    assert sorted(map(str, range(jobs))) == sorted(map(str, results(store)))
    assert [] == queue.jobs()


@clause("T-6", needs="processes")
def test_a_writer_between_the_read_and_the_write_is_no_failure(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock
) -> None:
    """Another store writes the very rows that were read: it waits, or the transaction does, and both come through."""
    outside = open_store(clock=clock).queue(queue.name)
    first = queue.enqueue("first")
    with ThreadPoolExecutor(1) as thread:
        with store.transaction() as tx:
            within = tx.queue(queue.name)
            assert 1 == within.stats().ready
            assert within.get_job(first) is not None
            writing = beside(thread, lambda: (outside.cancel(first), outside.enqueue("second")))
            within.enqueue("third")
            cancelled = within.cancel(first)
        other = writing.result(timeout=60)
        assert isinstance(other, tuple)
    assert {True, False} == {cancelled, other[0]}
    assert {"second", "third"} == {job.payload for job in queue.jobs()}


@clause("Z-3", "J-10")
@pytest.mark.parametrize("how", ["ack_batch by id", "ack_batch by handle", "a rebuilt handle's fail"])
def test_settling_the_claim_inside_by_another_way_replaces_the_ack_too(how: str, store: Store, queue: Queue) -> None:
    """Whichever handle or id settles it in the transaction: the effects stay, and nothing is acked twice."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    with handle.transaction() as tx:
        effect(tx)
        inside = tx.queue(queue.name)
        if how == "ack_batch by id":
            assert 1 == inside.ack_batch([handle.id])
        elif how == "ack_batch by handle":
            assert 1 == inside.ack_batch([handle])
        else:
            assert inside.handle(handle.id, handle.token).fail("no")
    assert ["done"] == results(store)
    job = queue.get_job(job_id)
    assert ("no" if "fail" in how else None) == (None if job is None else job.last_error)


@clause("Z-3", "J-10")
def test_settling_that_a_savepoint_undid_does_not_replace_the_ack(store: Store, queue: Queue, peek: Peek) -> None:
    """The job is acked at the end, as if nothing had been settled."""
    queue.enqueue("work")
    handle = claimed(queue)
    with handle.transaction() as tx:
        effect(tx)
        with suppress(ZeroDivisionError), tx.transaction() as savepoint:
            assert 1 == savepoint.queue(queue.name).ack_batch([handle.id])
            raise ZeroDivisionError
    assert [RESULTS] == [row.queue for row in peek()]
    assert ["done"] == results(store)


@clause("Z-3", "J-10")
def test_another_claim_lost_inside_is_an_exception_like_any_other(store: Store, queue: Queue) -> None:
    """The effects are undone, and this job is retried with the text: its own claim was not lost."""
    other, mine = queue.enqueue("other"), queue.enqueue("mine")
    lost, handle = queue.claim_batch("w", 2)
    assert (other, mine) == (lost.id, handle.id)
    assert queue.cancel(lost.id)

    def block() -> None:
        with handle.transaction() as tx:
            effect(tx)
            with tx.bind(lost):
                pass

    with pytest.raises(ClaimLostError):
        block()
    assert [] == results(store)
    job = found(queue, mine)
    assert State.PENDING is job.state
    assert (job.last_error or "").startswith("ClaimLostError: ")
