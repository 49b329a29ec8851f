"""OpenTelemetry: one trace from whoever enqueues a job to the handler that does it, and metrics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from alkstore import Fail, Retry, RunningJob, Worker
from alkstore.otel import Tracing
from alkstore.store import Store

Open = Callable[..., Store]


class Seen:
    """Providers of the test's own, and what came out of them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def hook(self, **options: Any) -> Tracing:
        return Tracing(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def span(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return span

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return an instrument's points: attributes, and the number or how many there are."""
        data: Any = self.reader.get_metrics_data()
        return [
            (dict(point.attributes), point.value if hasattr(point, "value") else point.count)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def drain(store: Store, handler: Callable[[RunningJob], object]) -> None:
    Worker(store, {"emails": handler}, worker_id="w").run(until_idle=True)


def test_the_handler_runs_in_the_trace_of_whoever_enqueued_the_job(open_store: Open, seen: Seen) -> None:
    """Below the span of its creation, and with the baggage of that place."""
    store = open_store(hooks=[seen.hook()])
    inside: list[Any] = []

    def handle(job: RunningJob) -> None:
        inside.append((trace.get_current_span().get_span_context().span_id, baggage.get_baggage("tenant")))

    with seen.tracers.get_tracer("shop").start_as_current_span("checkout") as checkout:
        token = context.attach(baggage.set_baggage("tenant", "7"))
        try:
            job_id = store.queue("emails").enqueue("ada")
        finally:
            context.detach(token)
    drain(store, handle)
    produced, processed = seen.span("enqueue emails"), seen.span("process emails")
    assert produced.context is not None
    assert processed.context is not None
    assert produced.parent is not None
    assert processed.parent is not None
    assert checkout.get_span_context().span_id == produced.parent.span_id
    assert (produced.context.trace_id, produced.context.span_id) == (
        processed.parent.trace_id,
        processed.parent.span_id,
    )
    assert [(processed.context.span_id, "7")] == inside
    assert (SpanKind.PRODUCER, SpanKind.CONSUMER) == (produced.kind, processed.kind)
    about = {"messaging.system": "alkstore", "messaging.destination.name": "emails"}
    assert {
        **about,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "create",
    } == dict(produced.attributes or {})
    assert {
        **about,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(job_id),
        "messaging.message.body.size": 5,
        "messaging.client.id": "w",
        "alkstore.job.attempt": 1,
    } == dict(processed.attributes or {})
    assert StatusCode.UNSET == processed.status.status_code


def test_a_new_trace_links_to_the_producers(open_store: Open, seen: Seen) -> None:
    """Of a bulk there is one span, and all of its jobs have its context."""
    store = open_store(hooks=[seen.hook(new_trace=True)])
    store.queue("emails").enqueue_many(["ada"])
    drain(store, lambda job: None)
    produced, processed = seen.span("enqueue_many emails"), seen.span("process emails")
    assert processed.parent is None
    assert [produced.context] == [
        trace.SpanContext(link.context.trace_id, link.context.span_id, False, link.context.trace_flags)
        for link in processed.links
    ]
    assert processed.context is not None
    assert produced.context is not None
    assert processed.context.trace_id != produced.context.trace_id


def test_the_handlers_of_a_bulk_are_below_its_span_and_link_to_it(open_store: Open, seen: Seen) -> None:
    """There is one span for the call, and each of its jobs has its own."""
    store = open_store(hooks=[seen.hook()])
    store.queue("emails").enqueue_many(["ada", "bob", "cy"])
    drain(store, lambda job: None)
    produced = seen.span("enqueue_many emails")
    assert produced.context is not None
    processed = [span for span in seen.exporter.get_finished_spans() if span.name == "process emails"]
    assert 3 == len({str((span.attributes or {})["messaging.message.id"]) for span in processed})
    assert {produced.context.span_id} == {span.parent.span_id for span in processed if span.parent is not None}
    assert [[produced.context.span_id]] * 3 == [[link.context.span_id for link in span.links] for span in processed]


def test_a_job_without_a_context_begins_a_trace(open_store: Open, seen: Seen) -> None:
    """As of what was enqueued from SQL; and one that isn't well formed is as none."""
    open_store().queue("emails").enqueue("ada", headers={"traceparent": "\x1b]0;pwn\x07"})
    drain(open_store(hooks=[seen.hook()]), lambda job: None)
    assert seen.span("process emails").parent is None


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (KeyError("x"), "KeyError", "KeyError: 'x'"),
        (SystemExit(3), "SystemExit", "SystemExit: 3"),
        (Fail("no"), "alkstore.worker.control.Fail", "Fail: no"),
        (Unprintable(), f"{__name__}.Unprintable", "Unprintable: (unprintable: RuntimeError)"),
        (Retry(60, "not yet"), None, None),
    ],
    ids=["error", "exit", "fail", "unprintable", "retry"],
)
def test_a_handler_that_raises_marks_its_span(
    open_store: Open, seen: Seen, raised: BaseException, kind: str | None, told: str | None
) -> None:
    """But for `Retry`, which says of nothing that it is wrong."""
    store = open_store(hooks=[seen.hook()])
    store.queue("emails").enqueue("ada")

    def handle(job: RunningJob) -> None:
        raise raised

    drain(store, handle)
    span = seen.span("process emails")
    attributes = span.attributes or {}
    assert kind == attributes.get("error.type")
    assert (StatusCode.UNSET if kind is None else StatusCode.ERROR, told) == (
        span.status.status_code,
        span.status.description,
    )
    assert (0 if kind is None else 1) == len(span.events)
    ((measured, count),) = seen.points("messaging.process.duration")
    assert (kind, 1) == (measured.get("error.type"), count)


def test_metrics_count_jobs_by_what_became_of_them(open_store: Open, seen: Seen) -> None:
    store = open_store(hooks=[seen.hook()])
    store.queue("emails").enqueue_many(["returns", "returns", "retries", "fails"])

    def handle(job: RunningJob) -> None:
        if job.payload == "retries":
            raise Retry(60)
        if job.payload == "fails":
            raise Fail("no")

    drain(store, handle)
    about = {"messaging.system": "alkstore", "messaging.destination.name": "emails"}
    assert [({**about, "messaging.operation.name": "enqueue"}, 4)] == seen.points("messaging.client.sent.messages")
    claims = {**about, "messaging.operation.name": "claim"}
    assert [(claims, 4)] == seen.points("messaging.client.consumed.messages")
    assert [(claims, 4)] == seen.points("alkstore.job.wait.duration")
    outcomes = {point["alkstore.job.outcome"]: count for point, count in seen.points("alkstore.job.outcomes")}
    assert {"succeeded": 2, "retried": 1, "died": 1} == outcomes


def test_without_an_sdk_nothing_is_added(open_store: Open) -> None:
    """The API's own providers do nothing, and no header comes of it."""
    store = open_store(hooks=[Tracing()])
    store.queue("emails").enqueue("ada")
    (job,) = store.queue("emails").jobs()
    assert {} == job.headers
    drain(store, lambda job: None)
    assert [] == store.queue("emails").jobs()


@pytest.mark.parametrize("module", ["otel", "prometheus"])
def test_a_missing_extra_is_named(module: str) -> None:
    absent = {"otel": "opentelemetry", "prometheus": "prometheus_client"}[module]
    program = f"import sys; sys.modules[{absent!r}] = None; import alkstore.{module}"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"pip install 'alkstore[{module}]'" in told.stderr.splitlines()[-1]


def test_the_library_imports_neither_by_itself() -> None:
    program = "import sys, alkstore; print({n.partition('.')[0] for n in sys.modules} & {'opentelemetry', 'prometheus_client'})"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "set()" == told.stdout.strip()
