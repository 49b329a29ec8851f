"""``store.join``: the same over a connection that the application has open (T-3, and T-2, T-4, T-5 under it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from uuid import uuid4

import pytest

from alkstore import PayloadError, State, StoreClosedError, TransactionError, ValidationError
from alkstore.protocols import JobHandle, Queue, Store, Transaction
from contract_tests.clauses import clause
from contract_tests.fixtures import Connect, OpenStore
from contract_tests.harness import Connection
from contract_tests.steps import Leave, Peek, claimed, found, leaving
from contract_tests.together import WAIT
from contract_tests.travel import Clock

CHUNKED = 2_500
"""More jobs than go in one chunk."""


@pytest.fixture
def connection(connect: Connect) -> Connection:
    """A connection of the application's own, that asks for commits."""
    return connect()


@pytest.fixture
def joined(store: Store, connection: Connection) -> Transaction:
    """``connection``, joined."""
    return store.join(connection)


@pytest.fixture
def auto(store: Store, connect: Connect) -> Transaction:
    """Another in auto-commit mode, joined."""
    return store.join(connect(auto_commit=True))


@pytest.fixture
def table(joined: Transaction, connection: Connection) -> Iterator[str]:
    """A table of the application's own."""
    name = f"alk_suite_{uuid4().hex}"
    joined.execute(f"CREATE TABLE {name} (n INTEGER)")
    connection.commit()
    yield name
    connection.rollback()
    joined.execute(f"DROP TABLE {name}")
    connection.commit()


def numbers(joined: Transaction, table: str) -> list[int]:
    """Return what is in the application's table."""
    return [row[0] for row in joined.execute(f"SELECT n FROM {table} ORDER BY n").fetchall()]


# --- stands or falls with the application's transaction --------------------------------------------------------------


@clause("T-3", "T-2", needs="sql")
@pytest.mark.parametrize("first", ["the row", "the job"])
def test_a_job_stands_or_falls_with_the_applications_write(
    first: str, joined: Transaction, connection: Connection, table: str, store: Store, queue: Queue, peek: Peek
) -> None:
    """Whichever came first, both are rolled back together or committed together, and nothing is seen before."""
    within = joined.queue(queue.name)
    steps: list[Callable[[int], object]] = [
        lambda n: joined.execute(f"INSERT INTO {table} VALUES ({n})"),
        within.enqueue,
    ]
    for number in (1, 2):
        for step in steps if first == "the row" else reversed(steps):
            step(number)
        assert [] == peek()
        assert [] == store.queues()
        if number == 1:
            connection.rollback()
            assert [] == within.jobs()
            connection.rollback()
            assert [] == numbers(joined, table)
    connection.commit()
    assert [2] == [job.payload for job in queue.jobs()]
    assert [2] == numbers(joined, table)


