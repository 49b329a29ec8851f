"""The processes in which a worker runs its handlers, from the worker's side: one for each runner thread, one job at a time.

Everything that touches a claim stays with the worker. So a handler that keeps the interpreter busy starves no heartbeats, one that
brings its process down has failed an attempt and no more, and one that takes too long can be ended: the process is killed, and
another takes its place.

A process is a fresh interpreter, never a fork of this one, which has threads. It leads a process group of its own: what is sent to
the worker's, Ctrl-C in a terminal for one, isn't sent to it, and what its handler has started is killed along with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

from alkstore.backoff import pause
from alkstore.clock import Micros, to_timedelta
from alkstore.store import Store
from alkstore.texts import FAILED
from alkstore.worker import handing, messages
from alkstore.worker.board import Board
from alkstore.worker.control import Fail, Retry, Unhandled
from alkstore.worker.hands import Encoded, Handler, NoHandError, ReportedError
from alkstore.worker.job import RunningJob
from alkstore.worker.process import Process

_LOG: Final = logging.getLogger("alkstore.worker")

_TRIES: Final = 3
"""Processes that a job may be given to which die before its handler begins."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to start a process, at most."""


class Crew:
    """What the processes of one run have in common."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        board: Board,
        release: Callable[[RunningJob], None],
        over: threading.Event,
    ) -> None:
        """Prepare; raise ``ValidationError``, naming the queue, for a handler that other processes can't import.

        ``over`` is set when the worker stops: no process is started any more.
        """
        surroundings = handing.Surroundings.here()
        self.path = messages.encode(surroundings.path)
        self.brief = messages.encode(
            messages.Brief(surroundings, handing.refer(handlers, surroundings), handing.recipe_of(store))
        )
        self.hooks = store.hooks
        self.board = board
        self.release = release
        self.over = over
        # The first is tried alone: of an import that fails, one traceback is enough.
        self.first = threading.Lock()
        self.proved = False
        self.failed = False


class _NotBegunError(Exception):
    """The process died, and the handler hadn't begun."""


