"""Doing whatever is due, in the thread of the test.

A worker does it, as in production: the same claims, the same verdicts, the same settling. Only the handlers are called elsewhere:
the worker's one runner hands each call over to the thread that drains, and waits. So a test's own fixtures, patches,
context variables and connections are there, and a breakpoint stops where it should.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Final, cast

from alkstore.clock import Duration
from alkstore.errors import ValidationError
from alkstore.results import encode_result
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.texts import describe
from alkstore.worker import Fail, Handler, Retry, RunningJob, Summary, Worker
from alkstore.worker.worker import Timed


@dataclass(frozen=True, slots=True)
class Drained(Summary):
    """What was done, and what was raised meanwhile."""

    errors: tuple[BaseException, ...] = ()
    """In the order of their coming; ``Retry`` and ``Fail``, which are raised on purpose, aren't among them."""


class _Call:
    """A handler's call on its way to the thread that drains."""

    def __init__(self, handler: Handler, job: RunningJob) -> None:
        self._handler = handler
        self._job = job
        self._done: Future[object] = Future()

    def make(self) -> BaseException | None:
        """Call it here, and return what it raised."""
        job = self._job
        try:
            value = self._handler(job)
            if job.keeps_result:
                encode_result(job.store, value)  # where the worker would find it wrong, the test is told
        except BaseException as exc:  # noqa: BLE001 - it is the worker's to judge, and goes on up from ``drain``
            self._done.set_exception(exc)
            return exc
        self._done.set_result(value)
        return None

    def drop(self) -> None:
        """Have it fail uncalled."""
        self._done.set_exception(RuntimeError("the drain was interrupted"))

    def outcome(self) -> object:
        """Wait for it; in the worker's thread."""
        return self._done.result()


_Calls = SimpleQueue[_Call | None]


class _Elsewhere:
    """A handler for the worker, which has another called by the thread that drains."""

    def __init__(self, handler: Handler, calls: _Calls) -> None:
        self._handler = handler
        self._calls = calls

    def __call__(self, job: RunningJob) -> object:
        call = _Call(self._handler, job)
        self._calls.put(call)
        return call.outcome()

    def timeout_of(self, job: RunningJob) -> Duration | None:
        """Return what the handler says."""
        return self._handler.timeout_of(job) if isinstance(self._handler, Timed) else None


class _Drain:
    """One of them."""

    def __init__(self, store: Store, handlers: Mapping[str, Handler]) -> None:
        self._calls: Final[_Calls] = SimpleQueue()
        elsewhere = {queue: _Elsewhere(handler, self._calls) for queue, handler in handlers.items()}
        self._worker = Worker(store, elsewhere, concurrency=1, ack_window=0)
        self._ended: Future[Summary] = Future()

    def run(self) -> Drained:
        """Serve the worker until it has nothing left."""
        thread = threading.Thread(target=self._work, name="alkstore-drain", daemon=True)
        thread.start()
        errors: list[BaseException] = []
        try:
            while (call := self._calls.get()) is not None:
                error = call.make()
                if error is not None and not isinstance(error, Retry | Fail):
                    errors.append(error)
                if isinstance(error, KeyboardInterrupt):
                    raise error
        except BaseException:
            self._worker.stop()
            while (call := self._calls.get()) is not None:
                call.drop()
            raise
        finally:
            thread.join()
        return Drained(**asdict(self._ended.result()), errors=tuple(errors))

    def _work(self) -> None:
        try:
            self._ended.set_result(self._worker.run(until_idle=True, signals=False))
        except BaseException as exc:  # noqa: BLE001 - it goes on up from ``drain``
            self._ended.set_exception(exc)
        finally:
            self._calls.put(None)


def drain(work: Tasks | Store, handlers: Mapping[str, Handler] | None = None, *, raise_errors: bool = True) -> Drained:
    """Do whatever is due now, and what is enqueued meanwhile, to the end; handlers run one at a time, in this thread.

    ``work``: tasks, in the store that they are bound to; or a store, with ``handlers`` by queue. What becomes of each job is what
    a worker makes of it: a failed one is retried later, and stays. What is due later isn't waited for.

    ``raise_errors``: raise, when all is done, the first error of a handler, with a note of any others: also ``Unhandled``, as
    where no task is called so; but not ``Retry`` and ``Fail``. Else they are in what is returned. Raises
    ``TransactionError`` while this thread has a transaction of the store open, ``ValidationError`` for wrong arguments, and what
    ``Worker.run`` does.
    """
    store, by_queue = _resolve(work, handlers)
    store.check_open()
    store.auto_session.executor()  # within a transaction, handlers would be refused one by one
    drained = _Drain(store, by_queue).run()
    if raise_errors and drained.errors:
        first, *others = drained.errors
        for error in others:
            first.add_note(f"and there was another error meanwhile: {describe(error)}")
        raise first
    return drained


def _resolve(work: object, handlers: object) -> tuple[Store, Mapping[str, Handler]]:
    if isinstance(work, Tasks):
        if handlers is not None:
            raise ValidationError("handlers can't be given with tasks: those have their own")
        return work.store, work.handlers()
    if not isinstance(work, Store):
        raise ValidationError(f"work must be the tasks or a store, not {type(work).__name__}")
    if not isinstance(handlers, Mapping):
        raise ValidationError("handlers must be a mapping of queues to handlers: a store has none of its own")
    return work, cast("Mapping[str, Handler]", handlers)