@clause("T-3", "Q-ENQ-3")
@pytest.mark.parametrize("count", [3, CHUNKED])
def test_many_jobs_stand_or_fall_with_it_too(
    count: int, joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """In however many chunks."""
    joined.queue(queue.name).enqueue_many(range(count))
    assert [] == peek()
    connection.rollback()
    assert [] == peek()
    ids = joined.queue(queue.name).enqueue_many(range(count))
    connection.commit()
    assert ids == sorted(row.id for row in peek())
    assert count == len(ids)


@clause("T-3", "T-1", needs="sql")
def test_a_refused_enqueue_leaves_the_applications_transaction_usable(
    joined: Transaction, connection: Connection, table: str, queue: Queue
) -> None:
    """A payload or an option that can't be is refused before any I/O: both of the application's rows are committed."""
    within = joined.queue(queue.name)
    joined.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(PayloadError):
        within.enqueue({1: "a"})
    with pytest.raises(ValidationError):
        within.enqueue("x", delay=-1)
    with pytest.raises(PayloadError):
        within.enqueue_many([*range(CHUNKED), float("nan")])
    joined.execute(f"INSERT INTO {table} VALUES (2)")
    within.enqueue("after")
    connection.commit()
    assert [1, 2] == numbers(joined, table)
    assert ["after"] == [job.payload for job in queue.jobs()]


@clause("T-3", "T-2")
def test_a_savepoint_is_kept_or_undone_by_itself(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """What it holds is undone with it, and the rest is the application's to commit."""
    joined.queue(queue.name).enqueue("before")
    with leaving(), joined.transaction() as inner:
        inner.queue(queue.name).enqueue("undone")
        with inner.transaction() as innermost:
            innermost.queue(queue.name).enqueue("undone too")
        raise Leave
    with joined.transaction() as inner:
        inner.queue(queue.name).enqueue("kept")
    assert [] == peek()
    connection.commit()
    assert ["before", "kept"] == [job.payload for job in queue.jobs()]


@clause("T-3")
def test_a_savepoint_may_be_what_begins_the_transaction(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Where the driver begins one by itself, it does so for a savepoint, and nothing is committed with that."""
    with joined.transaction() as inner:
        inner.queue(queue.name).enqueue("a")
    assert [] == peek()
    connection.rollback()
    assert [] == peek()
    with joined.transaction() as inner:
        inner.queue(queue.name).enqueue("b")
    connection.commit()
    assert 1 == len(peek())


@clause("T-3", "T-5", needs="sql")
def test_nothing_silently_runs_outside_an_aborted_transaction(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """After a statement that failed all goes on, or all is refused; after the rollback all goes on in any case."""
    within = joined.queue(queue.name)
    within.enqueue("before")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the driver's own, whichever it is
        joined.execute("SELECT 1 FROM alk_no_such_table")
    assert not type(raised.value).__module__.startswith("alkstore")
    refused = 0
    for attempt in (lambda: within.enqueue("after"), lambda: within.claim_one("worker-1"), within.stats):
        try:
            attempt()
        except TransactionError:
            refused += 1
    assert refused in (0, 3)
    connection.rollback()
    assert [] == peek()
    for turn in range(20):
        within.enqueue(turn)
        connection.commit()
    assert 20 == len(peek())


# --- every operation --------------------------------------------------------------------------------------------------


def everything(queue: Queue, joined: Transaction, clock: Clock) -> None:
    """Do each operation once on what ``prepared`` has left."""
    handles = {str(handle.payload): handle for handle in queue.claim_batch("worker-1", 6)}
    assert ["ack", "retry", "fail", "release", "heartbeat", "batch"] == list(handles)
    assert handles["ack"].ack()
    assert handles["retry"].retry("x", delay=5)
    assert handles["fail"].fail("y")
    assert handles["release"].release()
    assert handles["heartbeat"].heartbeat(extend=3600)
    assert 1 == queue.ack_batch([handles["batch"]])
    assert queue.cancel(queue.enqueue("cancel"))
    queue.enqueue_many(["many", "more"], priority=-1)
    queue.enqueue("expired", expires=1)
    clock.advance(1)
    assert 1 == queue.sweep_expired()
    assert queue.retry_dead(handles["fail"].id)
    assert 1 == queue.purge(State.DEAD)
    assert joined.bind(handles["heartbeat"]).retry("z", delay=1)
    assert 5 == queue.stats().ready + queue.stats().scheduled + queue.stats().processing - 1


@clause("T-3", "T-2", "Q-7")
def test_every_operation_is_undone_by_the_applications_rollback(
    joined: Transaction, connection: Connection, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """They see one another's doings, and afterwards never happened."""
    queue.enqueue_many(["ack", "retry", "fail", "release", "heartbeat", "batch"])
    before = (peek(), queue.jobs())
    everything(joined.queue(queue.name), joined, clock)
    connection.rollback()
    assert before == (peek(), queue.jobs())


@clause("T-3", "Q-7")
@pytest.mark.parametrize("auto_commit", [False, True])
def test_every_operation_does_what_the_stores_own_does(
    auto_commit: bool, store: Store, connect: Connect, queue: Queue, clock: Clock
) -> None:
    """Committed by the application, or by itself in auto-commit mode: the rows come out alike."""
    names = ["ack", "retry", "fail", "release", "heartbeat", "batch"]
    connection = connect(auto_commit=auto_commit)
    joined = store.join(connection)
    other = store.queue("another")
    rows: list[list[tuple[Any, ...]]] = []
    for target, tx in ((joined.queue(queue.name), joined), (other, None)):
        start = clock()
        target.enqueue_many(names)
        if tx is None:
            with store.transaction() as own:
                everything(own.queue(other.name), own, clock)
        else:
            everything(target, tx, clock)
        connection.commit()
        rows.append(
            [
                (job.payload, job.state, job.attempts, job.priority, job.run_at - start, job.last_error)
                for job in store.queue(target.name).jobs()
            ]
        )
    assert rows[0] == rows[1]


@clause("T-3", "T-4", "Z-4")
def test_a_claim_is_the_applications_to_commit(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Rolled back, it never happened, and its handle is refused; committed, it counts."""
    job_id = queue.enqueue("work")
    handle = claimed(joined.queue(queue.name))
    connection.rollback()
    assert 0 == found(queue, job_id).attempts
    assert False is handle.ack()
    connection.rollback()
    handle = claimed(joined.queue(queue.name))
    connection.commit()
    assert State.PROCESSING is found(queue, job_id).state
    assert handle.ack()
    assert [] == peek()


@clause("T-3", "T-4")
@pytest.mark.parametrize("entered", [False, True])
def test_until_the_application_commits_a_claim_is_worked_with_in_its_transaction(
    entered: bool, store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Also where the block has been left meanwhile: that ended nothing."""
    job_id = queue.enqueue("work")

    def claim() -> JobHandle:
        if not entered:
            return claimed(store.join(connection).queue(queue.name))
        with store.join(connection) as tx:
            return claimed(tx.queue(queue.name))

    handle = claim()
    assert handle.heartbeat()
    assert handle.ack()
    assert 1 == len(peek())
    connection.rollback()
    assert 0 == found(queue, job_id).attempts
    assert False is handle.ack()
    assert claim().ack()
    assert 1 == len(peek())
    connection.commit()
    assert [] == peek()


@clause("T-3", "Z-4", "J-10", needs="sql")
def test_after_the_applications_commit_a_claim_is_like_any_other(
    joined: Transaction, connection: Connection, connect: Connect, store: Store, table: str, queue: Queue, peek: Peek
) -> None:
    """Whatever the connection does by then: none of it is in the handle's way, and none of it undoes what the handle did."""
    within = joined.queue(queue.name)
    queue.enqueue_many(["acked", "in a block", "in a transaction", "released", "by another thread"])
    handles = within.claim_batch("worker-1", 4)
    connection.commit()
    for handle in handles[:3]:
        assert [] == numbers(joined, table)  # where the driver begins a transaction for it, one is open
        match handle.payload:
            case "acked":
                assert handle.ack()
            case "in a block":
                with handle:
                    pass
            case _:
                with handle.transaction() as tx:
                    tx.execute(f"INSERT INTO {table} VALUES (7)")
                connection.rollback()
                assert [7] == numbers(joined, table)
        connection.rollback()
        if handle.payload == "in a transaction":
            joined.execute(f"DELETE FROM {table}")
            connection.commit()
    another = connect()
    last = claimed(store.join(another).queue(queue.name))
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(TransactionError, match="thread"):
            thread.submit(last.heartbeat).result(WAIT)
        another.commit()
        assert thread.submit(last.heartbeat).result(WAIT)
        queue.enqueue("cancelled")
        gone = claimed(store.join(another).queue(queue.name))
        another.commit()
        assert queue.cancel(gone.id)
        assert False is thread.submit(gone.ack).result(WAIT)
        another.close()
        assert thread.submit(last.ack).result(WAIT)
    assert handles[3].release()
    assert ["released"] == [job.payload for job in queue.jobs()]
    assert 1 == len(peek())


@clause("T-3", "T-4", "Z-4")
def test_a_claim_of_a_savepoint_that_was_rolled_back_never_happened(
    joined: Transaction, connection: Connection, queue: Queue
) -> None:
    """Within the transaction and after its commit, everything is refused."""
    job_id = queue.enqueue("work")
    handles: list[JobHandle] = []
    with leaving(), joined.transaction() as inner:
        handles.append(claimed(inner.queue(queue.name)))
        raise Leave
    assert False is handles[0].heartbeat()
    connection.commit()
    assert False is handles[0].ack()
    assert 0 == found(queue, job_id).attempts


@clause("T-3", "T-4", "Z-4")
def test_of_a_batch_each_claim_is_judged_for_itself(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Acks before the commit, after it, and while another transaction is open."""
    queue.enqueue_many(range(3))
    handles = joined.queue(queue.name).claim_batch("worker-1", 3)
    assert handles[0].ack()
    connection.commit()
    assert handles[1].ack()
    assert 1 == len(peek())
    assert 1 == len(joined.queue(queue.name).jobs())
    assert handles[2].ack()
    connection.rollback()
    assert [] == peek()


@clause("T-3", "T-4", needs="sql")
def test_a_jobs_effect_and_its_ack_are_committed_together(
    joined: Transaction, connection: Connection, table: str, queue: Queue, peek: Peek
) -> None:
    """A handle that was claimed in the ordinary way is bound to the application's transaction."""
    queue.enqueue(7)
    handle = claimed(queue)
    for ending in (connection.rollback, connection.commit):
        joined.execute(f"INSERT INTO {table} VALUES ({handle.payload})")
        assert joined.bind(handle).ack()
        assert 1 == len(peek())
        ending()
    assert [] == peek()
    assert [7] == numbers(joined, table)
    connection.rollback()
    assert False is handle.ack()


@clause("T-3", "J-10", "Z-3", needs="sql")
@pytest.mark.parametrize("how", ["ack", "retry", "ack_batch"])
def test_what_the_application_has_rolled_back_was_not_settled(
    how: str, joined: Transaction, connection: Connection, table: str, store: Store, queue: Queue, peek: Peek
) -> None:
    """``handle.transaction()`` commits its ack with the effects all the same; and a block's exception is a failed attempt."""

    def settle(handle: JobHandle) -> None:
        match how:
            case "ack":
                assert joined.bind(handle).ack()
            case "retry":
                assert joined.bind(handle).retry("never")
            case _:
                assert 1 == joined.queue(queue.name).ack_batch([handle])

    queue.enqueue(1)
    handle = claimed(queue)
    settle(handle)
    connection.rollback()
    with handle.transaction() as tx:
        tx.execute(f"INSERT INTO {table} VALUES (7)")
    assert [7] == numbers(joined, table)
    assert [] == peek()
    connection.rollback()
    job_id = queue.enqueue(2)
    with leaving(), claimed(queue) as again:
        settle(again)
        connection.rollback()
        raise Leave
    assert "Leave" == found(queue, job_id).last_error


@clause("T-3", "Z-3")
def test_what_is_settled_in_the_applications_transaction_is_left_alone(
    joined: Transaction, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Whether that is still open when the block ends, or committed by then."""
    for ending in (False, True):
        queue.enqueue(1)
        with claimed(queue) as handle:
            assert joined.bind(handle).ack()
            if ending:
                connection.commit()
        connection.commit()
        assert [] == peek()


@clause("T-3", "J-1")
def test_a_refused_operation_is_false_and_changes_nothing(
    joined: Transaction, connection: Connection, queue: Queue, clock: Clock
) -> None:
    """A claim that has lapsed is refused there as anywhere, and the transaction goes on."""
    job_id = queue.enqueue("work")
    handle = claimed(queue)
    clock.advance(61)
    bound = joined.bind(handle)
    assert [False] * 5 == [bound.ack(), bound.retry(), bound.fail(), bound.release(), bound.heartbeat()]
    joined.queue(queue.name).enqueue("after")
    connection.commit()
    assert [job_id, job_id + 1] == [job.id for job in queue.jobs()]


@clause("T-3", "J-10")
def test_a_bound_handle_has_no_transaction_of_its_own(
    joined: Transaction, connection: Connection, queue: Queue
) -> None:
    """Work on the connection instead: a second transaction would not see the claim, or would wait for it."""
    queue.enqueue("work")
    handle = claimed(joined.queue(queue.name))
    with pytest.raises(TransactionError, match="bound"), handle.transaction():
        pytest.fail("it must not begin")
    connection.commit()


# --- in auto-commit mode ----------------------------------------------------------------------------------------------


@clause("T-3")
def test_in_auto_commit_mode_each_operation_is_committed_at_once(auto: Transaction, queue: Queue, peek: Peek) -> None:
    """With no transaction open the connection's own rule holds."""
    within = auto.queue(queue.name)
    within.enqueue("one")
    assert 1 == len(peek())
    within.enqueue_many(range(CHUNKED))
    assert 1 + CHUNKED == len(peek())
    handle = claimed(within)
    assert State.PROCESSING is found(queue, handle.id).state
    with handle.transaction():
        pass
    assert CHUNKED == len(peek())
    assert CHUNKED == within.purge(State.PENDING)


@clause("T-3", "Q-CLAIM-6")
def test_in_auto_commit_mode_an_operation_of_several_steps_is_one_transaction(
    auto: Transaction, queue: Queue, clock: Clock
) -> None:
    """A claim readies what has come due and buries what has lapsed for the last time, and then claims."""
    queue.enqueue("last", max_attempts=1)
    claimed(queue)
    queue.enqueue_many(["later", "sooner"], delay=10)
    queue.enqueue("first", delay=5)
    clock.advance(61)
    handles = auto.queue(queue.name).claim_batch("worker-1", 5)
    assert ["first", "later", "sooner"] == [handle.payload for handle in handles]
    assert 1 == queue.stats().dead
    assert 3 == auto.queue(queue.name).ack_batch(handles)


@clause("T-3", "T-5")
def test_in_auto_commit_mode_there_is_no_savepoint_without_a_transaction(
    auto: Transaction, queue: Queue, peek: Peek
) -> None:
    """It would be a transaction, which is the application's to begin."""
    with pytest.raises(TransactionError, match="auto-commit"), auto.transaction():
        pytest.fail("it must not begin")
    auto.queue(queue.name).enqueue("goes on")
    assert 1 == len(peek())


# --- whose it is ------------------------------------------------------------------------------------------------------


@clause("T-3")
@pytest.mark.parametrize("well", [True, False])
def test_leaving_its_block_neither_commits_nor_rolls_back(
    well: bool, store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """It ends this use of the connection and nothing else; an exception goes on up."""
    joined = store.join(connection)
    if well:
        with joined as tx:
            tx.queue(queue.name).enqueue("a")
    else:
        with leaving(), joined as tx:
            tx.queue(queue.name).enqueue("a")
            raise Leave
    assert [] == peek()
    with pytest.raises(TransactionError):
        joined.queue(queue.name).enqueue("b")
    connection.commit()
    assert 1 == len(peek())


@clause("T-3", "S-3")
def test_closing_the_store_leaves_the_connection_alone(
    open_store: OpenStore, connection: Connection, store: Store, queue: Queue, peek: Peek
) -> None:
    """What was joined refuses use, and the application's transaction can still be committed."""
    other = open_store()
    joined = other.join(connection)
    within = joined.queue(queue.name)
    within.enqueue("a")
    other.close()
    for call in (lambda: within.enqueue("b"), lambda: joined.execute("SELECT 1"), lambda: other.join(connection)):
        with pytest.raises(StoreClosedError):
            call()
    connection.commit()
    assert 1 == len(peek())
    assert 1 == store.queue(queue.name).stats().ready


@clause("T-3")
def test_a_connection_can_be_joined_as_often_as_one_likes(
    store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """By one part of the application within another's use of it, say."""
    with store.join(connection) as outer:
        outer.queue(queue.name).enqueue("a")
        with store.join(connection) as inner:
            inner.queue(queue.name).enqueue("b")
        with pytest.raises(TransactionError):
            queue.enqueue("outside")
        outer.queue(queue.name).enqueue("c")
        with pytest.raises(TransactionError, match="once"):
            outer.__enter__()
        store.join(connection).queue(queue.name).enqueue("d")
    connection.commit()
    assert 4 == len(peek())


@clause("T-3", "S-1")
@pytest.mark.parametrize("wrong", [None, "a URL", 7, object()], ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_connection_is_refused(wrong: object, store: Store) -> None:
    """The error says what was expected."""
    with pytest.raises(ValidationError, match="connection must be"):
        store.join(wrong)


@clause("T-3")
def test_a_closed_connection_is_refused(store: Store, connect: Connect, queue: Queue) -> None:
    """When it is joined, and when it is used."""
    connection = connect()
    joined = store.join(connection)
    connection.close()
    with pytest.raises(ValidationError, match="connection must be open"):
        store.join(connection)
    with pytest.raises(TransactionError, match="closed"):
        joined.queue(queue.name).enqueue("a")


@clause("T-3", "T-5")
def test_calls_outside_are_refused_while_its_block_has_a_transaction_open(
    store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """They would run outside of it, or wait for it for ever; once it is committed there is nothing in the way."""
    with store.join(connection) as tx:
        queue.enqueue("nothing is open yet")
        tx.queue(queue.name).enqueue("inside")
        calls: list[Callable[[], object]] = [
            lambda: queue.enqueue("outside"),
            lambda: queue.claim_one("worker-1"),
            queue.stats,
            store.transaction().__enter__,
        ]
        for call in calls:
            with pytest.raises(TransactionError):
                call()
        connection.commit()
        queue.enqueue("between")
        tx.queue(queue.name).enqueue("inside again")
        connection.rollback()
    assert 3 == len(peek())


@clause("T-3", "T-5")
def test_a_transaction_of_the_stores_own_stands_in_its_way(
    store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Its operations would run outside of that."""
    joined = store.join(connection)
    with store.transaction() as tx:
        tx.queue(queue.name).enqueue("own")
        with pytest.raises(TransactionError, match="another transaction"):
            joined.queue(queue.name).enqueue("joined")
    joined.queue(queue.name).enqueue("after")
    connection.commit()
    assert 2 == len(peek())


@clause("T-3", "T-5")
def test_a_transaction_of_the_stores_own_within_its_block_is_an_interlude(
    store: Store, connection: Connection, queue: Queue, peek: Peek
) -> None:
    """Before the connection has a transaction open; afterwards calls outside are refused as before."""
    queue.enqueue("work")
    with store.join(connection) as tx:
        handle = claimed(tx.queue(queue.name))
        connection.commit()
        with store.transaction() as own:
            own.queue(queue.name).enqueue("own")
            with pytest.raises(TransactionError):
                handle.ack()
        tx.queue(queue.name).enqueue("inside")
        with pytest.raises(TransactionError):
            queue.enqueue("outside")
        connection.commit()
    assert handle.ack()
    assert 2 == len(peek())


@clause("T-3", "T-5")
def test_it_belongs_to_its_thread(store: Store, connection: Connection, queue: Queue) -> None:
    """Another thread joins it for itself, where the driver lets it."""
    joined = store.join(connection)
    within = joined.queue(queue.name)

    def elsewhere() -> None:
        with pytest.raises(TransactionError, match="thread"):
            within.enqueue("a")

    with ThreadPoolExecutor(1) as thread:
        thread.submit(elsewhere).result(WAIT)
    within.enqueue("b")
    connection.rollback()


@clause("T-3", "T-4")
def test_a_handle_of_another_store_is_refused(
    open_store: OpenStore, joined: Transaction, connection: Connection, queue: Queue, clock: Clock
) -> None:
    """As anywhere."""
    queue.enqueue("work")
    handle = claimed(open_store(clock=clock).queue(queue.name))
    with pytest.raises(ValidationError, match="another store"):
        joined.bind(handle)
    connection.rollback()
    with pytest.raises(ValidationError, match="handle must be"):
        joined.bind(cast(Any, "handle"))


@clause("T-3", "Z-8")
def test_sweeps_and_purges_do_one_batch_in_an_open_transaction(
    joined: Transaction, connection: Connection, queue: Queue, clock: Clock
) -> None:
    """As in a transaction of the store's own."""
    queue.enqueue_many(range(CHUNKED), expires=1)
    clock.advance(2)
    swept = joined.queue(queue.name).sweep_expired()
    assert 0 < swept < CHUNKED
    connection.commit()
    assert CHUNKED - swept == queue.sweep_expired()
    purged = joined.queue(queue.name).purge(State.DEAD)
    assert 0 < purged < CHUNKED
    connection.commit()
    assert CHUNKED - purged == queue.stats().dead


# --- waking -----------------------------------------------------------------------------------------------------------


@clause("T-3", "W-4")
@pytest.mark.parametrize("auto_commit", [False, True])
def test_what_the_application_commits_is_found_by_those_who_wait(
    auto_commit: bool, open_store: OpenStore, connect: Connect, queue: Queue
) -> None:
    """At once in auto-commit mode, else when they look."""
    connection = connect(auto_commit=auto_commit)
    interval = 3_600 if auto_commit else 0.3
    with (
        open_store().queue(queue.name).consume("w", poll_interval=interval) as consumer,
        ThreadPoolExecutor(1) as thread,
    ):
        waiting = thread.submit(next, consumer)
        open_store().join(connection).queue(queue.name).enqueue("work")
        connection.commit()
        assert "work" == waiting.result(WAIT).payload


@clause("T-3", "W-4", "T-2", needs="notify")
def test_the_database_can_carry_the_wake(open_store: OpenStore, connect: Connect, queue: Queue) -> None:
    """``wake="notify"``: nobody polls, and the commit wakes, of whichever store; a rollback doesn't."""
    connection = connect()
    here, there = open_store(), open_store()
    joined = here.join(connection, wake="notify")
    for waiter in (here, there):
        with (
            waiter.queue(queue.name).consume("w", poll_interval=3_600) as consumer,
            ThreadPoolExecutor(1) as thread,
        ):
            waiting = thread.submit(next, consumer)
            joined.queue(queue.name).enqueue("rolled back")
            connection.rollback()
            joined.queue(queue.name).enqueue("work")
            joined.queue(queue.name).enqueue_many(["more"], delay=3_000)
            connection.commit()
            handle = waiting.result(WAIT)
            assert "work" == handle.payload
            assert handle.ack()


@clause("T-3", "W-1", "T-2", needs="notify")
def test_a_notification_is_sent_by_the_applications_commit(
    joined: Transaction, connection: Connection, store: Store
) -> None:
    """And never after its rollback, or that of a savepoint."""
    with store.listen("c") as listener:
        joined.notify("c", "rolled back")
        connection.rollback()
        with leaving(), joined.transaction() as inner:
            inner.notify("c", "undone")
            raise Leave
        joined.notify("c", "sent")
        assert None is listener.get(timeout=0.05)
        connection.commit()
        found_now = listener.get(timeout=WAIT)
        assert found_now is not None
        assert "sent" == found_now.payload
        assert None is listener.get(timeout=0.05)


@clause("T-3", "O-4")
def test_another_kind_of_wake_is_refused(store: Store, connection: Connection) -> None:
    """The error names the argument, and what there is."""
    with pytest.raises(ValidationError, match="wake must be 'poll' or 'notify'"):
        store.join(connection, wake=cast(Any, "shout"))
