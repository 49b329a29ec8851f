"""The worker: it claims, runs handlers in threads, and settles, until it is told to stop.

**What stops it, and how.** ``stop()``, SIGTERM or SIGINT: nothing is claimed any more, what no handler has begun is released
with its attempt given back, and what runs has the grace period, its claim extended all the while. What still runs then is
told so (``job.lost``) and retried, its attempt counted. A second signal ends the process at once: what was claimed lapses,
as if it had been killed.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Final, Protocol, TypeVar, cast, runtime_checkable

from alkstore.clock import SECOND, Duration, duration
from alkstore.errors import NotSupportedError, PayloadError, StoreClosedError, ValidationError
from alkstore.forking import survive
from alkstore.limits import POLL_INTERVAL
from alkstore.names import check_name
from alkstore.options import check_int
from alkstore.results import encode_result
from alkstore.store import Store
from alkstore.texts import EXHAUSTED, FAILED, error_text
from alkstore.worker.board import Board
from alkstore.worker.completing import Completer, Completion, Verdict
from alkstore.worker.control import Fail, Retry, Unhandled
from alkstore.worker.fetching import Fetcher
from alkstore.worker.guard import check_guarded
from alkstore.worker.hands import Encoded, Hand, Handler, NoHandError, OwnHand, leave_nothing_open, text_of
from alkstore.worker.heartbeats import Heartbeats
from alkstore.worker.job import RunningJob
from alkstore.worker.saying import say
from alkstore.worker.signals import Signals
from alkstore.worker.sweeping import Sweeper
from alkstore.worker.threads import await_end

_LOG: Final = logging.getLogger("alkstore.worker")

H = TypeVar("H", bound=Handler)


@runtime_checkable
class Timed(Protocol):
    """A handler that has a timeout for each job: one that does the work of several."""

    def timeout_of(self, job: RunningJob) -> Duration | None:
        """Return how many seconds it may run for this job; ``None``: as long as for the queue.

        What it raises, and a timeout that is none, is a failed attempt, as if the handler had raised it.
        """
        ...


_LAST_WORDS: Final = 10.0
"""Seconds that settling may take after the grace period."""
_CLAIM_ENDS: Final = 2.0
"""Seconds that are waited for a claim that is still under way after the grace period: what it brings is to be given back."""
_CUT_WINDOW: Final = 0.003
"""Seconds for which what is taken from several handlers is gathered; never none, as the heartbeats' thread does the taking."""
_UNHANDLED_FIRST: Final = 1.0
_UNHANDLED_LONGEST: Final = 300.0
_UNHANDLED_KNOWN: Final = 10_000
"""Jobs that nobody knows of which is remembered how often they came."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a worker has done in one run."""

    succeeded: int = 0
    retried: int = 0
    died: int = 0
    released: int = 0
    lost: int = 0
    """Claims that were not this worker's any more when their job was to be settled."""


@dataclass(frozen=True, slots=True)
class _Route:
    handler: Handler
    timeout: float | None
    timed: Timed | None

    def limit(self, job: RunningJob) -> float | None:
        """Return how long the handler may run for this job, in seconds; ``None`` for ever."""
        own = None if self.timed is None else self.timed.timeout_of(job)
        return self.timeout if own is None else duration(own, "timeout", positive=True) / SECOND


