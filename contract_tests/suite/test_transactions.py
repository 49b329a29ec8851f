"""The store's transactions and savepoints: all or nothing, seen by nobody before (T-1, T-2, T-4, T-5, Z-4)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import pytest

from alkstore import PayloadError, State, TransactionError
from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.steps import Leave, Operation, Peek, claimed, each_operation, found, leaving
from contract_tests.travel import MICROSECOND, Clock

NO_SUCH_TABLE = "SELECT 1 FROM alk_no_such_table"


# --- T-1: all or nothing ---------------------------------------------------------------------------------------------


@clause("T-1")
def test_a_transaction_commits_when_its_block_ends_well(store: Store, queue: Queue, peek: Peek) -> None:
    """What several queues were told in it is there afterwards, all of it."""
    with store.transaction() as tx:
        first = tx.queue(queue.name).enqueue("a")
        many = tx.queue("another").enqueue_many(["b", "c"])
    assert [first, *many] == [row.id for row in peek()]
    assert "a" == found(queue, first).payload


@clause("T-1", "T-2")
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: type(e).__name__)
def test_a_transaction_rolls_back_on_any_exception_and_does_not_mask_it(
    error: BaseException, store: Store, queue: Queue, peek: Peek
) -> None:
    """The very exception comes out, and nothing of the block is left; the thread is free for the next one."""

    def block() -> None:
        with store.transaction() as tx:
            tx.queue(queue.name).enqueue("a")
            raise error

    with pytest.raises(type(error)) as raised:
        block()
    assert error is raised.value
    assert [] == peek()
    queue.enqueue("after")
    with store.transaction() as tx:
        tx.queue(queue.name).enqueue("again")
    assert 2 == len(peek())


@clause("T-1", "T-2")
def test_a_transaction_sees_its_own_changes(store: Store, queue: Queue, clock: Clock) -> None:
    """Every operation within it finds what the earlier ones did."""
    old = queue.enqueue("old")
    with store.transaction() as tx:
        within = tx.queue(queue.name)
        new = within.enqueue("new", priority=1)
        assert [old, new] == [job.id for job in within.jobs()]
        handle = claimed(within)
        assert (new, State.PROCESSING) == (handle.id, found(within, new).state)
        assert handle.fail("inside")
        assert (1, 1) == (within.stats().ready, within.stats().dead)
        assert within.retry_dead(new)
        assert within.cancel(old)
        assert within.get_job(old) is None
        within.enqueue("expired", expires=1)
        clock.advance(1)
        assert 1 == within.sweep_expired()
        assert 1 == within.purge(State.DEAD)
        assert 1 == within.ack_batch(within.claim_batch("worker-1", 5))
        assert [] == within.jobs()


@clause("T-1", "T-2", "Q-7")
def test_a_rollback_undoes_every_operation(store: Store, queue: Queue, clock: Clock, peek: Peek) -> None:
    """Acks, retries, failures, releases, heartbeats, cancels, sweeps, revivals and purges never happened."""
    jobs = ["ack", "retry", "fail", "release", "heartbeat", "batch"]
    queue.enqueue_many(jobs)
    handles = {str(handle.payload): handle for handle in queue.claim_batch("worker-1", len(jobs))}
    cancelled = queue.enqueue("cancel")
    expired = queue.enqueue("expire", expires=1)
    queue.enqueue("die", priority=9)
    dead = claimed(queue)
    assert dead.fail()
    clock.advance(1)
    before = (peek(), queue.jobs())
    with leaving(), store.transaction() as tx:
        within = tx.queue(queue.name)
        assert tx.bind(handles["ack"]).ack()
        assert tx.bind(handles["retry"]).retry("x")
        assert tx.bind(handles["fail"]).fail("x")
        assert tx.bind(handles["release"]).release()
        assert tx.bind(handles["heartbeat"]).heartbeat(extend=3600)
        assert 1 == within.ack_batch([handles["batch"]])
        assert within.cancel(cancelled)
        assert within.retry_dead(dead.id)
        assert 1 == within.sweep_expired()
        assert 2 == within.purge(State.DEAD)
        assert within.get_job(expired) is None
        within.claim_batch("other", 10)
        raise Leave
    assert before == (peek(), queue.jobs())
    assert [True] * len(jobs) == [handle.ack() for handle in handles.values()]


@clause("T-1", "Q-ENQ-2")
def test_a_refused_payload_does_not_harm_the_transaction(store: Store, queue: Queue, peek: Peek) -> None:
    """It is refused before any I/O, and what came before and comes after is committed."""
    with store.transaction() as tx:
        within = tx.queue(queue.name)
        within.enqueue("before")
        with pytest.raises(PayloadError):
            within.enqueue(float("nan"))
        with pytest.raises(PayloadError):
            within.enqueue_many(["fine", {1: "a"}])
        within.enqueue("after")
    assert ["before", "after"] == [job.payload for job in queue.jobs()]
    assert 2 == len(peek())


@clause("T-1", "O-1")
def test_a_transactions_queue_takes_the_same_options(store: Store, queue_name: str) -> None:
    """``tx.queue`` stamps jobs as ``store.queue`` does."""
    with store.transaction() as tx:
        within = tx.queue(queue_name, max_attempts=9, visibility_timeout=7, codec="raw")
        job_id = within.enqueue(b"\xff")
    job = found(store.queue(queue_name), job_id)
    assert (9, 7.0, "raw", b"\xff") == (
        job.max_attempts,
        job.visibility_timeout.total_seconds(),
        job.codec,
        job.payload,
    )


@clause("T-1", needs="sql")
def test_the_applications_own_sql_stands_or_falls_with_the_jobs(store: Store, queue: Queue, peek: Peek) -> None:
    """``tx.execute`` runs in the same transaction, and gives the driver's cursor."""
    table = f"alk_suite_{uuid4().hex}"
    with store.transaction() as tx:
        tx.execute(f"CREATE TABLE {table} (n INTEGER)")
    try:
        with leaving(), store.transaction() as tx:
            tx.execute(f"INSERT INTO {table} VALUES (1)")
            tx.queue(queue.name).enqueue("a")
            assert [(1,)] == [tuple(row) for row in tx.execute(f"SELECT n FROM {table}").fetchall()]
            raise Leave
        with store.transaction() as tx:
            assert (0,) == tuple(tx.execute(f"SELECT count(*) FROM {table}").fetchone())
            tx.execute(f"INSERT INTO {table} VALUES (2)")
            tx.queue(queue.name).enqueue("b")
        with store.transaction() as tx:
            assert [(2,)] == [tuple(row) for row in tx.execute(f"SELECT n FROM {table}").fetchall()]
        assert ["b"] == [job.payload for job in queue.jobs()]
    finally:
        with store.transaction() as tx:
            tx.execute(f"DROP TABLE {table}")
    assert 1 == len(peek())


