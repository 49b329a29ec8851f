"""Operations that meet another's open transaction: they act upon what it comes to, not upon what was before (J-1, Q-3, Q-6, T-2).

Where an engine locks rows the operation waits for the row, and where it locks the whole it waits for its turn. Either way it has to
look again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest

from alkstore import State
from alkstore.protocols import JobHandle, Queue, Store, Transaction
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.steps import OPERATIONS, Leave, Peek, claimed, leaving
from contract_tests.together import WAIT, beside
from contract_tests.travel import MICROSECOND, Clock

ends = pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])


def meet(
    store: Store, commits: bool, inside: Callable[[Transaction], object], call: Callable[[], bool | int]
) -> bool | int:
    """Do something in a transaction, make the call while it is open, and return the call's answer after its end."""
    running: list[Future[bool | int]] = []

    def block(thread: ThreadPoolExecutor) -> None:
        with store.transaction() as tx:
            inside(tx)
            running.append(beside(thread, call))
            if not commits:
                raise Leave

    with ThreadPoolExecutor(1) as thread:
        if commits:
            block(thread)
        else:
            with leaving():
                block(thread)
        return running[0].result(WAIT)


@clause("J-1", "T-2", "Q-CLAIM-2", needs=("processes", "transactions"))
@ends
def test_an_owner_that_meets_a_reclaim(
    commits: bool, store: Store, open_store: OpenStore, clock: Clock, queue_names: Callable[[], str]
) -> None:
    """Every operation of the old owner is refused once the reclaim is committed, and granted if it is rolled back."""
    ahead = open_store(clock=Clock(clock() + timedelta(seconds=60) + MICROSECOND))
    for name, operation in OPERATIONS.items():
        queue = store.queue(queue_names())
        queue.enqueue("work")
        mine = claimed(queue, "same name")
        clock.set(mine.deadline)
        granted = meet(
            ahead,
            commits,
            lambda tx, queue=queue: claimed(tx.queue(queue.name), "same name"),
            lambda operation=operation, mine=mine: operation(mine),
        )
        assert granted != commits, name
        job = queue.get_job(mine.id)
        if commits:
            assert job is not None
            assert (State.PROCESSING, 2, None) == (job.state, job.attempts, job.last_error)
        clock.advance(timedelta(seconds=-60))


@clause("Q-2", "J-1", "T-2", needs=("processes", "transactions"))
@ends
def test_a_batch_of_acks_that_meets_reclaims(
    commits: bool, open_store: OpenStore, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """Of a batch in which some claims are being taken over, the others are acked, and those only if the other commits."""
    ids = queue.enqueue_many(range(5))
    mine = queue.claim_batch("same name", 5)
    clock.set(mine[0].deadline)
    ahead = open_store(clock=Clock(clock() + MICROSECOND))
    acked = meet(
        ahead,
        commits,
        lambda tx: tx.queue(queue.name).claim_batch("same name", 2),
        lambda: queue.ack_batch(mine),
    )
    assert (3 if commits else 5) == acked
    assert (ids[:2] if commits else []) == [row.id for row in peek()]


@clause("J-1", "Q-CLAIM-6", "Q-5", "T-2", needs=("processes", "transactions"))
@ends
def test_an_owner_that_meets_the_burial_of_its_job(
    commits: bool, store: Store, open_store: OpenStore, clock: Clock, queue_names: Callable[[], str]
) -> None:
    """Swept away as exhausted in a transaction that commits, the job is not its owner's any more, whatever it tries."""
    ahead = open_store(clock=Clock(clock() + timedelta(seconds=60) + MICROSECOND))
    for name, operation in OPERATIONS.items():
        queue = store.queue(queue_names())
        queue.enqueue("work", max_attempts=1)
        mine = claimed(queue)
        clock.set(mine.deadline)
        granted = meet(
            ahead,
            commits,
            lambda tx, queue=queue: tx.queue(queue.name).sweep_expired(),
            lambda operation=operation, mine=mine: operation(mine),
        )
        assert granted != commits, name
        if commits:
            assert ["max attempts exceeded"] == [job.last_error for job in queue.jobs(State.DEAD)]
        clock.advance(timedelta(seconds=-60))


@clause("Q-3", "Q-6", "T-2", needs=("processes", "transactions"))
@ends
def test_a_cancel_that_meets_what_takes_the_job_away(
    commits: bool, store: Store, open_store: OpenStore, clock: Clock, queue_names: Callable[[], str]
) -> None:
    """Acked, buried, purged or cancelled in another's transaction: the cancel is granted only if that is rolled back."""
    other = open_store(clock=clock)
    for how in ("acked", "buried", "purged", "cancelled"):
        queue = store.queue(queue_names())
        job_id = queue.enqueue("work")
        handle = claimed(queue)

        def take_away(
            tx: Transaction, how: str = how, queue: Queue = queue, handle: JobHandle = handle, job_id: int = job_id
        ) -> None:
            within = tx.queue(queue.name)
            if how == "acked":
                assert tx.bind(handle).ack()
            elif how == "buried":
                assert tx.bind(handle).fail()
            elif how == "purged":
                assert 1 == within.purge(State.PROCESSING)
            else:
                assert within.cancel(job_id)

        cancelled = meet(
            store, commits, take_away, lambda name=queue.name, job_id=job_id: other.queue(name).cancel(job_id)
        )
        assert cancelled != commits, how
        assert (int(commits and how == "buried")) == len(queue.jobs())


@clause("Q-6", "T-2", needs=("processes", "transactions"))
@ends
def test_a_revival_that_meets_another(
    commits: bool, store: Store, open_store: OpenStore, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """The second one is granted only if the first is rolled back, and there is one job either way."""
    other = open_store(clock=clock).queue(queue.name)
    job_id = queue.enqueue("work")
    assert claimed(queue).fail()
    revived = meet(store, commits, lambda tx: tx.queue(queue.name).retry_dead(job_id), lambda: other.retry_dead(job_id))
    assert revived != commits
    assert [(job_id, "live", 0)] == [(row.id, row.table, row.attempts) for row in peek()]
