"""In a process of a worker's: run handlers, one at a time, and say what became of each (see ``children`` for the other side).

The process touches no claim by itself: it runs what it is given, and its worker extends and settles. It opens a store of its own
when a handler first asks for one.

It lives no longer than its worker. A thread reads what the worker has to say meanwhile, and the end of that pipe is the worker's
end. Where a handler doesn't let go of the interpreter, no thread comes to reading: so Linux is asked to kill the process, with
whatever it has started, when the worker's end of another pipe is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

from alkstore.codec import Codec, Codecs
from alkstore.engine import Engine
from alkstore.errors import AlkstoreError, NotSupportedError, PayloadError, ValidationError
from alkstore.handle import Claim, JobHandle
from alkstore.records import Job
from alkstore.results import encode_returned
from alkstore.session import Session
from alkstore.store import Store
from alkstore.telling import Telling
from alkstore.texts import class_name, error_text
from alkstore.worker import handing, messages
from alkstore.worker.control import Fail, Retry, Unhandled
from alkstore.worker.hands import Handler, end_fork, leave_nothing_open
from alkstore.worker.job import RunningJob
from alkstore.worker.relaying import Relay, relaying
from alkstore.worker.signals import STOPPING, in_force

if TYPE_CHECKING:
    from alkstore.transaction import Transaction

_TRACE: Final = 10_000
"""Characters of a traceback that are told."""


class _Missing:
    """A codec that couldn't come along: the error says so where it is needed."""

    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    @property
    def name(self) -> str:
        return self._name

    def encode(self, payload: object) -> bytes:  # noqa: ARG002 - as codecs are
        raise PayloadError(self._why)

    def decode(self, data: bytes) -> object:  # noqa: ARG002 - as codecs are
        raise PayloadError(self._why)


class _Home:
    """Where the claims belong here: a store that is opened when it is first asked for."""

    def __init__(self, recipe: handing.Recipe, hooks: Telling | None) -> None:
        self._recipe = recipe
        self._hooks = hooks
        self._opening = threading.Lock()
        self._store: Store | None = None
        self.max_result = recipe.max_result
        self.codecs = Codecs([_codec(name, piece) for name, piece in recipe.codecs], recipe.max_payload)

    @property
    def store(self) -> Store:
        """The store; ``ValidationError`` where something of it couldn't come along."""
        with self._opening:
            if self._store is None:
                recipe = self._recipe
                reopen = cast("Callable[[str], Engine] | None", handing.unpack(recipe.reopen, "the store's options"))
                if reopen is None:
                    raise NotSupportedError("the worker's store can't be opened by another process")
                clock = cast("Callable[[], Any] | None", handing.unpack(recipe.clock, "the store's clock="))
                self._store = Store(
                    reopen(recipe.url),
                    clock=clock,
                    codecs=self.codecs,
                    max_payload=recipe.max_payload,
                    max_result=recipe.max_result,
                    reopen=reopen,
                    hooks=self._hooks,
                )
            return self._store

    def now(self) -> Session:
        """Return the store's own session."""
        return self.store.auto_session

    def leave_nothing_open(self) -> None:
        """Roll back what a handler has left open, and raise ``TransactionError``."""
        if self._store is not None:
            leave_nothing_open(self._store)

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._store is not None:
            self._store.close()


def _codec(name: str, piece: handing.Piece) -> Codec:
    try:
        return cast(Codec, handing.unpack(piece, f"the codec {name!r}"))
    except ValidationError as exc:
        return _Missing(name, str(exc))


class _Handle(JobHandle):
    """A claim of the worker's, as it is here: its worker is told when its row is locked by a transaction."""

    __slots__ = ("_codecs", "_say")

    def __init__(self, home: _Home, claim: Claim, say: messages.Say) -> None:
        super().__init__(home, claim)
        self._codecs = home.codecs
        self._say = say

    @property
    def payload(self) -> Any:
        """The decoded payload; no store is opened for it."""
        row = self._row()
        return self._codecs.decode(row.codec, row.payload)

    @property
    def job(self) -> Job:
        """The record as claimed; no store is opened for it."""
        return Job.from_row(self._row(), self._codecs.decode)

    def begin_inside(self) -> Transaction:
        """Tell first: the worker must not take a row that can't be extended for one that is lost."""
        self._say(messages.Inside(self.token, inside=True))
        try:
            return super().begin_inside()
        except BaseException:
            self._say(messages.Inside(self.token, inside=False))
            raise

    def leave_inside(self) -> None:
        """Tell that it is over; or that it is all over, and nothing to be extended any more."""
        super().leave_inside()
        settled = _is_settled(self.claim)
        self._say(messages.Settled(self.token) if settled else messages.Inside(self.token, inside=False))


def _is_settled(claim: Claim) -> bool:
    try:
        return claim.is_settled
    except AlkstoreError:  # the database has to be asked, and can't be: what the worker does by the token will show it
        return False


