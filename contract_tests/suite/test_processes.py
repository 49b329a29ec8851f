"""Processes against processes, and processes that are killed (Q-ENQ-1, Q-CLAIM-2, Q-CLAIM-6, J-8, J-10, Q-7)."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alkstore import State
from alkstore.protocols import Queue, Store
from contract_tests.children import RESULTS, Child
from contract_tests.clauses import clause
from contract_tests.compare import micros
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness
from contract_tests.history import History
from contract_tests.scale import rounds
from contract_tests.steps import Peek, claimed, eventually, found
from contract_tests.travel import MICROSECOND, Clock


def results(store: Store) -> list[Any]:
    """Return the effects that are there."""
    return [job.payload for job in store.queue(RESULTS).jobs(limit=10_000)]


@clause("Q-CLAIM-2", "Q-7", needs="processes")
def test_processes_share_a_queue_without_double_claims(
    harness: Harness, place: str, store: Store, queue: Queue, peek: Peek, tmp_path: Path
) -> None:
    """Each of four enqueues and works: no job is lost or done twice, no error reaches any, and every one gets on."""
    history, jobs = History(), rounds(600)
    for turn in range(rounds(20)):
        with ExitStack() as stack:
            paths = [tmp_path / f"{turn}-{number}" for number in range(4)]
            children = [
                stack.enter_context(
                    Child(harness, place, "drain", queue=queue.name, worker=path.name, jobs=jobs, history=str(path))
                )
                for path in paths
            ]
            for expected in ("ready", "enqueued"):
                assert [expected] * 4 == [child.hear() for child in children]
                for child in children:
                    child.tell()
            acked: list[int] = [child.hear() for child in children]
            for child in children:
                child.finish()
        for path in paths:
            history.load(path)
        assert 4 * jobs == sum(acked)
        assert min(acked) > 0, "one of the processes got nothing"
    assert {} == history.check().faults
    assert [] == peek()


@clause("Q-CLAIM-4", "Q-CLAIM-5", "J-1", needs="processes")
def test_a_worker_that_is_killed_holds_its_job_until_the_deadline(
    harness: Harness, place: str, queue: Queue, clock: Clock
) -> None:
    """The job stays claimed to the very deadline, and is then handed to another as the next attempt."""
    for turn in range(1, rounds(20) + 1):
        job_id = queue.enqueue("work", max_attempts=2)
        with Child(harness, place, "hold", queue=queue.name, worker="killed", now=micros(clock())) as child:
            said = child.hear()
            child.kill()
        assert (job_id, 1) == (said["id"], said["attempt"])
        job = found(queue, job_id)
        assert (State.PROCESSING, "killed") == (job.state, job.worker_id)
        assert job.claim_expires_at is not None
        clock.set(job.claim_expires_at)
        assert queue.claim_one("other") is None
        clock.advance(MICROSECOND)
        handle = claimed(queue, "other")
        assert (job_id, 2) == (handle.id, handle.attempt)
        assert False is queue.handle(said["id"], said["token"]).ack()
        assert handle.ack()
        assert 0 == queue.stats().processing, f"round {turn}"


@clause("Q-CLAIM-6", "Q-5", needs="processes")
@pytest.mark.parametrize("by", ["claim", "sweep"])
def test_a_worker_killed_on_the_last_attempt_leaves_a_dead_job(
    by: str, harness: Harness, place: str, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """Not a stranded one: the next claim, or the next sweep, buries it."""
    job_id = queue.enqueue("work", max_attempts=1)
    with Child(harness, place, "hold", queue=queue.name, worker="killed", now=micros(clock())) as child:
        child.hear()
        child.kill()
    clock.advance(61)
    if by == "claim":
        assert queue.claim_one("other") is None
    else:
        assert 1 == queue.sweep_expired()
    job = found(queue, job_id)
    assert (State.DEAD, "max attempts exceeded", 1) == (job.state, job.last_error, job.attempts)
    assert [(job_id, "dead")] == [(row.id, row.table) for row in peek()]


@clause("J-10", "T-2", needs="processes")
def test_a_worker_killed_inside_its_transaction_leaves_no_effect(
    harness: Harness, place: str, store: Store, queue: Queue, clock: Clock
) -> None:
    """The effect is gone with it, the job is recovered after its deadline, and is then done once."""
    for turn in range(rounds(20)):
        job_id = queue.enqueue(turn)
        with Child(harness, place, "hold_inside", queue=queue.name, worker="killed", now=micros(clock())) as child:
            assert {"id": job_id, "attempt": 1} == child.hear()
            child.kill()
        assert turn == len(results(store))
        clock.advance(61)
        # The database may take a moment to see that the killed process is gone, and lets go of its rows then.
        handle = eventually(lambda: queue.claim_one("other"), "the killed process to lose its job")
        assert (job_id, 2) == (handle.id, handle.attempt)
        with handle.transaction() as tx:
            tx.queue(RESULTS).enqueue(handle.payload)
        assert list(range(turn + 1)) == results(store)
    assert [] == queue.jobs()


@clause("J-10", needs="processes")
def test_a_worker_that_is_let_go_on_inside_its_transaction_commits(
    harness: Harness, place: str, store: Store, queue: Queue, clock: Clock
) -> None:
    """Nothing is seen of it from another process before, and all of it afterwards."""
    job_id = queue.enqueue("work")
    with Child(harness, place, "hold_inside", queue=queue.name, worker="slow", now=micros(clock())) as child:
        assert {"id": job_id, "attempt": 1} == child.hear()
        assert ([], State.PROCESSING) == (results(store), found(queue, job_id).state)
        child.tell()
        assert "committed" == child.hear()
        child.finish()
    assert (["work"], []) == (results(store), queue.jobs())


@clause("J-10", "J-8", "Q-7", needs="processes")
def test_effects_are_exactly_once_however_often_workers_are_killed(
    harness: Harness, place: str, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """Workers are killed at random moments until the work is done: every job has had its effect once."""
    _kill_again_and_again("exactly_once", harness, place, store, queue, clock, peek)


@clause("T-3", "J-8", "Q-7", needs="processes")
def test_effects_on_a_joined_connection_are_exactly_once_however_often_workers_are_killed(
    harness: Harness, place: str, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    """The application commits effect and ack together; a kill at any moment leaves both or neither."""
    _kill_again_and_again("exactly_once_joined", harness, place, store, queue, clock, peek)


def _adds_up(store: Store, queue: Queue, jobs: int) -> bool | None:
    counts, done = queue.stats(), store.queue(RESULTS).stats().ready
    return jobs == counts.ready + counts.processing + done or None


def _kill_again_and_again(
    task: str, harness: Harness, place: str, store: Store, queue: Queue, clock: Clock, peek: Peek
) -> None:
    dice, jobs, kills = random.Random(), 0, rounds(200)
    for turn in range(kills + 1):
        more = 100  # about what the two can do before they are killed: most are killed at work
        queue.enqueue_many(range(jobs, jobs + more), max_attempts=2**31 - 1)
        jobs += more
        with ExitStack() as stack:
            children = [
                stack.enter_context(
                    Child(harness, place, task, queue=queue.name, worker=f"w{number}", now=micros(clock()))
                )
                for number in range(2)
            ]
            for child in children:
                assert "begun" == child.hear()
            if turn == kills:  # the last pair may finish
                for child in children:
                    child.finish()
            else:
                children[0].run_for(dice.uniform(0, 0.1))
            for child in children:
                child.kill()
        clock.advance(61)
        # A server may still be committing for a process that is gone: two looks at two moments needn't agree at once.
        eventually(partial(_adds_up, store, queue, jobs), "the jobs and the effects to add up: none lost, none twice")
    rows = peek()
    assert {RESULTS} == {row.queue for row in rows}
    assert list(range(jobs)) == sorted(json.loads(row.payload) for row in rows)


@clause("Q-ENQ-1", "J-8", "Q-7", needs=("processes", "durable"))
def test_a_writer_killed_at_random_moments_loses_nothing(
    harness: Harness,
    place: str,
    open_store: OpenStore,
    store: Store,
    queue: Queue,
    clock: Clock,
    peek: Peek,
    tmp_path: Path,
) -> None:
    """Enqueueing, claiming, acking, retrying and failing when it is killed: no acknowledged job is lost, or in two tables."""
    history, dice = History(), random.Random()
    for turn in range(rounds(50)):
        path = tmp_path / str(turn)
        with Child(
            harness,
            place,
            "churn",
            queue=queue.name,
            worker="killed",
            seed=turn,
            history=str(path),
            now=micros(clock()),
        ) as child:
            assert "begun" == child.hear()
            child.run_for(dice.uniform(0.02, 0.2))
            child.kill()
        clock.advance(61)
        history.load(path)
        rows = peek()
        assert len(rows) == len({row.id for row in rows}), f"a job is in two tables after round {turn}"
    assert history.count("acknowledged") > 0
    with open_store(clock=clock) as again:
        looking = again.queue(queue.name)
        left = [json.loads(row.payload) for row in peek()]
        assert {} == history.check(left=left).faults
        # What it held is nobody's: all that is left can be finished.
        for job in looking.jobs(State.DEAD, limit=10_000):
            assert looking.retry_dead(job.id)
        while handles := looking.claim_batch("other", 100):
            assert len(handles) == looking.ack_batch(handles)
        assert looking.stats().processing == 0
