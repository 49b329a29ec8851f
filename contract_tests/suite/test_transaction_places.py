"""Where a transaction may be used, and what may not be done beside it: wrong places are refused at once (T-5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from alkstore import State, TransactionError
from alkstore.protocols import JobHandle, Queue, Store, Transaction
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.steps import Leave, Peek, claimed, found, leaving
from contract_tests.travel import Clock


def auto_commit_calls(store: Store, queue: Queue, handle: JobHandle) -> dict[str, Callable[[], object]]:
    """Return every call that would run outside the transaction."""
    return {
        "enqueue": lambda: queue.enqueue("x"),
        "enqueue_many": lambda: queue.enqueue_many(["x"]),
        "claim_one": lambda: queue.claim_one("worker-1"),
        "claim_batch": lambda: queue.claim_batch("worker-1", 2),
        "ack_batch": lambda: queue.ack_batch([handle]),
        "cancel": lambda: queue.cancel(handle.id),
        "get_job": lambda: queue.get_job(handle.id),
        "jobs": queue.jobs,
        "stats": queue.stats,
        "sweep_expired": queue.sweep_expired,
        "retry_dead": lambda: queue.retry_dead(handle.id),
        "purge": lambda: queue.purge(State.PENDING),
        "ack": handle.ack,
        "heartbeat": handle.heartbeat,
        "retry": lambda: handle.retry(delay=0),
        "retry on the curve": handle.retry,
        "fail": handle.fail,
        "release": handle.release,
        "store.get_job": lambda: store.get_job(handle.id),
        "store.queues": store.queues,
        "store.health": store.health,
    }


@clause("T-5")
def test_auto_commit_calls_are_refused_while_the_thread_has_a_transaction(
    store: Store, queue: Queue, peek: Peek
) -> None:
    """Every one raises ``TransactionError`` that names ``tx.queue``, and harms nothing; afterwards all work again."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = peek()
    calls = auto_commit_calls(store, queue, handle)
    with store.transaction() as tx:
        for name, call in calls.items():
            with pytest.raises(TransactionError, match=r"tx\.queue"):
                raise AssertionError(f"{name} ran outside the transaction: {call()!r}")
        assert before == peek()
        with tx.transaction(), pytest.raises(TransactionError):
            queue.stats()
        tx.queue("another").enqueue("fine")
    assert [*before] == peek()[:-1]
    assert 1 == queue.stats().processing
    assert handle.ack()


@clause("T-5")
def test_a_second_transaction_of_the_store_is_refused(store: Store, queue: Queue, peek: Peek) -> None:
    """In the same thread it raises ``TransactionError``, and the first one goes on."""
    with store.transaction() as tx:
        with pytest.raises(TransactionError), store.transaction():
            pytest.fail("entered")
        tx.queue(queue.name).enqueue("a")
        inside = claimed(tx.queue(queue.name))
        with pytest.raises(TransactionError), inside.transaction():
            pytest.fail("entered")
        assert inside.release()
    assert 1 == len(peek())


@clause("T-5", "S-4")
def test_a_transaction_stands_in_the_way_of_its_own_thread_only(store: Store, queue: Queue) -> None:
    """Other threads' auto-commit calls and transactions go on, at the latest after its commit."""

    def work() -> int:
        queue.enqueue("auto-commit")
        with store.transaction() as other:
            return other.queue(queue.name).enqueue("other")

    with ThreadPoolExecutor(1) as thread:
        with store.transaction() as tx:
            tx.queue(queue.name).enqueue("mine")
            running = thread.submit(work)
        assert found(queue, running.result(timeout=60)).payload == "other"
    assert ["auto-commit", "mine", "other"] == sorted(str(job.payload) for job in queue.jobs())


@clause("T-5", needs="processes")
def test_a_transaction_does_not_concern_another_store(
    store: Store, open_store: OpenStore, queue: Queue, clock: Clock
) -> None:
    """The same thread may look through another store of the same place."""
    other = open_store(clock=clock)
    job_id = queue.enqueue("work")
    with store.transaction() as tx:
        assert tx.queue(queue.name).cancel(job_id)
        assert found(other.queue(queue.name), job_id).payload == "work"
    assert other.queue(queue.name).get_job(job_id) is None


