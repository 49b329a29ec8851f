"""What a worker's processes run for the tests of hooks, and the hooks' deputies, which those import."""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from alkstore import Fail, Hooks, Retry, RunningJob
from tests.hooks.recording import Recording
from tests.worker.handlers import Diary


def act(job: RunningJob) -> None:
    """Do what the payload says."""
    match job.payload:
        case "acks":
            with job.transaction() as tx:
                tx.queue("next").enqueue("kept")
        case "rolls back":
            with job.transaction() as tx:
                tx.queue("next").enqueue("undone")
                raise ValueError("in the middle")
        case "retries":
            raise Retry(7, "not yet")
        case "fails":
            raise Fail("no such address")
        case "raises":
            raise ValueError("nope")
        case "perishes":
            os._exit(3)
        case "loses":
            assert job.store.queue("q").cancel(job.id)
            assert not job.heartbeat()
        case _:
            pass


def chain(job: RunningJob) -> None:
    """Enqueue further jobs in the process's own store, and note in which trace that was."""
    diary = Diary(job.payload)
    here = trace.get_current_span().get_span_context()
    diary.note("span", f"{here.trace_id:x}", f"{here.span_id:x}", baggage.get_baggage("tenant"), os.getpid())
    job.store.queue("next").enqueue("one")
    job.store.queue("next").enqueue_many(["two", "three"])


@functools.cache
def set_up(path: str) -> None:
    """Set up an SDK in this process, as an application's module would."""

    class ToDiary(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            for span in spans:
                assert span.context is not None
                parent = "none" if span.parent is None else f"{span.parent.span_id:x}"
                Diary(path).note("made", span.name.replace(" ", "-"), f"{span.context.span_id:x}", parent)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToDiary()))
    trace.set_tracer_provider(provider)


def chain_with_an_sdk(job: RunningJob) -> None:
    """The same, with spans of the application's own."""
    set_up(job.payload)
    with trace.get_tracer("shop").start_as_current_span("work"):
        chain(job)


class Deputising(Recording):
    """A hook that has a deputy, which notes in a file what it sees."""

    def __init__(self, path: object, **options: Any) -> None:
        super().__init__(**options)
        self.path = str(path)

    def deputy(self, job: RunningJob) -> Hooks:
        return Deputy(self.path, job.id)


class Deputy(Hooks):
    """Notes the handler's block, and gives jobs a header that tells of the job they come from."""

    def __init__(self, path: str, job_id: int) -> None:
        self.path = path
        self.job_id = job_id

    @contextmanager
    def running(self, job: RunningJob) -> Generator[None]:
        Diary(self.path).note("begins", job.id, os.getpid())
        try:
            yield
        except BaseException as exc:
            Diary(self.path).note("raises", type(exc).__name__, os.getpid())
            raise
        Diary(self.path).note("returns", job.id, os.getpid())

    def enqueueing(self, event: object) -> dict[str, str]:
        return {"from": str(self.job_id)}


class Unpickled:
    """What can't be had in another process."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("not here")


class Unfit(Hooks):
    """A hook of whose deputies none is of use."""

    def deputy(self, job: RunningJob) -> Any:
        match job.id % 4:
            case 0:
                raise ZeroDivisionError
            case 1:
                return lambda: None  # can't be pickled
            case 2:
                return Unpickled()
            case _:
                return Failing()


class Failing(Hooks):
    """A deputy that raises, whatever it is asked."""

    def running(self, job: RunningJob) -> AbstractContextManager[None]:
        raise SystemExit

    def enqueueing(self, event: object) -> dict[str, str]:
        raise ZeroDivisionError
