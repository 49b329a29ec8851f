"""Hooks of a worker that runs its handlers in processes: told in the worker's own, whoever did it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from prometheus_client import CollectorRegistry

from alkstore import Hooks, RunningJob, Worker
from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, HookFailed, Lost, Retried, Succeeded
from alkstore.prometheus import Metrics
from alkstore.store import Store
from tests.hooks import handlers
from tests.hooks.handlers import Deputising, Unfit
from tests.hooks.recording import Recording
from tests.hooks.test_otel import Seen
from tests.worker.handlers import Diary

Open = Callable[..., Store]


def drain(store: Store, handler: Callable[[RunningJob], object], **options: Any) -> Any:
    """Run a worker's handlers in a process until it is idle, and return its summary."""
    return Worker(store, {"q": handler}, processes=1, worker_id="w", **options).run(until_idle=True)


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


# --- what is told -----------------------------------------------------------------------------------------------------


def test_each_end_is_told_once_whether_the_worker_did_it_or_the_process(open_store: Open) -> None:
    """With the handler's duration, the attempt and the worker; and of what a handler rolls back, nothing."""
    hook = Recording()
    store = open_store(hooks=[hook])
    told = {
        payload: store.queue("q").enqueue(payload)
        for payload in ("returns", "acks", "rolls back", "retries", "fails", "raises", "perishes")
    }
    summary = drain(store, handlers.act)
    assert (3, 3, 1) == (summary.succeeded, summary.retried, summary.died), "what the handler settled itself is done"
    assert set(told.values()) == {event.job_id for event in hook.of(Claimed)}
    assert sorted([told["returns"], told["acks"]]) == sorted(event.job_id for event in hook.of(Succeeded))
    assert {
        (told["rolls back"], "ValueError: in the middle"),
        (told["retries"], "not yet"),
        (told["raises"], "ValueError: nope"),
        (told["perishes"], "the handler's process ended with exit code 3"),
    } == {(event.job_id, event.error) for event in hook.of(Retried)}
    assert 4 == len(hook.of(Retried))
    assert [(told["fails"], "no such address")] == [(event.job_id, event.error) for event in hook.of(Died)]
    ends = [*hook.of(Succeeded), *hook.of(Retried), *hook.of(Died)]
    assert {("q", 1, "w")} == {(event.queue, event.attempt, event.worker_id) for event in ends}
    assert all(event.duration is not None and event.duration > timedelta(0) for event in ends)
    ((next_job,),) = [event.job_ids for event in hook.of(Enqueued) if event.queue == "next"]
    assert [next_job] == [job.id for job in store.queue("next").jobs()]


def test_a_claim_that_the_handler_finds_lost_is_told_once(open_store: Open) -> None:
    """The worker finds it lost, too, when it comes to acking."""
    hook = Recording()
    store = open_store(hooks=[hook])
    job_id = store.queue("q").enqueue("loses")
    assert 1 == drain(store, handlers.act).lost
    assert [("q", job_id, 1, "w")] == [
        (event.queue, event.job_id, event.attempt, event.worker_id) for event in hook.of(Lost)
    ]


def test_a_handlers_block_stays_with_the_worker_and_its_deputys_is_in_the_process(
    open_store: Open, diary: Diary
) -> None:
    """The deputy is asked for headers, too: the hook itself is where nobody can wait for its answer."""
    hook = Deputising(diary.path, headers={"by": "hook"})
    store = open_store(hooks=[hook])
    returns, fails = store.queue("q").enqueue("acks"), store.queue("q").enqueue("fails")
    drain(store, handlers.act)
    assert [("begins", returns), ("returns", returns), ("begins", fails)] == hook.blocks()[:3]
    ((pid,),) = {(line[-1],) for line in diary.lines()}
    assert str(os.getpid()) != pid
    assert [
        ["begins", str(returns), pid], ["returns", str(returns), pid],
        ["begins", str(fails), pid], ["raises", "Fail", pid],
    ] == diary.lines()  # fmt: skip
    (job,) = store.queue("next").jobs()
    assert {"from": str(returns)} == job.headers
    assert ["q", "q"] == [event.queue for event in hook.of(Enqueueing)]