def uses(tx: Transaction, within: Queue, bound: JobHandle) -> dict[str, Callable[[], Any]]:
    """Return every use of a transaction and of what was made from it."""

    def savepoint() -> None:
        with tx.transaction():
            pytest.fail("entered a savepoint")

    return {
        "enqueue": lambda: within.enqueue("x"),
        "a fresh queue's enqueue": lambda: tx.queue("fresh").enqueue("x"),
        "enqueue_many": lambda: within.enqueue_many(["x", "y"]),
        "claim_one": lambda: within.claim_one("worker-1"),
        "jobs": within.jobs,
        "stats": within.stats,
        "get_job": lambda: within.get_job(bound.id),
        "cancel": lambda: within.cancel(bound.id),
        "sweep_expired": within.sweep_expired,
        "purge": lambda: within.purge(State.PROCESSING),
        "a bound handle's ack": bound.ack,
        "a bound handle's heartbeat": bound.heartbeat,
        "bind": lambda: tx.bind(bound).ack(),
        "savepoint": savepoint,
    }


@clause("T-5")
def test_a_transaction_belongs_to_its_thread(store: Store, queue: Queue, peek: Peek) -> None:
    """Every use from another thread is a ``TransactionError``, and the transaction goes on in its own."""
    queue.enqueue("work")
    handle = claimed(queue)
    with ThreadPoolExecutor(1) as thread, store.transaction() as tx:
        within = tx.queue(queue.name)
        within.enqueue("mine")
        for name, use in uses(tx, within, tx.bind(handle)).items():
            with pytest.raises(TransactionError):
                raise AssertionError(f"{name} was done from another thread: {thread.submit(use).result()!r}")
        assert tx.bind(handle).ack()
    assert ["mine"] == [job.payload for job in queue.jobs()]
    assert 1 == len(peek())


@clause("T-5")
@pytest.mark.parametrize("how", ["committed", "rolled back", "savepoint kept", "savepoint undone"])
def test_a_transaction_that_is_over_refuses_use(how: str, store: Store, queue: Queue, peek: Peek) -> None:
    """Transaction or savepoint, once it ended every use of it is a ``TransactionError``, and nothing runs elsewhere."""
    queue.enqueue("work")
    handle = claimed(queue)
    before = peek()

    def check(tx: Transaction, within: Queue, bound: JobHandle) -> None:
        for name, use in uses(tx, within, bound).items():
            with pytest.raises(TransactionError):
                raise AssertionError(f"{name} was done after the end: {use()!r}")

    made: list[tuple[Transaction, Queue, JobHandle]] = []

    def run(tx: Transaction) -> None:
        made.append((tx, tx.queue(queue.name), tx.bind(handle)))
        if how in {"rolled back", "savepoint undone"}:
            raise Leave

    if how == "committed":
        with store.transaction() as tx:
            run(tx)
    elif how == "rolled back":
        with leaving(), store.transaction() as tx:
            run(tx)
    else:
        with store.transaction() as outer:
            if how == "savepoint kept":
                with outer.transaction() as tx:
                    run(tx)
            else:
                with leaving(), outer.transaction() as tx:
                    run(tx)
            check(*made[0])
    check(*made[0])
    assert before == peek()
    assert handle.ack()


@clause("T-5", needs="sql")
def test_sql_is_refused_where_the_transaction_is_over_or_anothers(store: Store) -> None:
    """``tx.execute`` is a use like any other."""
    with ThreadPoolExecutor(1) as thread, store.transaction() as tx:
        with pytest.raises(TransactionError):
            thread.submit(tx.execute, "SELECT 1").result()
        assert (1,) == tuple(tx.execute("SELECT 1").fetchone())
    with pytest.raises(TransactionError):
        tx.execute("SELECT 1")


@clause("T-5", "S-4")
def test_threads_have_transactions_of_their_own(store: Store, queue: Queue) -> None:
    """Many threads each commit or roll back their own, one after the other or at once, and none disturbs another."""
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait(60)
        for turn in range(5):
            with store.transaction() as tx:
                tx.queue(queue.name).enqueue([number, turn, "kept"])
            with leaving(), store.transaction() as tx:
                tx.queue(queue.name).enqueue([number, turn, "undone"])
                raise Leave

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    expected = [[number, turn, "kept"] for number in range(4) for turn in range(5)]
    assert expected == sorted(job.payload for job in queue.jobs())  # type: ignore[type-var]


@clause("T-5", "T-1")
def test_a_transaction_that_is_left_in_another_thread_is_rolled_back(store: Store, queue: Queue, peek: Peek) -> None:
    """As by a generator that is closed there: nothing of it is kept, and nobody waits for it any more."""

    def begin() -> Transaction:
        transaction = store.transaction()
        context = cast(Transaction, transaction)
        context.__enter__()
        context.queue(queue.name).enqueue("x")
        return context

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(begin).result()
        with pytest.raises(TransactionError):
            left.__exit__(None, None, None)
        assert [] == peek()
        assert queue.enqueue("after")
        assert pool.submit(lambda: queue.enqueue("in its own thread")).result()
    assert 2 == len(peek())
