"""A worker that is told to stop, twice, or killed: nothing is lost, and nothing begun twice that needn't be (J-6)."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from alkstore import RunningJob, State, Worker
from alkstore.store import Store
from alkstore.worker.fetching import Fetcher
from contract_tests.scale import rounds, scale
from tests.integrations.places import Place
from tests.support.waiting import wait_until
from tests.worker.programs import WorkerProgram
from tests.worker.running import Running

WAIT = 60
SHORT = 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_idle_worker_exits_well_and_at_once(place: Place, store: Store, number: signal.Signals) -> None:
    store.queue("q").enqueue("first")
    with WorkerProgram(place, seconds=0) as program:
        program.expect("end")
        wait_until(lambda: not store.queue("q").jobs(), WAIT, "the ack")
        begun = time.monotonic()
        program.process.send_signal(number)
        assert 0 == program.ended()
        assert time.monotonic() - begun < 2
        assert [["1", "0", "0", "0"]] == program.said("stopped")


def test_a_signal_that_another_thread_is_given_stops_it_and_the_second_ends_it(place: Place, store: Store) -> None:
    """As with one that comes just before the main thread begins to wait: it isn't woken by the signal itself."""
    store.queue("q").enqueue("first")
    with WorkerProgram(place, seconds=0.2, signals=1) as program:
        assert 0 == program.ended(20), program.errors
        assert [["1", "0", "0", "0"]] == program.said("stopped")
    store.queue("q").enqueue("second")
    with WorkerProgram(place, seconds=60, signals=2, grace=60) as program:
        assert 128 + signal.SIGTERM == program.ended(20), program.errors


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 100, 300])
def test_a_stop_in_the_middle_loses_nothing_and_repeats_nothing(place: Place, store: Store, milliseconds: int) -> None:
    """Ten jobs are claimed at once, one at a time is worked on: those not begun have their attempt back."""
    queue, claimed = store.queue("q"), list[int]()
    for _ in range(rounds(30)):
        queue.enqueue_many(["short"] * SHORT)  # so that it expects all ten to start soon, and claims ahead
        with WorkerProgram(place, seconds=0.03, concurrency=1) as program:
            wait_until(lambda: not queue.jobs(limit=1), WAIT, "the short ones")
            queue.enqueue_many(range(10))
            program.expect("begin")
            time.sleep(milliseconds / 1_000)
            program.process.terminate()
            assert 0 == program.ended(), program.errors
        ((succeeded, _, released, _),) = program.said("stopped")
        claimed.append(int(succeeded) - SHORT + int(released))
        begun = [int(payload) for payload, _ in program.said("begin")]
        assert sorted(set(begun)) == begun
        assert begun == [int(payload) for payload, _ in program.said("end")]
        left = queue.jobs()
        assert sorted(set(range(10)) - set(begun)) == sorted(job.payload for job in left)
        assert {(State.PENDING, 0)} >= {(job.state, job.attempts) for job in left}
        queue.purge(State.PENDING)
    assert 10 in claimed, "on a busy machine a claim may bring fewer, but not every time"


def test_what_a_claim_brings_after_the_stop_is_given_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no grace period, too: a claim under way isn't a handler that takes its time."""
    store.queue("q").enqueue_many(range(3))
    claimed, claim = threading.Event(), Fetcher._claim

    def slow(fetcher: Fetcher, room: int) -> list[RunningJob]:
        jobs = claim(fetcher, room)
        if jobs:
            claimed.set()
            assert fetcher._stopping.wait(WAIT)
            time.sleep(0.5)  # as long as its database takes to answer
        return jobs

    monkeypatch.setattr(Fetcher, "_claim", slow)
    with Running(Worker(store, {"q": print}, grace=0)) as worker:
        assert claimed.wait(WAIT)
        worker.stop()
    assert [(State.PENDING, 0)] * 3 == [(job.state, job.attempts) for job in store.queue("q").jobs()]


def test_what_runs_has_the_grace_period_and_its_claim_extended(place: Place, store: Store) -> None:
    """Longer than several visibility timeouts, with another worker that waits for the job: it starts once, and is acked."""
    factor = max(scale(), 0.35)
    queue = store.queue("q", visibility_timeout=3 * factor)
    queue.enqueue(1)
    with WorkerProgram(place, seconds=8 * factor, busy=True, grace=max(10 * factor, 8 * factor + 5)) as program:
        program.expect("begin")
        program.process.terminate()
        with WorkerProgram(place, seconds=0, poll_interval=0.1) as other:
            assert 0 == program.ended(), program.errors
            assert [["1", "1"]] == program.said("end")
            assert [] == queue.jobs()
            other.expect("ready")
            other.process.terminate()
            assert 0 == other.ended()
            assert [] == other.said("begin")


def test_what_still_runs_after_the_grace_period_is_retried_and_its_attempt_counts(place: Place, store: Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    with WorkerProgram(place, seconds=60, grace=0.2) as program:
        program.expect("begin")
        program.process.terminate()
        assert 0 == program.ended(), program.errors
        assert [["0", "1", "0", "0"]] == program.said("stopped")
    (job,) = queue.jobs()
    assert (State.PENDING, 1) == (job.state, job.attempts)
    assert "stopped before the handler had finished" in str(job.last_error)


def test_a_second_signal_ends_it_at_once(place: Place, store: Store) -> None:
    """As if it had been killed: its claims lapse."""
    queue = store.queue("q", visibility_timeout=1)
    queue.enqueue(1)
    with WorkerProgram(place, seconds=60, grace=60) as program:
        program.expect("begin")
        program.process.terminate()
        time.sleep(0.3)
        program.process.terminate()
        assert 128 + signal.SIGTERM == program.ended(10)
    assert State.PROCESSING is queue.jobs()[0].state


@pytest.mark.parametrize("budget", [2, 1])
def test_a_killed_workers_job_is_picked_up_or_dead(place: Place, store: Store, budget: int) -> None:
    """By whoever waits, after the visibility timeout, with nothing to configure; on its last attempt it is dead (Q-CLAIM-6)."""
    queue = store.queue("q", visibility_timeout=1, max_attempts=budget)
    queue.enqueue(1)
    with WorkerProgram(place, seconds=60) as program:
        program.expect("begin")
        program.process.kill()
        program.ended()
    with WorkerProgram(place, seconds=0, poll_interval=3_600) as other:
        if budget == 2:
            assert ["end", "1", "2"] == other.expect("end")
            wait_until(lambda: not queue.jobs(), WAIT, "the ack")
        else:
            wait_until(lambda: queue.stats().dead == 1, WAIT, "its burial")
            assert "max attempts exceeded" == queue.jobs()[0].last_error