def test_a_deputy_that_is_of_no_use_harms_no_job(open_store: Open, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and counted in the worker's process, whatever is wrong with it, and wherever that shows."""
    hook = Recording()
    store = open_store(hooks=[Unfit(), hook])
    store.queue("q").enqueue_many(["acks"] * 4)
    assert 4 == drain(store, handlers.act).succeeded
    assert 4 == len(store.queue("next").jobs())
    failed = sorted((event.hook, event.method) for event in hook.of(HookFailed))
    assert [
        ("Failing", "enqueueing"), ("Failing", "running"),
        ("Hooks", "deputy"), ("Unfit", "deputy"), ("Unfit", "deputy"),
    ] == failed  # fmt: skip
    assert 5 == len([line for line in caplog.records if line.message.startswith("a hook failed: ")])
    assert {logging.WARNING} == {line.levelno for line in caplog.records if "hook" in line.message}


def test_without_hooks_a_process_is_told_of_none(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a word said about any on the pipe."""

    def never(*_: object) -> None:
        raise AssertionError("asked for a deputy")

    monkeypatch.setattr(Hooks, "deputy", never)
    store = open_store()
    store.queue("q").enqueue("acks")
    assert 1 == drain(store, handlers.act).succeeded


# --- what stands on it ------------------------------------------------------------------------------------------------


def test_a_handlers_span_is_in_the_producers_trace_and_what_it_enqueues_is_below_it(
    open_store: Open, diary: Diary
) -> None:
    """Though nothing in the process sets up an SDK: the span stays with the worker, and its context comes along."""
    seen = Seen()
    store = open_store(hooks=[seen.hook()])
    token = context.attach(baggage.set_baggage("tenant", "7"))
    try:
        job_id = store.queue("q").enqueue(str(diary.path))
    finally:
        context.detach(token)
    assert 1 == drain(store, handlers.chain).succeeded
    produced, processed = seen.span("enqueue q"), seen.span("process q")
    assert produced.context is not None
    assert processed.context is not None
    assert processed.parent is not None
    assert str(job_id) == (processed.attributes or {})["messaging.message.id"]
    assert produced.context.span_id == processed.parent.span_id
    ((trace_id, span_id, tenant, pid),) = diary.said("span")
    assert (f"{produced.context.trace_id:x}", f"{processed.context.span_id:x}", "7") == (trace_id, span_id, tenant)
    assert str(os.getpid()) != pid
    here = f"00-{processed.context.trace_id:032x}-{processed.context.span_id:016x}"
    assert [here] * 3 == [job.headers["traceparent"].rpartition("-")[0] for job in store.queue("next").jobs()]
    sent = {point["messaging.destination.name"]: n for point, n in seen.points("messaging.client.sent.messages")}
    assert {"q": 1, "next": 3} == sent


def test_spans_of_the_handlers_own_are_below_its_span_in_the_applications_sdk(open_store: Open, diary: Diary) -> None:
    seen = Seen()
    store = open_store(hooks=[seen.hook()])
    store.queue("q").enqueue(str(diary.path))
    assert 1 == drain(store, handlers.chain_with_an_sdk).succeeded
    processed = seen.span("process q")
    assert processed.context is not None
    made = {name: (span_id, parent) for name, span_id, parent in diary.said("made")}
    assert {"work", "enqueue-next", "enqueue_many-next"} == set(made)
    work, above = made["work"]
    assert f"{processed.context.span_id:x}" == above
    assert {work} == {made["enqueue-next"][1], made["enqueue_many-next"][1]}
    first, *_ = store.queue("next").jobs()
    parent = trace.get_current_span(propagate.extract(first.headers)).get_span_context()
    assert made["enqueue-next"][0] == f"{parent.span_id:x}"


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        ("raises", "ValueError", "ValueError: nope"),
        ("perishes", "_OTHER", "the handler's process ended with exit code 3"),
    ],
)
def test_what_a_handler_raised_in_a_process_marks_its_span(
    open_store: Open, payload: str, kind: str, text: str
) -> None:
    seen = Seen()
    store = open_store(hooks=[seen.hook()])
    store.queue("q").enqueue(payload)
    assert 1 == drain(store, handlers.act).retried
    span = seen.span("process q")
    assert (kind, text) == ((span.attributes or {})["error.type"], span.status.description)
    (event,) = span.events
    assert kind == (event.attributes or {})["exception.type"]


def test_prometheus_counts_what_processes_do(open_store: Open) -> None:
    registry = CollectorRegistry()
    store = open_store(hooks=[Metrics(registry)])
    store.queue("q").enqueue_many(["returns", "acks", "raises"])
    drain(store, handlers.act)

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert 1 == sample("alkstore_enqueued_total", queue="next")
    assert 2 == sample("alkstore_outcomes_total", queue="q", outcome="succeeded")
    assert 1 == sample("alkstore_outcomes_total", queue="q", outcome="retried")
    assert 2 == sample("alkstore_duration_seconds_count", queue="q", outcome="succeeded")
    assert 0 == sample("alkstore_running", queue="q")