class _Child:
    """The process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._job: RunningJob | None = None
        self._latest: messages.News | None = None
        self._pid = os.getpid()
        self._relay: Relay | None = None

    # --- what the worker says ------------------------------------------------------------------------------------

    def listen(self, news: int) -> None:
        """Heed what comes, until the worker is gone; and then go, too."""
        while data := os.read(news, messages.NEWS_BYTES):
            self._hear(messages.News.decode(data))
        os.killpg(0, signal.SIGKILL)

    def _hear(self, news: messages.News) -> None:
        if news.stopping:
            self._stopping.set()
        with self._lock:
            self._latest = news
            self._heed()

    def _heed(self) -> None:
        """With the lock held: apply the latest news to the job, where they are of it."""
        job, news = self._job, self._latest
        if job is None or news is None or news.token != job.handle.token:
            return
        if news.lost:
            job.lose()
        if news.deadline:
            job.extended(news.deadline)

    # --- what it says --------------------------------------------------------------------------------------------

    def say(self, message: messages.Said) -> None:
        """Say it, from any thread."""
        data = messages.encode(message)
        with self._sending, contextlib.suppress(OSError):  # the worker is gone: so will be this
            self._connection.send_bytes(data)

    # --- what it does --------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Find the handlers, and run them on what comes, until there is no more."""
        brief: messages.Brief = messages.decode(self._connection.recv_bytes())
        try:
            handing.settle_in(brief.surroundings)
            handlers = {queue: handing.find_handler(data) for queue, data in brief.handlers.items()}
            home = self._home(brief.recipe)
        except BaseException as exc:  # noqa: BLE001 - whatever an import raises, sys.exit() included, is the worker's to report
            self.say(messages.Failed(_text(exc), _trace(exc)))
            return
        self.say(messages.Ready())
        while (errand := self._next()) is not None:
            self._run(errand, handlers[errand.row.queue], home)
        home.close()

    def _home(self, recipe: handing.Recipe) -> _Home:
        if not recipe.hooked:
            return _Home(recipe, None)
        self._relay, hooks = relaying(self.say)
        return _Home(recipe, hooks)

    def _next(self) -> messages.Errand | None:
        try:
            return messages.decode(self._connection.recv_bytes())
        except (EOFError, OSError):
            return None

    def _run(self, errand: messages.Errand, handler: Handler, home: _Home) -> None:
        row = errand.row
        token = row.token
        assert token is not None  # noqa: S101 - it was claimed
        claim = Claim(row.queue, row.id, token, row)
        if errand.deadline is not None:
            claim.extended(errand.deadline, None)
        job = RunningJob(_Handle(home, claim, self.say), row, self._stopping, time.monotonic())
        with self._lock:
            self._job = job
            self._heed()
        self.say(messages.Begun(token))
        error: BaseException | None = None
        result: bytes | None = None
        try:
            returned = handler(job) if self._relay is None else self._relay.run(job, handler, errand.deputies)
            if job.keeps_result and not _is_settled(claim):
                result = encode_returned(home.codecs, returned, home.max_result)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, sys.exit() included: the attempt failed, and the process lives
            error = exc
        if os.getpid() != self._pid:
            end_fork(error)
        try:
            home.leave_nothing_open()
        except BaseException as exc:  # noqa: BLE001 - whatever the rollback raises, the process lives
            error = error or exc
        with self._lock:
            self._job = None
        _flush()
        self.say(_outcome(token, error, settled=_is_settled(claim))._replace(result=result))


def _outcome(token: int, error: BaseException | None, *, settled: bool) -> messages.Outcome:
    if error is None:
        return messages.Outcome(token, settled)
    raised, text, delay = "other", None, None
    try:
        match error:
            case Retry():
                raised, text = "Retry", error_text(error.reason)
                delay = None if error.delay is None else int(error.delay)
            case Fail():
                raised, text = "Fail", error_text(error.reason)
            case Unhandled():
                raised, text = "Unhandled", error_text(str(error))
            case _:
                text = _text(error)
    except BaseException as exc:  # noqa: BLE001 - of a class of the application's, which may raise anything
        raised, text = "other", _text(exc)
    return messages.Outcome(token, settled, raised, text, delay, class_name(error), _trace(error))


def _text(error: BaseException) -> str:
    try:
        return error_text(error) or type(error).__name__
    except BaseException as exc:  # noqa: BLE001 - the application's own __str__, which may raise even SystemExit
        return f"{type(error).__name__}: (unprintable: {type(exc).__name__})"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))[-_TRACE:]


def _flush() -> None:
    """Let nothing that the handler has printed be lost, should the process be killed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, broken, or none at all
            stream.flush()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    pass


def _heed_no_signals() -> None:
    # By a handler that does nothing, and not by ignoring them: that, programs which a handler starts would inherit. They
    # were blocked from the beginning.
    for number in STOPPING:
        signal.signal(number, _do_nothing)
    in_force.append(_heed_signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def _heed_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _die_with_the_worker(life: int) -> None:
    """Where that can be had, have the system kill this process and what it has started when the other end is closed."""
    wanted: int | None = getattr(fcntl, "F_SETSIG", None)
    if wanted is not None:
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, wanted, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def _keep_to_this_process(connection: Connection, pipes: list[int]) -> None:
    """Let nothing that a handler starts or forks keep the pipes open: their ends say who has died."""
    for each in (connection.fileno(), *pipes):
        os.set_inheritable(each, False)

    def forked() -> None:
        connection.close()
        while pipes:  # a fork's own forks find none left: their numbers may be other files by then
            os.close(pipes.pop())

    os.register_at_fork(after_in_child=forked)


def main(connection: Connection, news: int, life: int) -> None:
    """Work for the worker at the other end of the pipes."""
    _heed_no_signals()
    _die_with_the_worker(life)
    _keep_to_this_process(connection, [news, life])
    child = _Child(connection)
    threading.Thread(target=child.listen, args=(news,), name="alkstore-news", daemon=True).start()
    child.work()
