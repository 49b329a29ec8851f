"""A worker tells hooks what becomes of its jobs, and runs its handlers in their blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from alkstore import Fail, Hooks, Retry, RunningJob, Unhandled, Worker
from alkstore.hooks import Claimed, Died, Lost, Retried, Succeeded, Swept
from alkstore.store import Store
from tests.hooks.recording import Recording
from tests.support.waiting import wait_until
from tests.worker.running import Running

WAIT = 60

Open = Callable[..., Store]


@pytest.fixture
def hook() -> Recording:
    return Recording()


@pytest.fixture
def store(open_store: Open, hook: Recording) -> Store:
    """A store with the hook."""
    return open_store(hooks=[hook])


def drain(store: Store, handler: Callable[[RunningJob], object], **options: Any) -> Any:
    """Run a worker on the queue `q` until it is idle, and return its summary."""
    return Worker(store, {"q": handler}, worker_id="w", **options).run(until_idle=True)


def act(job: RunningJob) -> None:
    """Do what the payload says."""
    match job.payload:
        case "returns":
            return
        case "acks":
            with job.transaction():
                pass
        case "retries":
            raise Retry(7, "not yet")
        case "fails":
            raise Fail("no such address")
        case "is unknown":
            raise Unhandled("no such task")
        case _:
            raise ValueError(job.payload)


@pytest.mark.parametrize("window", [0, 0.003])
def test_each_end_is_told_once_and_with_the_handlers_duration(store: Store, hook: Recording, window: float) -> None:
    """However it came to it: by the worker, or by the handler itself. What is given back isn't told."""
    told: dict[str, int] = {
        payload: store.queue("q").enqueue(payload, max_attempts=attempts)
        for payload, attempts in [
            ("returns", 5), ("acks", 5), ("retries", 5), ("fails", 5), ("is unknown", 5), ("raises", 5), ("dies", 1),
        ]
    }  # fmt: skip
    summary = drain(store, act, ack_window=window)
    assert (2, 2, 2, 1) == (summary.succeeded, summary.retried, summary.died, summary.released)
    assert {told[name] for name in told} == {event.job_id for event in hook.of(Claimed)}
    assert {told["returns"], told["acks"]} == {event.job_id for event in hook.of(Succeeded)}
    retried, died = hook.of(Retried), hook.of(Died)
    assert {(told["retries"], "not yet"), (told["raises"], "ValueError: raises")} == {
        (event.job_id, event.error) for event in retried
    }
    assert timedelta(seconds=7) == next(event.delay for event in retried if event.error == "not yet")
    assert {(told["fails"], "no such address"), (told["dies"], "ValueError: dies")} == {
        (event.job_id, event.error) for event in died
    }
    ends = [*hook.of(Succeeded), *retried, *died]
    assert 6 == len(ends)
    assert {("q", 1, "w")} == {(event.queue, event.attempt, event.worker_id) for event in ends}
    assert all(event.duration is not None and event.duration > timedelta(0) for event in ends)


def test_the_delay_that_was_drawn_is_told(store: Store, hook: Recording) -> None:
    job_id = store.queue("q").enqueue("raises")
    drain(store, act)
    job = store.get_job(job_id)
    assert job is not None
    (event,) = hook.of(Retried)
    assert event.delay.total_seconds() in {3, 4, 5}
    assert event.delay <= job.run_at - job.created_at < event.delay + timedelta(seconds=WAIT)


def test_a_handler_runs_within_its_block_which_sees_what_it_raises(store: Store, hook: Recording) -> None:
    returns, raises = store.queue("q").enqueue_many(["returns", "fails"])

    def handle(job: RunningJob) -> None:
        hook.seen.append(("runs", job.id))
        act(job)

    drain(store, handle, concurrency=1)
    assert [
        ("begins", returns), ("runs", returns), ("returns", returns),
        ("begins", raises), ("runs", raises), ("raises", Fail),
    ] == hook.blocks()  # fmt: skip


