"""Traces and metrics by OpenTelemetry, as a hook: ``alkstore.open(url, hooks=[Tracing()])`` (extra ``otel``).

Names and attributes are those of OpenTelemetry's semantic conventions for messaging, version 1.30
(https://opentelemetry.io/docs/specs/semconv/messaging/), where they have one; what they have none for begins with
``alkstore.``. ``docs/observing.md`` lists them all.

Only the API is needed. Without an SDK that the application has set up, all of it does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "alkstore.otel needs opentelemetry-api: pip install 'alkstore[otel]'", name=exc.name
    ) from exc

from alkstore.hooks import Claimed, Died, Enqueued, Enqueueing, HookFailed, Hooks, Lost, Retried, Settled, Succeeded
from alkstore.texts import class_name, describe
from alkstore.worker.control import Retry, Unhandled
from alkstore.worker.hands import ReportedError
from alkstore.worker.job import RunningJob

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"

_ADVISED: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds: the buckets that the conventions advise for ``messaging.process.duration``."""

_BUCKETS: Final = (*_ADVISED, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Those, and further ones: a job may take longer than a message."""


class Tracing(Hooks):
    """Spans where jobs are enqueued and where a worker's handlers run, one trace through both, and metrics.

    The trace goes from one to the other in the job's headers, written and read by the application's global propagator (by default
    W3C's ``traceparent``, ``tracestate`` and ``baggage``). ``new_trace``: a handler's span begins a trace of its own that links to
    the producer's, rather than going on in that; for jobs that run long after. The providers are the global ones by default.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        new_trace: bool = False,
    ) -> None:
        self._new_trace = new_trace
        self._tracer = _tracer(tracer_provider)
        meter = metrics.get_meter("alkstore", version("alkstore"), meter_provider, _SCHEMA)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs that were enqueued, and committed."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that were claimed."
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long a worker's handlers took.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._outcomes = meter.create_counter("alkstore.job.outcomes", "{job}", "Claims that ended, by how they did.")
        self._failures = meter.create_counter("alkstore.hook.failures", "{call}", "Calls of hooks that raised.")
        self._waited = meter.create_histogram(
            "alkstore.job.wait.duration",
            "s",
            "How long jobs that were claimed had been due.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    # --- producers -----------------------------------------------------------------------------------------------

    def enqueueing(self, event: Enqueueing) -> Mapping[str, str]:
        """Make the span of the jobs' creation, and return its context, for their headers."""
        return _created(self._tracer, event)

    def enqueued(self, event: Enqueued) -> None:
        """Count them."""
        self._sent.add(len(event.job_ids), _measured(event.queue, "enqueue"))

    # --- consumers -----------------------------------------------------------------------------------------------

    def claimed(self, event: Claimed) -> None:
        """Count it, and how long it waited."""
        attributes = _measured(event.queue, "claim")
        self._consumed.add(1, attributes)
        self._waited.record(event.waited.total_seconds(), attributes)

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        """Run the handler in a span that links to whoever enqueued the job, and is in that trace."""
        context, links = self._origin(job)
        attributes: dict[str, str | int] = {
            **_about(job.queue, "process", "process"),
            "messaging.message.id": str(job.id),
            "messaging.message.body.size": len(job.raw),
            "alkstore.job.attempt": job.attempt,
        }
        if job.row.worker_id is not None:
            attributes["messaging.client.id"] = job.row.worker_id
        measured, begun = _measured(job.queue, "process"), time.monotonic()
        token = attach(context)  # whole, with the baggage: of one that is given to a span, only the trace is heeded
        try:
            with self._tracer.start_as_current_span(
                f"process {job.queue}",
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    yield
                except BaseException as exc:
                    if not isinstance(exc, Retry | Unhandled):  # said on purpose, of a job that nothing is wrong with
                        measured["error.type"] = _failed(span, exc)
                    raise
                finally:
                    self._process.record(time.monotonic() - begun, measured)
        finally:
            detach(token)

    def _origin(self, job: RunningJob) -> tuple[Context, list[Link]]:
        context = propagate.extract(job.headers)
        creation = trace.get_current_span(context).get_span_context()
        links = [Link(creation)] if creation.is_valid else []
        return trace.set_span_in_context(trace.INVALID_SPAN, context) if self._new_trace else context, links

    def deputy(self, job: RunningJob) -> Hooks:  # noqa: ARG002 - its span is the current one
        """Return what carries the handler's span, and the baggage, to the process where it runs."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return _Carried(carrier)

    # --- outcomes ------------------------------------------------------------------------------------------------

    def succeeded(self, event: Succeeded) -> None:
        """Count it."""
        self._count(event, "succeeded")

    def retried(self, event: Retried) -> None:
        """Count it."""
        self._count(event, "retried")

    def died(self, event: Died) -> None:
        """Count it."""
        self._count(event, "died")

    def lost(self, event: Lost) -> None:
        """Count it."""
        self._count(event, "lost")

    def hook_failed(self, event: HookFailed) -> None:
        """Count it."""
        self._failures.add(1, {"alkstore.hook": event.hook, "alkstore.hook.method": event.method})

    def _count(self, event: Settled, outcome: str) -> None:
        self._outcomes.add(1, {**_measured(event.queue, "settle"), "alkstore.job.outcome": outcome})


class _Carried(Hooks):
    """In a process of a worker's: what a handler does there is below its span, which stays with the worker.

    So that is there whatever becomes of the process. Spans of its own that a handler makes go to whichever SDK the application sets
    up there; without one the trace goes on all the same, to what the handler enqueues.
    """

    def __init__(self, carrier: dict[str, str]) -> None:
        self._carrier = carrier

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:  # noqa: ARG002 - see above
        token = attach(propagate.extract(self._carrier))
        try:
            yield
        finally:
            detach(token)

    def enqueueing(self, event: Enqueueing) -> Mapping[str, str]:
        return _created(_tracer(None), event)


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("alkstore", version("alkstore"), provider, _SCHEMA)


def _created(tracer: Tracer, event: Enqueueing) -> dict[str, str]:
    attributes = _about(event.queue, "enqueue_many" if event.many else "enqueue", "create")
    span = tracer.start_span(
        f"{attributes['messaging.operation.name']} {event.queue}", kind=SpanKind.PRODUCER, attributes=attributes
    )
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    span.end()
    return carrier


def _about(queue: str, name: str, kind: str) -> dict[str, str]:
    return {**_measured(queue, name), "messaging.operation.type": kind}


def _measured(queue: str, operation: str) -> dict[str, str]:
    return {
        "messaging.system": "alkstore",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
    }


def _failed(span: Span, error: BaseException) -> str:
    """Mark the span, and return the error's type."""
    if isinstance(error, ReportedError):  # by a process; "_OTHER" is the conventions' for what has no type
        name, text = error.kind or "_OTHER", error.text
    else:
        name, text = class_name(error), describe(error)
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, text))
    try:
        span.record_exception(error, {"exception.type": name})
    except Exception:  # noqa: BLE001 - an exception that can't be printed: its type is there
        span.add_event("exception", {"exception.type": name})
    return name