@clause("T-1", "S-5", needs="sql")
def test_a_failed_statement_of_the_application_is_undone_by_its_savepoint(
    store: Store, queue: Queue, peek: Peek
) -> None:
    """Its error is the driver's own; wrapped in ``tx.transaction()`` it harms nothing else, on any engine."""
    with store.transaction() as tx:
        tx.queue(queue.name).enqueue("before")
        with pytest.raises(Exception) as raised, tx.transaction() as inner:  # noqa: PT011 - the driver's, whichever
            inner.execute(NO_SUCH_TABLE)
        assert not type(raised.value).__module__.startswith("alkstore")
        tx.queue(queue.name).enqueue("after")
    assert ["before", "after"] == [job.payload for job in queue.jobs()]
    assert 2 == len(peek())


@clause("T-5", "T-1", needs="sql")
def test_nothing_silently_runs_outside_an_aborted_transaction(store: Store, queue: Queue, peek: Peek) -> None:
    """After a failed statement either all goes on as before, or everything is refused and nothing is kept."""
    refused, committed = 0, False
    attempts: list[Callable[[], object]] = []
    try:
        with store.transaction() as tx:
            within = tx.queue(queue.name)
            within.enqueue("before")
            with pytest.raises(Exception):  # noqa: B017, PT011 - the driver's own, whichever it is
                tx.execute(NO_SUCH_TABLE)
            attempts += [
                lambda: within.enqueue("after"),
                lambda: within.claim_one("worker-1"),
                within.stats,
                lambda: tx.execute("SELECT 1"),
            ]
            for attempt in attempts:
                try:
                    attempt()
                except TransactionError:
                    refused += 1
        committed = True
    except TransactionError:
        assert len(attempts) == refused
    assert (refused == 0) == committed
    assert (2 if committed else 0) == len(peek())
    queue.enqueue("the store goes on")