class Worker:
    """Runs handlers on the jobs of some queues.

    ::

        worker = alkstore.Worker(store, concurrency=10)


        @worker.handler("emails")
        def send(job):
            smtp.send(**job.payload)


        worker.run()
    """

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler] | None = None,
        *,
        concurrency: int | None = None,
        processes: int | None = None,
        worker_id: str | None = None,
        grace: Duration = 30,
        timeout: Duration | None = None,
        poll_interval: Duration = POLL_INTERVAL,
        ack_window: Duration = 0.003,
        sweep_interval: Duration = 60,
    ) -> None:
        """Prepare; nothing is claimed before ``run``.

        ``handlers``: by queue, what works on its jobs. ``concurrency``: how many run at a time in threads, by default 8.
        ``processes``: run them in so many processes instead, one at a time in each; the handlers must be importable.
        ``worker_id``: by default the host, the process and four random bytes. ``grace``: how long what runs is waited for
        when the worker stops.
        ``timeout``: how long a handler may run: then its process is killed, and the job retried; a thread can't be
        stopped, so that its job is marked lost and retried while it goes on.
        ``poll_interval``: how often to look for jobs that no wake told of. ``ack_window``: how long acks may wait to go
        together, 0 for each by itself and before its handler's thread takes the next job. ``sweep_interval``: how often,
        about, to sweep. Raises ``ValidationError`` naming the argument, and ``NotSupportedError`` for processes with a
        store that lives in this one.
        """
        if not isinstance(cast(object, store), Store):
            raise ValidationError(f"store must be an alkstore store, not {type(store).__name__}")
        self._store = store
        if processes is not None and concurrency is not None:
            raise ValidationError(
                "processes and concurrency can't both be given: each process runs one handler at a time"
            )
        if processes is None:
            self._places = check_int(8 if concurrency is None else concurrency, "concurrency", 1, 1_000)
        else:
            self._places = check_int(processes, "processes", 1, 256)
            if not store.capabilities.processes:
                raise NotSupportedError("processes can't be had: no other process can open this store")
        self._in_processes = processes is not None
        self._worker_id = check_name(
            worker_id or f"{socket.gethostname()[:100]}-{os.getpid()}-{token_hex(4)}", "worker_id"
        )
        self._grace = duration(grace, "grace") / SECOND
        self._timeout = None if timeout is None else duration(timeout, "timeout", positive=True) / SECOND
        self._poll = duration(poll_interval, "poll_interval", positive=True) / SECOND
        self._window = duration(ack_window, "ack_window") / SECOND
        self._sweep = duration(sweep_interval, "sweep_interval", positive=True) / SECOND
        self._routes: dict[str, _Route] = {}
        self._begin_anew()
        survive(self, Worker._begin_anew)
        for queue, handler in (handlers or {}).items():
            self.add(queue, handler)

    def _begin_anew(self) -> None:
        """When it is made, and in a fork's child: the threads of a run are the parent's, so that it doesn't run here."""
        self._run: _Run | None = None
        self._starting = threading.Lock()

    @property
    def worker_id(self) -> str:
        """What its claims are marked with."""
        return self._worker_id

    def add(self, queue: str, handler: Handler, *, timeout: Duration | None = None) -> None:
        """Have a handler work on a queue's jobs; ``timeout`` as for the worker, whose own is the default.

        Raises ``ValidationError`` naming the argument, also for a queue that has a handler already.
        """
        name = check_name(queue, "queue name")
        if not callable(cast(object, handler)):
            raise ValidationError(f"handler must be a callable, not {type(handler).__name__}")
        if name in self._routes:
            raise ValidationError(f"queue {name!r} has a handler already")
        limit = self._timeout if timeout is None else duration(timeout, "timeout", positive=True) / SECOND
        self._routes[name] = _Route(handler, limit, handler if isinstance(handler, Timed) else None)

    def handler(self, queue: str, *, timeout: Duration | None = None) -> Callable[[H], H]:
        """Return a decorator that does what ``add`` does."""

        def decorate(handler: H) -> H:
            self.add(queue, handler, timeout=timeout)
            return handler

        return decorate

    def run(self, *, until_idle: bool = False, signals: bool = True) -> Summary:
        """Work until told to stop, and say what was done.

        ``until_idle``: or until there is nothing left to claim and nothing runs; what is due later isn't waited for.
        ``signals``: stop at SIGTERM and SIGINT, where this is the main thread; their handlers are put back in the end, and
        in what a handler forks at once.

        Database errors are waited out, but for that of connecting in the beginning. Raises ``ValidationError`` where there
        is no handler, or where it runs them in processes and one can't be imported by those, ``StoreClosedError`` where
        the store is closed, meanwhile too, ``TransactionError`` while this thread has a transaction of it open, and
        ``RuntimeError`` where it runs already, or one of its threads or the first of its processes can't be started.
        """
        if not self._routes:
            raise ValidationError("handlers must name one queue at least")
        check_guarded()
        self._store.check_open()
        self._store.auto_session.executor()  # within a transaction (T-5), which could hold up whatever the worker does
        with self._starting:
            if self._run is not None:
                raise RuntimeError("this worker runs already")
            places, apart = self._places, self._in_processes
            run = _Run(self._store, self._worker_id, self._routes, places, self._window, in_processes=apart)
            self._run = run
        try:
            with Signals(run.stop, run.kill, run.wake, enabled=signals):
                return run.run(self._poll, self._sweep, self._grace, until_idle=until_idle)
        finally:
            self._run = None
            run.close()

    def stop(self) -> None:
        """Have it stop, from any thread or a handler: ``run`` returns when that is done. Does nothing where it doesn't run."""
        run = self._run
        if run is not None:
            run.stop()