class ChildHand:
    """Runs handlers for one runner thread, in a process."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        # Guards what follows, and that only a process which isn't reaped is killed.
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._starting: Process | None = None
        self._job: RunningJob | None = None
        self._why: str | None = None
        self._begun = False
        """Whether the process has said that the handler begins; the runner thread's own."""
        self._last_why: str | None = None
        """Why nothing is run any more, once that is so."""

    # --- starting ------------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Have a process; ``False`` where the worker stops first.

        Raises ``NoHandError`` where the worker's first can't be started. Later failures are waited out, with growing pauses
        and one place less for jobs.
        """
        crew, failures = self._crew, 0
        while self._process is None and not crew.over.is_set():
            try:
                self._start()
            except NoHandError as exc:
                if not crew.proved:
                    raise
                if not failures:
                    for job in crew.board.lose_place():
                        crew.release(job)
                seconds = pause(_FIRST_PAUSE, _LONGEST_PAUSE, failures)
                failures += 1
                _LOG.warning("%s; tried again in %.1f s", exc, seconds)
                crew.over.wait(seconds)
        if failures:
            crew.board.gain_place()
        return self._process is not None

    def _start(self) -> None:
        crew = self._crew
        if not crew.proved:
            with crew.first:
                if crew.failed:
                    crew.over.wait()  # the worker is about to stop because of it
                    return
                if not crew.proved:
                    try:
                        self._boot()
                    except NoHandError:
                        crew.failed = True
                        raise
                    crew.proved = self._process is not None
                    return
        self._boot()

    def _boot(self) -> None:
        """Start a process, and wait until it has its handlers."""
        try:
            process = Process()
        except OSError as exc:
            raise NoHandError(f"a process for handlers can't be started: {exc}") from exc
        with self._lock:
            self._starting = process
            if self._crew.over.is_set():
                process.kill()
        said: messages.Said | None = None
        try:
            process.send(self._crew.path)
            process.send(self._crew.brief)
            said = process.receive()
        except (OSError, EOFError):
            pass
        with self._lock:
            self._starting = None
            if isinstance(said, messages.Ready):
                self._process = process
                return
            process.kill()
        how = process.reap()
        if self._crew.over.is_set():
            return
        if isinstance(said, messages.Failed):
            error = NoHandError(f"a process for handlers can't find them: {said.text}")
            error.add_note(said.trace)
            raise error
        raise NoHandError(f"a process for handlers {how} before it had found them")

    # --- one job -------------------------------------------------------------------------------------------------

    def run(self, job: RunningJob, handler: Handler) -> object:  # noqa: ARG002 - the process has it by the job's queue
        """Have the process run it, and wait for what becomes of it."""
        with self._lock:
            self._job, self._why = job, self._last_why
        job.follow(partial(self._pass_on, job))
        hooks = self._crew.hooks
        deputies = [] if hooks is None else hooks.deputies(job)
        try:
            for _ in range(_TRIES):
                with suppress(_NotBegunError):
                    return self._answer(job, self._ask(job, deputies))
        finally:
            job.follow(None)
            job.go_away(False)
            with self._lock:
                self._job = None
        raise ReportedError("the handler's process ended, again and again, before the handler had begun")

    def _ask(self, job: RunningJob, deputies: list[bytes]) -> messages.Outcome:
        if self._why is not None:
            raise ReportedError(self._why)
        if not self.ready():
            raise ReportedError("the worker was stopped before a process for the handler was there")
        process, self._begun = self._process, False
        deadline = job.handle.claim.deadline
        assert process is not None  # noqa: S101 - it is ready
        try:
            process.send(messages.encode(messages.Errand(job.row, deadline, deputies)))
            while True:
                said = process.receive()
                if isinstance(said, messages.Outcome) and said.token == job.handle.token:
                    return said
                self._heed(said, job, deadline)
        except (OSError, EOFError):
            how = self._bury()
        if self._why is not None:
            raise ReportedError(self._why)
        if not self._begun:
            raise _NotBegunError
        raise ReportedError(f"the handler's process {how}")

    def _heed(self, said: messages.Said, job: RunningJob, deadline: Micros | None) -> None:
        """See to what the process says meanwhile."""
        claim, hooks = job.handle.claim, self._crew.hooks
        match said:
            case messages.Told(event):
                if hooks is not None:
                    hooks.relayed(event, claim)
            case messages.Begun(of) if of == claim.token:
                self._begun = True
                # What it heard before it had the job was of no job of its own.
                if job.lost or claim.deadline != deadline:
                    self._pass_on(job)
            case messages.Inside(of, inside) if of == claim.token:
                job.go_away(inside)
            case messages.Settled(of) if of == claim.token:
                claim.settle(None)
            case _:  # of a job before, by a thread that its handler has left behind
                pass

    def _bury(self) -> str:
        """Take leave of a process that has died, or has closed its pipe, and say how it ended."""
        with self._lock:
            process, self._process = self._process, None
            assert process is not None  # noqa: S101 - only this thread takes it away
            process.kill()
        return process.reap()

    def _answer(self, job: RunningJob, outcome: messages.Outcome) -> object:
        """Do here what the handler did there: return, or raise."""
        if outcome.settled:
            job.handle.claim.settle(None)
        if outcome.raised is not None:
            self._raise(outcome)
        return None if outcome.result is None else Encoded(outcome.result)

    def _raise(self, outcome: messages.Outcome) -> NoReturn:
        error: Exception
        match outcome.raised:
            case "Retry":
                error = Retry(None if outcome.delay is None else to_timedelta(outcome.delay), outcome.text)
            case "Fail":
                error = Fail(outcome.text)
            case "Unhandled":
                error = Unhandled(outcome.text or "")
            case _:
                error = ReportedError(outcome.text or FAILED, outcome.kind)
        if outcome.trace:
            error.add_note(outcome.trace)
        raise error

    # --- from other threads --------------------------------------------------------------------------------------

    def _pass_on(self, job: RunningJob) -> None:
        """Tell the process how its job's claim stands."""
        claim = job.handle.claim
        with self._lock:
            if self._job is job and self._process is not None:
                over = self._crew.over.is_set()
                self._process.tell(messages.News(over, job.lost, claim.token, claim.deadline or 0))

    def interrupt(self, why: str, only: RunningJob | None = None) -> bool:
        """Kill the process, if it has a job, and this one: ``run`` raises with the reason, once it is dead."""
        with self._lock:
            job, process = self._job, self._process or self._starting
            if only is None:
                self._last_why = why
            if job is not None and (only is None or only is job):
                self._why = why
                if process is not None:
                    process.kill()
        return True

    def stopping(self) -> None:
        """Tell what runs, and end what isn't ready yet."""
        with self._lock:
            if self._starting is not None:
                self._starting.kill()
            if self._process is not None:
                self._process.tell(messages.News(True, False, 0, 0))

    def kill(self) -> None:
        """Kill the process, whatever it does."""
        # Where the lock is taken, perhaps by what this signal interrupted, the process ends by itself: its worker is gone.
        if self._lock.acquire(blocking=False):
            try:
                for process in (self._process, self._starting):
                    if process is not None:
                        process.kill()
            finally:
                self._lock.release()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()