# --- T-2: seen by nobody before ----------------------------------------------------------------------------------------


@clause("T-2", needs="processes")
def test_nothing_is_seen_before_the_commit(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """Another store, another thread and the back door see all of it after the commit, and nothing before."""
    outside = open_store(clock=clock).queue(queue.name)
    acked, other = queue.enqueue_many(["acked", "failed"])
    handles = queue.claim_batch("worker-1", 2)

    def look(here: Queue) -> object:
        return here.jobs(), here.stats(), [here.get_job(job_id) for job_id in (acked, other)]

    with ThreadPoolExecutor(1) as thread:
        before, rows = look(outside), peek()
        with store.transaction() as tx:
            within = tx.queue(queue.name)
            new = within.enqueue("new")
            assert tx.bind(handles[0]).ack()
            assert tx.bind(handles[1]).fail("inside")
            assert claimed(within).id == new
            assert before == thread.submit(look, outside).result() == thread.submit(look, queue).result()
            assert rows == peek()
        after = look(outside)
    assert before != after
    assert look(queue) == after
    assert [(other, "dead"), (new, "live")] == [(row.id, row.table) for row in peek()]


@clause("T-2", "T-5")
def test_a_savepoint_is_kept_or_undone_by_itself(store: Store, queue: Queue, peek: Peek) -> None:
    """An exception that is caught around it undoes it and what is nested in it, and nothing else."""
    with store.transaction() as tx:
        tx.queue(queue.name).enqueue("outer 1")
        with tx.transaction() as kept:
            kept.queue(queue.name).enqueue("kept 1")
            with leaving(), kept.transaction() as nested:
                nested.queue(queue.name).enqueue("undone")
                raise Leave
            kept.queue(queue.name).enqueue("kept 2")
        with leaving(), tx.transaction() as undone:
            undone.queue(queue.name).enqueue("undone")
            with undone.transaction() as nested:
                nested.queue(queue.name).enqueue("undone with it")
            raise Leave
        tx.queue(queue.name).enqueue("outer 2")
        assert [] == peek()
    assert ["outer 1", "kept 1", "kept 2", "outer 2"] == [job.payload for job in queue.jobs()]


@clause("T-2")
def test_a_rollback_undoes_kept_savepoints_too(store: Store, queue: Queue, peek: Peek) -> None:
    """What a savepoint kept falls with the transaction that it was kept in."""
    with leaving(), store.transaction() as tx:
        with tx.transaction() as inner:
            inner.queue(queue.name).enqueue("a")
        raise Leave
    assert [] == peek()


# --- T-4, Z-4: handles within ---------------------------------------------------------------------------------------


@clause("T-4")
@each_operation
def test_a_bound_handle_acts_within_the_transaction(
    operation: Operation, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """Its operation is granted inside, and a rollback takes it back; the claim is as valid as before."""
    queue.enqueue("work")
    handle = claimed(queue)
    clock.advance(1)
    before = (peek(), found(queue, handle.id))
    with leaving(), store.transaction() as tx:
        assert operation(tx.bind(handle))
        raise Leave
    assert before == (peek(), found(queue, handle.id))
    with store.transaction() as tx:
        assert operation(tx.bind(handle))
    assert before != (peek(), queue.get_job(handle.id))


@clause("T-4", "J-1")
@each_operation
def test_a_refused_operation_is_false_in_a_transaction_too(
    operation: Operation, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """A stale handle changes nothing, raises nothing, and doesn't harm the transaction."""
    queue.enqueue("work")
    stale = claimed(queue)
    clock.set(stale.deadline + MICROSECOND)
    claimed(queue)
    before = peek()
    with store.transaction() as tx:
        assert False is operation(tx.bind(stale))
        assert False is operation(tx.queue(queue.name).handle(stale.id, stale.token))
        tx.queue("another").enqueue("fine")
    assert before == [row for row in peek() if row.queue == queue.name]
    assert 2 == len(peek())


@clause("T-4", "Q-CLAIM-5", "Q-7")
def test_a_claim_that_was_rolled_back_never_happened(store: Store, queue: Queue, peek: Peek) -> None:
    """The attempt isn't counted, the job is as it was, and the token is never given again."""
    queue.enqueue_many(["a", "b", "c"], max_attempts=1)
    before = (peek(), queue.jobs())
    tokens: list[int] = []
    for _ in range(5):
        with leaving(), store.transaction() as tx:
            handles = tx.queue(queue.name).claim_batch("worker-1", 3)
            assert ["a", "b", "c"] == [handle.payload for handle in handles]
            tokens += [handle.token for handle in handles]
            raise Leave
        assert before == (peek(), queue.jobs())
    handles = queue.claim_batch("worker-1", 3)
    tokens += [handle.token for handle in handles]
    assert ["a", "b", "c"] == [handle.payload for handle in handles]
    assert [1, 1, 1] == [handle.attempt for handle in handles]
    assert len(tokens) == len(set(tokens))


@clause("Z-4", "T-4")
@each_operation
def test_a_handle_claimed_in_a_transaction_is_bound_to_it(
    operation: Operation, store: Store, queue: Queue, peek: Peek
) -> None:
    """Without any binding it acts inside, and what it does is rolled back with the claim itself."""
    queue.enqueue("work")
    before = peek()
    with leaving(), store.transaction() as tx:
        assert operation(claimed(tx.queue(queue.name)))
        assert before == peek()
        raise Leave
    assert before == peek()


@clause("Z-4")
@each_operation
def test_a_handle_claimed_in_a_transaction_is_ordinary_after_its_commit(
    operation: Operation, store: Store, queue: Queue, clock: Clock
) -> None:
    """It acts by itself, at once."""
    queue.enqueue("work")
    with store.transaction() as tx:
        handle = claimed(tx.queue(queue.name))
    before = found(queue, handle.id)
    clock.advance(1)
    assert operation(handle)
    assert before != queue.get_job(handle.id)


@clause("Z-4", "T-4")
@each_operation
def test_a_handle_claimed_in_a_transaction_is_refused_after_its_rollback(
    operation: Operation, store: Store, queue: Queue, peek: Peek
) -> None:
    """Also once the job was claimed again, and also within the outer transaction, after a savepoint's rollback."""
    queue.enqueue("work")
    lost: list[JobHandle] = []
    with leaving(), store.transaction() as tx:
        lost.append(claimed(tx.queue(queue.name)))
        raise Leave
    with store.transaction() as tx:
        with leaving(), tx.transaction() as inner:
            lost.append(claimed(inner.queue(queue.name)))
            raise Leave
        assert [False, False] == [operation(tx.bind(handle)) for handle in lost]
    assert [False, False] == [operation(handle) for handle in lost]
    current = claimed(queue)
    before = peek()
    assert [False, False] == [operation(handle) for handle in lost]
    assert before == peek()
    assert current.ack()


@clause("Z-4", "T-4", "T-5")
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "undone"])
def test_a_handle_claimed_in_a_savepoint_stays_in_the_transaction(
    kept: bool, store: Store, queue: Queue, queue_name: str, peek: Peek
) -> None:
    """Once the savepoint is over it speaks within the transaction around: it acks there, or is refused there."""
    queue.enqueue("work")
    with store.transaction() as tx:
        handles: list[JobHandle] = []
        with suppress(ZeroDivisionError), tx.transaction() as savepoint:
            handles.append(claimed(savepoint.queue(queue_name)))
            if not kept:
                raise ZeroDivisionError
        assert kept is handles[0].ack()
        assert 1 == len(peek())
    assert (0 if kept else 1) == len(peek())
    assert False is handles[0].ack()