class _Run:
    """One run of a worker."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        routes: Mapping[str, _Route],
        places: int,
        window: float,
        *,
        in_processes: bool,
    ) -> None:
        self._store = store
        self._hooks = store.hooks
        self._worker_id = worker_id
        self._routes = dict(routes)
        self._stopping = threading.Event()
        self._asked = False
        self._failure: BaseException | None = None
        self._counting = threading.Lock()
        self._counts = dict.fromkeys(Summary.__dataclass_fields__, 0)
        self._unhandled: dict[int, int] = {}
        self._board = Board(places, routes)
        self._manned = False
        self._hands = self._in_processes(places) if in_processes else [OwnHand() for _ in range(places)]
        # Heartbeats share their connection with nobody: whatever holds up an ack, or a handler's last, lets no claim lapse.
        self._apart, self._beating = store.apart(), store.apart()
        # Written to by whoever has news, a signal's handler included: nothing that could be locked by what it interrupted.
        self._inbox, self._outbox = socket.socketpair()
        self._outbox.setblocking(False)
        self._completer = Completer(store, self._apart, self._board, window, self._settled, self._spawn)
        # What is taken from a handler that still runs may be locked by that, for as long as it likes.
        self._cutter = Completer(store, self._apart, self._board, _CUT_WINDOW, self._settled, self._spawn, "cutter")
        self._heartbeats = Heartbeats(store, self._beating, self._board, self._lost, self._spawn)

    def _in_processes(self, places: int) -> Sequence[Hand]:
        # Here, so that whoever needs no processes doesn't import what starts them.
        from alkstore.worker.children import ChildHand, Crew

        handlers = {queue: route.handler for queue, route in self._routes.items()}
        crew = Crew(self._store, handlers, self._board, self._release, self._stopping)
        return [ChildHand(crew) for _ in range(places)]

    # --- beginning and ending ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Have it stop; also from a signal's handler."""
        self._asked = True
        self._notice()

    @property
    def wake(self) -> int:
        """What may be written to in order to have ``run`` look around; it doesn't block."""
        return self._outbox.fileno()

    def close(self) -> None:
        """Close what nobody writes to any more."""
        self._outbox.close()
        self._inbox.close()

    def kill(self) -> None:
        """End the processes that run handlers, from a signal's handler: this one is about to end."""
        for hand in self._hands:
            hand.kill()

    def _notice(self) -> None:
        try:
            self._outbox.send(b"!")
        except OSError:  # full, so that there is news in any case; or over
            return

    def _spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as exc:  # noqa: BLE001 - a thread has nobody to raise to: ``run`` raises it
                self._failure = self._failure or exc
                self.stop()

        return threading.Thread(target=guarded, name=f"alkstore-{name}", daemon=True)

    def run(self, poll: float, sweep: float, grace: float, *, until_idle: bool) -> Summary:
        """Start all, wait for the end, and end all."""
        fetchers = [
            Fetcher(
                self._store, self._store.queue(name), self._worker_id, self._board, poll, self._stopping,
                self._claimed, self._notice, self._spawn, until_idle=until_idle,
            )
            for name in self._routes
        ]  # fmt: skip
        sweeper = Sweeper(self._apart, self._routes, sweep, self._spawn)
        runners = [self._spawn("runner", partial(self._work, hand)) for hand in self._hands]
        _LOG.info(
            "worker %s begins: %d at a time, queues %s", self._worker_id, len(self._hands), ", ".join(self._routes)
        )
        try:
            for part in (self._completer, self._cutter, self._heartbeats, sweeper, *runners):
                part.start()
            self._await(lambda: self._manned)
            for fetcher in fetchers:
                fetcher.start()
            self._await(lambda: until_idle and self._board.is_idle())
        finally:
            self._end(fetchers, sweeper, runners, grace)
        match self._failure:
            case None:
                return Summary(**self._counts)
            case StoreClosedError() | NoHandError():
                raise self._failure
            case _:
                raise RuntimeError("a thread of the worker failed, and so it has stopped") from self._failure

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds, looked at whenever there is news, or the worker is to stop."""
        while not self._asked and not condition():
            select.select([self._inbox], [], [])
            self._inbox.recv(4096)

    def _end(self, fetchers: list[Fetcher], sweeper: Sweeper, runners: list[threading.Thread], grace: float) -> None:
        board = self._board
        self._stopping.set()
        for hand in self._hands:
            hand.stopping()
        for job in board.close():
            self._release(job)
        for fetcher in fetchers:
            fetcher.rouse()
        board.wait_until(board.none_held, grace)
        board.wait_until(board.none_reserved, _CLAIM_ENDS)
        why = "the worker was stopped before the handler had finished"
        ending = [runner for runner, hand in zip(runners, self._hands, strict=True) if hand.interrupt(why)]
        deadline = time.monotonic() + _LAST_WORDS
        for runner in ending:
            await_end(runner, max(deadline - time.monotonic(), 0.0))
        for job in board.held():
            if job.begin():  # of a claim that has come back just now: no handler will begin it
                self._release(job)
            else:
                self._cut(job, why)
        deadline = time.monotonic() + _LAST_WORDS
        for completer in (self._completer, self._cutter):
            completer.end(max(deadline - time.monotonic(), 0.0))
        self._heartbeats.end()
        sweeper.end()
        for fetcher in fetchers:
            fetcher.end(0.1)
        for store in (self._apart, self._beating):
            if store is not self._store:
                store.close()
        _LOG.info("worker %s has stopped", self._worker_id)

    # --- one job -------------------------------------------------------------------------------------------------

    def _claimed(self, jobs: list[RunningJob], begun: bool) -> None:
        for job in jobs:
            self._say(logging.DEBUG, "%s claimed", job)
        if begun:
            self._heartbeats.taken(jobs)
            return
        for job in jobs:
            self._release(job)

    def _work(self, hand: Hand) -> None:
        try:
            while hand.ready():
                if not self._manned:
                    self._manned = True
                    self._notice()
                job = self._board.take()
                if job is None:
                    return
                self._do(job, hand)
        finally:
            hand.close()

    def _do(self, job: RunningJob, hand: Hand) -> None:
        route = self._routes[job.queue]
        begun = time.monotonic()
        completion = self._handle(job, route, hand)
        self._heartbeats.forget(job)
        self._board.ran(time.monotonic() - begun)
        if job.conclude():
            if completion is None:
                self._board.settled([job])
            else:
                self._completer.add(completion)

    def _watch(self, job: RunningJob, seconds: float, hand: Hand) -> None:
        why = f"TimeoutError: the handler ran for more than {seconds:g} s"

        def expired() -> None:
            # What can be ended comes back, and says why: only then the job is anybody else's.
            if not hand.interrupt(why, job):
                self._cut(job, why)

        self._heartbeats.watch(job, seconds, expired)

    def _handle(self, job: RunningJob, route: _Route, hand: Hand) -> Completion | None:
        """Run the handler, and return what is to become of the job; ``None`` where the handler has seen to that."""
        error: BaseException | None = None
        returned: object = None
        handler = route.handler
        try:
            limit = route.limit(job)
            if limit is not None:
                self._watch(job, limit, hand)
            returned = hand.run(job, handler) if self._hooks is None else self._hooks.run(job, handler, hand)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, sys.exit() included: the attempt failed, and the worker lives
            error = exc
        try:
            leave_nothing_open(self._store)
        except BaseException as exc:  # noqa: BLE001 - whatever the rollback raises, the worker lives
            error = error or exc
        if job.handle.claim.is_settled:
            if error is not None:
                self._say(logging.WARNING, "%s was settled, and then its handler failed", job, error=error)
            self._count("succeeded")
            return None
        try:
            return self._judge(job, returned, error)
        except BaseException as exc:  # noqa: BLE001 - of a class of the application's, which may lack what it should have
            return Completion(job, Verdict.RETRY, text_of(exc))

    def _judge(self, job: RunningJob, returned: object, error: BaseException | None) -> Completion:
        match error:
            case None:
                return self._succeed(job, returned)
            case Retry():
                return Completion(job, Verdict.RETRY, error_text(error.reason), error.delay)
            case Fail():
                return Completion(job, Verdict.FAIL, error_text(error.reason))
            case Unhandled():
                return self._refuse(job, error)
            case _:
                self._say(logging.DEBUG, "%s failed", job, error=error)
                return Completion(job, Verdict.RETRY, text_of(error))

    def _succeed(self, job: RunningJob, returned: object) -> Completion:
        if not job.keeps_result:
            return Completion(job, Verdict.ACK)
        if isinstance(returned, Encoded):
            return Completion(job, Verdict.ACK, result=returned.data)
        try:
            return Completion(job, Verdict.ACK, result=encode_result(self._store, returned))
        except PayloadError as exc:
            return Completion(job, Verdict.RETRY, text_of(exc))

    def _refuse(self, job: RunningJob, why: Unhandled) -> Completion:
        with self._counting:
            if len(self._unhandled) >= _UNHANDLED_KNOWN:
                self._unhandled.clear()
            times = self._unhandled[job.id] = self._unhandled.get(job.id, 0) + 1
        delay = min(_UNHANDLED_LONGEST, _UNHANDLED_FIRST * 2.0 ** min(times - 1, 20))
        self._say(logging.WARNING, "%s is released for %g s, as no handler here knows it: %s", job, delay, why)
        return Completion(job, Verdict.RELEASE, delay=round(delay * SECOND))

    # --- what becomes of it --------------------------------------------------------------------------------------

    def _release(self, job: RunningJob) -> None:
        if job.conclude():
            self._completer.add(Completion(job, Verdict.RELEASE))

    def _cut(self, job: RunningJob, why: str) -> None:
        if job.conclude(lost=True):
            self._say(logging.WARNING, "%s: %s", job, why)
            self._cutter.add(Completion(job, Verdict.RETRY, why))

    def _lost(self, job: RunningJob) -> None:
        job.lose()
        if job.conclude():
            # Not told here: hooks may take their time, and heartbeats may not.
            self._cutter.add(Completion(job, Verdict.NONE))

    def _settled(self, completion: Completion, through: bool) -> None:
        job, verdict, hooks = completion.job, completion.verdict, self._hooks
        claim = job.handle.claim
        if not through:
            job.lose()
            self._count("lost")
            lost = "%s is lost, and was not %s: its claim lapsed or was ended elsewhere"
            self._say(logging.WARNING, lost, job, verdict.value)
            if hooks is not None:
                hooks.lost(claim)
        elif verdict is Verdict.ACK:
            self._count("succeeded")
            with self._counting:
                self._unhandled.pop(job.id, None)
            self._say(logging.DEBUG, "%s succeeded", job)
            if hooks is not None:
                hooks.succeeded(claim)
        elif verdict is Verdict.RELEASE:
            self._count("released")
            self._say(logging.DEBUG, "%s was released", job)
        elif verdict is Verdict.FAIL or job.spent:
            self._count("died")
            self._say(logging.ERROR, "%s is dead: %s", job, completion.error)
            if hooks is not None:
                reason = FAILED if verdict is Verdict.FAIL else EXHAUSTED
                hooks.died(claim, reason if completion.error is None else completion.error)
        else:
            self._count("retried")
            self._say(logging.WARNING, "%s will be tried again: %s", job, completion.error)
            if hooks is not None:
                hooks.retried(claim, completion.error, completion.delay or 0)

    def _say(self, level: int, text: str, job: RunningJob, *more: object, error: BaseException | None = None) -> None:
        say(level, text, job, self._worker_id, *more, error=error)

    def _count(self, what: str) -> None:
        with self._counting:
            self._counts[what] += 1
