"""Prometheus: counters of what goes by, and how the queues are at each scrape."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from alkstore import Fail, Hooks, Retry, RunningJob, Worker
from alkstore.cli.metrics import served
from alkstore.prometheus import Metrics
from alkstore.store import Store
from tests.hooks.test_otel import Seen
from tests.support.waiting import wait_until

Open = Callable[..., Store]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_what_goes_by_is_counted(open_store: Open, registry: CollectorRegistry) -> None:
    store = open_store(hooks=[Metrics(registry)])
    store.queue("q").enqueue_many(["returns", "returns", "retries", "fails"])
    running: list[float | None] = []

    def handle(job: RunningJob) -> None:
        running.append(registry.get_sample_value("alkstore_running", {"queue": "q"}))
        if job.payload == "retries":
            raise Retry(60)
        if job.payload == "fails":
            raise Fail("no")

    Worker(store, {"q": handle}, concurrency=1).run(until_idle=True)
    queue = store.queue("q", visibility_timeout=0.001)
    queue.enqueue("swept", expires=0.001, delay=60)
    swept = 0
    while not swept:
        swept = queue.sweep_expired()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"queue": "q", **labels})

    assert 5 == value("alkstore_enqueued_total")
    assert 4 == value("alkstore_claimed_total") == value("alkstore_wait_seconds_count")
    assert 1 == value("alkstore_swept_total")
    assert [1] * 4 == running
    assert 0 == value("alkstore_running")
    for outcome, count in {"succeeded": 2, "retried": 1, "died": 1, "lost": None}.items():
        assert count == value("alkstore_outcomes_total", outcome=outcome)
        assert count == value("alkstore_duration_seconds_count", outcome=outcome)


class Raising(Hooks):
    """A hook that can't bear to be told."""

    def enqueued(self, event: object) -> None:
        raise ZeroDivisionError


def test_calls_of_hooks_that_raise_are_counted(open_store: Open, registry: CollectorRegistry) -> None:
    """And what goes by is counted all the same; by OpenTelemetry, too."""
    seen = Seen()
    queue = open_store(hooks=[Raising(), Metrics(registry), seen.hook()]).queue("q")
    queue.enqueue("a")
    queue.enqueue("b")
    labels = {"hook": "Raising", "method": "enqueued"}
    assert 2 == registry.get_sample_value("alkstore_hook_failures_total", labels)
    assert 2 == registry.get_sample_value("alkstore_enqueued_total", {"queue": "q"})
    counted = {"alkstore.hook": "Raising", "alkstore.hook.method": "enqueued"}
    assert [(counted, 2)] == seen.points("alkstore.hook.failures")


def test_a_lost_claim_is_counted(open_store: Open, registry: CollectorRegistry) -> None:
    store = open_store(hooks=[Metrics(registry)])
    job_id = store.queue("q").enqueue("a")
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    store.queue("q").cancel(job_id)
    assert not handle.ack()
    assert 1 == registry.get_sample_value("alkstore_outcomes_total", {"queue": "q", "outcome": "lost"})


def test_the_depths_of_all_queues_are_as_they_stand_at_the_scrape(
    open_store: Open, registry: CollectorRegistry
) -> None:
    """Any text can be a queue's name."""
    store = open_store()
    Metrics(registry).watch(store)
    for name in ("q", 'a "quoted\\" <img>'):
        queue = store.queue(name, max_attempts=1)
        queue.enqueue_many(["ready", "claimed", "dead"])
        queue.enqueue("later", delay=3600)
        handles = queue.claim_batch("w", 2)
        assert handles[0].fail()
        labels = {"queue": name}
        depths = {
            state: registry.get_sample_value("alkstore_jobs", {**labels, "state": state})
            for state in ("ready", "scheduled", "processing", "dead")
        }
        assert {"ready": 1, "scheduled": 1, "processing": 1, "dead": 1} == depths
        age = registry.get_sample_value("alkstore_oldest_ready_age_seconds", labels)
        assert age is not None
        assert 0 <= age < 600
    assert 1 == registry.get_sample_value("alkstore_up")


def test_a_store_that_does_not_answer_leaves_the_rest_of_the_scrape(
    open_store: Open, registry: CollectorRegistry
) -> None:
    store = open_store(hooks=[metrics := Metrics(registry)])
    metrics.watch(store)
    store.queue("q").enqueue("a")
    store.close()
    text = generate_latest(registry).decode()
    assert "alkstore_up 0.0" in text
    assert 'alkstore_enqueued_total{queue="q"} 1.0' in text
    assert "alkstore_jobs{" not in text


def test_the_server_ends_with_its_block(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "alkstore.worker")
    before = threading.active_count()
    with served("127.0.0.1", 0) as metrics:
        assert metrics is not None
        url = caplog.messages[-1].removeprefix("metrics are served on ")
        with urlopen(url) as answer:  # noqa: S310 - our own
            assert b"alkstore_enqueued_total" in answer.read()
    with pytest.raises(URLError):
        urlopen(url)  # noqa: S310
    wait_until(lambda: before >= threading.active_count(), 60, "the end of its threads")
    with served("127.0.0.1", None) as metrics:
        assert metrics is None


def test_nothing_is_asked_of_the_database_when_the_depths_are_registered(
    open_store: Open, registry: CollectorRegistry
) -> None:
    store = open_store()
    store.close()
    Metrics(registry).watch(store)
    with pytest.raises(ValueError, match="Duplicated"):
        Metrics(registry)