class Swallowing(Hooks):
    """A block that would let no exception go up."""

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        with suppress(BaseException):
            yield


class Exiting(Hooks):
    """A hook that would end its thread, wherever it is called."""

    def claimed(self, event: object) -> None:
        raise SystemExit

    succeeded = retried = died = claimed

    def running(self, job: RunningJob) -> AbstractContextManager[None]:
        raise SystemExit


class Leaving(Hooks):
    """A block that fails when it is left."""

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        try:
            yield
        finally:
            raise SystemExit


@pytest.mark.parametrize("kind", [Swallowing, Exiting, Leaving])
@pytest.mark.parametrize("window", [0, 0.003])
def test_no_hook_changes_what_becomes_of_a_job(open_store: Open, hook: Recording, kind: Any, window: float) -> None:
    """Nor is a worker's thread ended by one."""
    store = open_store(hooks=[hook, kind(), hook])
    store.queue("q").enqueue_many(["returns", "fails", "raises", "acks"])
    summary = drain(store, act, ack_window=window)
    assert (2, 1, 1) == (summary.succeeded, summary.retried, summary.died)
    assert 8 == len([kind for kind, _ in hook.blocks() if kind in {"returns", "raises"}])


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_claim_that_is_lost_is_told_once(store: Store, hook: Recording, by_hand: bool) -> None:
    """By whoever notices first, the handler, the heartbeats, or the ack that didn't come through."""
    job_id = store.queue("q", visibility_timeout=0.5).enqueue("a")
    began = threading.Event()

    def handle(job: RunningJob) -> None:
        began.set()
        wait_until(lambda: job.lost, WAIT, "that the job is lost")
        if by_hand:
            job.heartbeat()

    with Running(Worker(store, {"q": handle}, worker_id="w")) as worker:
        assert began.wait(WAIT)
        assert store.queue("q").cancel(job_id)
        wait_until(lambda: hook.of(Lost), WAIT, "the hook's being told")
    assert "w" == worker.worker_id
    assert [("q", job_id, 1)] == [(event.queue, event.job_id, event.attempt) for event in hook.of(Lost)]
    assert [] == hook.of(Succeeded)


def test_an_ack_that_did_not_come_through_is_told_as_lost(store: Store, hook: Recording) -> None:
    job_id = store.queue("q").enqueue("a")
    drain(store, lambda job: store.queue("q").cancel(job.id))
    assert [job_id] == [event.job_id for event in hook.of(Lost)]
    assert [] == hook.of(Succeeded)


def test_a_workers_own_sweeps_are_told(store: Store, hook: Recording) -> None:
    store.queue("q").enqueue("a", delay=3600, expires=0.001)
    with Running(Worker(store, {"q": act}, sweep_interval=0.05)):
        wait_until(lambda: hook.of(Swept), WAIT, "the sweep")
    assert [Swept(queue="q", moved=1)] == hook.of(Swept)


def test_what_is_logged_of_a_job_has_its_fields(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """For formatters that write them out by name; and the line still names them."""
    caplog.set_level(logging.DEBUG, "alkstore.worker")
    job_id = store.queue("q").enqueue("dies", max_attempts=1)
    drain(store, act)
    lines = [record for record in caplog.records if "alkstore_job" in vars(record)]
    assert ["claimed", "failed", "is dead: ValueError: dies"] == [line.getMessage().split(") ")[1] for line in lines]
    for line in lines:
        fields = {name: vars(line)[f"alkstore_{name}"] for name in ("job", "queue", "attempt", "worker")}
        assert {"job": job_id, "queue": "q", "attempt": 1, "worker": "w"} == fields
        assert f"job {job_id} of 'q' (attempt 1, worker 'w')" in line.getMessage()
    assert ["_claimed", "_judge", "_settled"] == [line.funcName for line in lines], "where it happened"
