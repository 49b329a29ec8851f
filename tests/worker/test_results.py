"""What a handler returns is its job's result, where the job keeps one (Z-17)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from alkstore import Fail, Outcome, Result, RunningJob, State, Worker
from alkstore.engine import Results
from alkstore.errors import EngineUnavailableError, OutcomeUnknownError
from alkstore.records import KeptBatch, ResultRef
from alkstore.store import Store
from alkstore.worker import completing
from contract_tests.scale import rounds
from tests.worker.running import WAIT, Running


def drain(store: Store, handler: Callable[[RunningJob], object], window: float = 0.003) -> None:
    """Run a worker on the queue `q` until it is idle."""
    Worker(store, {"q": handler}, ack_window=window).run(until_idle=True)


def kept(store: Store, job_id: int) -> Result:
    """Return a result that must be there."""
    result = store.result(job_id)
    assert result is not None
    return result


@pytest.mark.parametrize("window", [0, 0.003])
def test_what_a_handler_returns_is_kept_of_those_jobs_that_keep_it(store: Store, window: float) -> None:
    """In the same batch with jobs that don't, whose handlers may return anything."""
    queue = store.queue("q")
    keeping = queue.enqueue_many(range(50), keep_result=60)
    others = queue.enqueue_many(range(50))
    drain(store, lambda job: job.payload * 2 if job.job.keep_result else object(), window)
    assert [2 * number for number in range(50)] == [kept(store, job_id).value for job_id in keeping]
    assert [None] * 50 == [store.result(job_id) for job_id in others]
    assert [] == queue.jobs()


def test_a_handler_that_returns_nothing_leaves_none(store: Store) -> None:
    job_id = store.queue("q").enqueue("work", keep_result=60)
    drain(store, lambda _: None)
    assert (Outcome.SUCCEEDED, None) == (kept(store, job_id).outcome, kept(store, job_id).value)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ({"when": {1}}, "PayloadError: result['when'] is of type set, which JSON doesn't have"),
        ("x" * 5_000_000, "PayloadError: result is 5000002 bytes when encoded, over the limit of 1048576"),
    ],
    ids=["a set", "5 MB"],
)
def test_a_result_that_cannot_be_kept_is_a_failed_attempt(store: Store, returned: object, said: str) -> None:
    """With a text that says why; the worker lives, and does the others."""
    queue = store.queue("q")
    bad = queue.enqueue("bad", keep_result=60, max_attempts=1)
    good = queue.enqueue("good", keep_result=60)
    drain(store, lambda job: returned if job.payload == "bad" else "fine")
    job = queue.get_job(bad)
    assert job is not None
    assert (State.DEAD, said) == (job.state, job.last_error)
    assert (Outcome.FAILED, said) == (kept(store, bad).outcome, kept(store, bad).error)
    assert "fine" == kept(store, good).value


def test_a_job_that_its_handler_settled_keeps_what_it_was_acked_with(store: Store) -> None:
    """And not what the handler returns afterwards."""
    queue = store.queue("q")
    inside = queue.enqueue("inside", keep_result=60)
    outside = queue.enqueue("outside", keep_result=60)

    def handler(job: RunningJob) -> str:
        if job.payload == "inside":
            with job.transaction():
                assert job.handle.ack(result="acked inside")
        else:
            assert job.handle.ack(result="acked")
        return "too late"

    drain(store, handler)
    assert ["acked inside", "acked"] == [kept(store, job_id).value for job_id in (inside, outside)]


def test_whoever_waits_is_woken_by_the_workers_ack_and_by_a_death(store: Store) -> None:
    """By nothing else."""
    queue = store.queue("q")

    def handler(job: RunningJob) -> object:
        if job.payload == "bad":
            raise Fail("no")
        if job.payload == "worse":
            raise ValueError("no")
        return job.payload

    with Running(Worker(store, {"q": handler})), ThreadPoolExecutor(3) as pool:
        for _ in range(rounds(50)):
            jobs = [queue.enqueue(each, keep_result=60, max_attempts=1) for each in ("good", "bad", "worse")]
            waits = [pool.submit(queue.wait_result, job_id, WAIT, poll_interval=1_000) for job_id in jobs]
            results = [each.result(WAIT) for each in waits]
            assert [("good", None), (None, "no"), (None, "ValueError: no")] == [
                (result.value, result.error) for result in results if result is not None
            ]


@pytest.mark.parametrize("error", [EngineUnavailableError, OutcomeUnknownError])
def test_results_go_along_with_an_ack_that_is_tried_again(
    store: Store, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler isn't run again for it; and large ones don't go all in one statement."""
    monkeypatch.setattr(completing, "CHUNK_BYTES", 1_000)
    ids = store.queue("q").enqueue_many(range(20), keep_result=60)
    runs: list[int] = []
    sizes: list[int] = []
    lock = threading.Lock()
    executor = cast(type[Results], type(store.auto_executor()))
    whole = executor.ack_keeping

    def failing(self: Results, queue: str, refs: list[ResultRef], codec: str, now: int | None) -> KeptBatch:
        with lock:
            sizes.append(sum(len(ref.payload) for ref in refs))
            first = len(sizes) == 1
        if first:
            raise error("for the test")
        return whole(self, queue, refs, codec, now)

    monkeypatch.setattr(executor, "ack_keeping", failing)

    def handler(job: RunningJob) -> str:
        runs.append(job.payload)
        return "x" * 300

    drain(store, handler)
    assert list(range(20)) == sorted(runs)
    assert ["x" * 300] * 20 == [kept(store, job_id).value for job_id in ids]
    assert max(sizes) <= 1_000 + 302
