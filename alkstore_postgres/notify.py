"""Hearing of other sessions' commits by LISTEN, and telling of one's own by NOTIFY (clauses W-1 to W-4, Z-14).

**One session listens for the whole store**, in auto-commit mode, on a thread of its own: it holds no transaction and no
snapshot open between its statements. It starts with the first who waits or listens, and ends a while after the last.

**Channels.** The server cuts names at 63 bytes, and the schemas of one database share their channels. So a channel of the
server is made of a hash of schema and name; queues' wakes have one of their own for all queues. The server merges equal
notifications of one transaction, so each payload begins with a number that is different from the last.

**Nobody who waits for jobs waits for the session.** It may be long in coming: he looks, and polls meanwhile. As soon as it
listens he is told to look once more, so that nothing is missed that was committed in between. Who listens to notifications
does wait for it: he is to get all that comes after that.

**What is lost, and said.** The server keeps nothing for a session that has gone. When the session is made anew, each listener
gets a gap, and all who wait for jobs look. Whether it is still there is asked now and then, as a peer that went
away without a word says nothing.

**Deaf sessions.** Whether anything arrives on a session has to be proved (see ``proving``). Where it doesn't, the store says so,
and polls; where it does after all, each listener gets a gap, and all who wait look. ``listen_url`` is a way around the pooler.

**NOTIFY takes a lock of the whole database** from its commit's beginning to its end. So wakes are not part of the transaction
that enqueues: they are sent afterwards, all in one statement of its own, some two hundred times a second at most.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final, Literal

import psycopg

from alkstore.backoff import pause
from alkstore.engine import Heard, Subscription
from alkstore.errors import AlkstoreError, EngineUnavailableError, NotSupportedError, StoreClosedError
from alkstore.helper import Helper, Register, start
from alkstore.monitor import Monitor
from alkstore.records import GAP, Notification
from alkstore_postgres import fork, sql
from alkstore_postgres.channels import Channels
from alkstore_postgres.hearing import HearingSession
from alkstore_postgres.pool import Connection, Pool
from alkstore_postgres.proving import PREFIX
from alkstore_postgres.ringing import Ringer
from alkstore_postgres.runner import AutoRunner
from alkstore_postgres.subscribing import QueuedSubscription

_LOG: Final = logging.getLogger("alkstore")

_LINGER: Final = 5.0
"""Seconds that the session goes on once nobody needs it: whoever waits again and again finds it there."""

_PROBE_EVERY: Final = 10.0
"""Seconds of silence after which the session is asked whether it is there."""

_ENDED_WITHIN: Final = 0.25
"""Seconds that ``close`` gives the thread to end the session well; as a rule it takes a few milliseconds."""

_BACKOFF: Final = (0.05, 1.0)
"""Seconds before a second attempt at a session, and at most before any; jittered."""

_ECHO_LINGER: Final = 1.0
"""Seconds that the thread stays which sends echoes."""

_POLLS: Final = "the store was opened with wakes='poll', or with pooler='transaction' and no listen_url"

_DEAF: Final = (
    "notifications don't arrive on a session of their own (a pooler that lends sessions by the transaction?): waiting is "
    "by polling, and listening can't be had; give a URL that goes around the pooler as listen_url"
)


class Ear:
    """The session that listens, its thread, and who is told of what it hears."""

    def __init__(self, pool: Pool, statements: sql.Statements) -> None:
        """Take the pool, whose location says where to listen, or not to."""
        self._pool = pool
        self._statements = statements
        self._channels: Final[Channels] = statements.channels
        self._polls = pool.location.polls
        self._ringer = Ringer(pool)
        self._bell = AutoRunner(self._ringer, statements)
        self._inherited: list[Connection] = []
        self._begin()
        fork.survive(self)

    def _begin(self) -> None:
        self._changed = Monitor()
        self._heard: Heard | None = None
        self._attending: Register[object] = Register()
        # Those that nobody has any more, be they closed or not, are gone from here by themselves.
        self._subscriptions: Register[QueuedSubscription] = Register()
        self._thread: threading.Thread | None = None
        self._session: HearingSession | None = None
        """The thread's, and ``None`` as soon as it has decided to end."""
        self._open: dict[HearingSession, None] = {}
        """All that aren't closed yet. A dict: it is copied in one step."""
        self._failure: AlkstoreError | None = None
        self._failures = 0
        """How often a session could not be made or proved, or was lost."""
        self._said_deaf = False
        self._echoes = Helper("alkstore-echo", self._echo, lambda: False, _ECHO_LINGER)
        self._closed = False

    # --- alkstore.engine.Notifying -------------------------------------------------------------------------------

    def ring(self, rings: Mapping[str, int], *, notified: bool) -> None:  # noqa: ARG002 - the server tells listeners
        """Tell the waiters of other stores, in one statement."""
        if not rings or self._pool.location.silent:
            return
        payloads = [self._channels.wake(_me(self), queue, count) for queue, count in rings.items()]
        # By what is run again where the connection is cut: a wake that comes twice does no harm.
        self._bell.read(sql.RING, {"channel": self._channels.wakes, "payloads": payloads})

    def attend(self, heard: Heard, who: object) -> None:
        """Hear of others' commits as soon as that can be had, and poll until then; returns at once."""
        if self._polls:
            return
        with self._changed:
            self._heard = heard
            self._attending.add(who)
            if not self._closed and not self._has_thread():
                try:
                    self._start()
                except RuntimeError as exc:  # there can be no more, for now: the next who comes tries again
                    self._failure = self._without_thread(exc)
            session = self._session
            if session is not None and self._channels.wakes not in session.listened:
                session.knock()

    def leave(self, who: object) -> None:
        """End what ``attend`` began."""
        with self._changed:
            self._attending.discard(who)

    def listen(self, channels: frozenset[str]) -> Subscription:
        """Return a subscription, once the server listens for it."""
        if self._polls:
            raise NotSupportedError(f"{_POLLS}: so it can't listen")
        subscription = QueuedSubscription(self.forget, {self._channels.of(name): name for name in channels})
        with self._changed:
            self._subscriptions.add(subscription)
        try:
            failure = self._await(set(subscription.channels))
            if failure is not None:
                raise failure
        except BaseException:
            self.forget(subscription)
            raise
        return subscription

    def forget(self, subscription: QueuedSubscription) -> None:
        """Tell a subscription of nothing any more."""
        with self._changed:
            self._subscriptions.discard(subscription)
        self._rouse()

    @property
    def wakes(self) -> tuple[Literal["notify", "poll"], str | None]:
        """Whether others' commits are heard of at once, as far as is known now; and why not."""
        if self._polls:
            return "poll", _POLLS
        with self._changed:
            session = self._session
            if (
                session is not None
                and session.proof.heard
                and (self._channels.wakes in session.listened or not self._attending)
            ):
                return "notify", None
            if self._failure is not None:
                return "poll", str(self._failure)
            if self._attending or self._subscriptions or self._has_thread():
                return "poll", "the session that listens is still being made"
            return "notify", None

    # --- what others ask of the thread -----------------------------------------------------------------------------

    def _await(self, channels: set[str]) -> AlkstoreError | None:
        """Have the thread listen to the channels, and wait until it does; return why it can't."""
        with self._changed:
            if self._closed:
                return StoreClosedError("the store is closed")
            if not self._has_thread():
                try:
                    self._start()
                except RuntimeError as exc:  # as above
                    return self._without_thread(exc)
            before = self._failures
        self._rouse()
        with self._changed:
            self._changed.wait_for(
                lambda: self._hears(channels) or self._failures > before or self._is_deaf() or self._closed
                or not self._has_thread(),
                self._pool.patience,
            )  # fmt: skip
            if self._is_deaf():
                return NotSupportedError(_DEAF)
            if self._hears(channels):
                return None
            if self._closed:
                return StoreClosedError("the store is closed")
            return self._failure or EngineUnavailableError(f"{self._pool.location.where}: no session to listen on")

    def _has_thread(self) -> bool:
        """Say whether there is a thread; one that died of whatever, or never began, is none."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def _start(self) -> None:
        """With the lock held: start the thread; raise ``RuntimeError`` where there can be none."""
        if sys.is_finalizing():  # it might begin and never run, and ``start`` would wait for it
            raise RuntimeError("the interpreter is ending")
        thread = threading.Thread(target=self._work, name="alkstore-ear", daemon=True)
        started = False
        try:
            self._failure = None
            self._thread = thread  # it looks whether it is the one, and ends where it isn't
            start(thread)
            started = True
        finally:
            # A handler may raise at any step of this. Whether the thread runs by then isn't known.
            if not started and self._thread is thread:
                self._thread = None

    def _without_thread(self, exc: RuntimeError) -> EngineUnavailableError:
        return EngineUnavailableError(f"{self._pool.location.where}: no thread to listen on: {exc}")

    def _hears(self, channels: set[str]) -> bool:
        session = self._session
        return session is not None and session.proof.heard and channels <= session.listened

    def _is_deaf(self) -> bool:
        return self._session is not None and self._session.proof.deaf

    def _wanted(self) -> set[str]:
        """With the lock held: the server's channels that are to be listened to."""
        wanted = {channel for subscription in self._subscriptions.living() for channel in subscription.channels}
        if self._attending or not wanted:
            wanted.add(self._channels.wakes)
        return wanted

    def _rouse(self) -> None:
        with self._changed:  # with the lock held, as it is closed so
            if self._session is not None:
                self._session.knock()

    # --- the thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        me = threading.current_thread()
        first, failures = True, 0
        try:
            while self._goes_on(me):
                session: HearingSession | None = None
                try:
                    session = self._connect(me)
                    if session is None:
                        continue
                    self._serve(session, me, first=first)
                    return
                except (psycopg.Error, AlkstoreError, OSError) as exc:
                    # Of a session that listened, the loss is a new outage.
                    failures = self._failed(exc, 0 if session is not None and session.serves else failures)
                    first = False
                finally:
                    if session is not None:
                        self._drop(session)
                self._pause(me, failures)
        finally:
            with self._changed:
                if self._thread is me:  # by an error that nobody thought of: rather told than waited for in vain
                    for subscription in self._subscriptions.living():
                        subscription.fail(EngineUnavailableError("the thread that listens has ended by an error"))
                    self._part()

    def _goes_on(self, me: threading.Thread, idle_since: float | None = None) -> bool:
        """Say whether to go on; decided with the lock held, so that whoever comes just now starts another thread."""
        with self._changed:
            if self._thread is not me:
                return False
            needed = bool(self._attending or self._subscriptions)
            if not self._closed and (needed or (idle_since is not None and time.monotonic() < idle_since + _LINGER)):
                return True
            self._part()
            return False

    def _part(self) -> None:
        """With the lock held: the thread ends. Its session is open for a moment yet, and nobody's any more."""
        self._thread = None
        self._session = None
        self._changed.notify_all()

    def _connect(self, me: threading.Thread) -> HearingSession | None:
        """Return a session; ``None`` where the thread isn't the one any more."""
        with fork.connecting():
            connection = self._pool.make_listener()
            try:
                session = HearingSession(connection, self._pool.location.where, self._take)
            except OSError:  # the process has descriptors for no more
                connection.close()
                raise
            with self._changed:
                self._open[session] = None
                if self._thread is me and not self._closed:
                    self._session = session
                    return session
        self._drop(session)
        return None

    def _serve(self, session: HearingSession, me: threading.Thread, *, first: bool) -> None:
        """Listen, until nobody needs it any more; raise where the session is lost."""
        session.ask(f'LISTEN "{session.proof.channel}"')
        self._adjust(session)
        session.serves = True
        if not first:
            self._tell_gap()
        idle_since = silent_since = time.monotonic()
        while self._goes_on(me, idle_since):
            now = time.monotonic()
            if self._attending or self._subscriptions:
                idle_since = now
            if now - silent_since >= _PROBE_EVERY:
                session.ask("SELECT 1")
                silent_since = time.monotonic()
            if not session.proof.heard:
                self._prove(session)
            rest = _PROBE_EVERY if self._attending or self._subscriptions else _LINGER / 4
            arrived = session.has_news_or_knocks(min(rest, session.proof.rest()))
            if self._is_to_adjust(session):
                self._adjust(session)
            if arrived:
                session.receive(self._proved)
                silent_since = time.monotonic()
            if session.proof.heard and not session.proved:
                session.proved = True
                session.ask(f'UNLISTEN "{session.proof.channel}"')

    def _prove(self, session: HearingSession) -> None:
        proof = session.proof
        if proof.is_to_send() and not self._echoes.call():
            proof.failed()
        if not proof.is_silent():
            return
        with self._changed:
            proof.deaf = True
            self._failure = NotSupportedError(_DEAF)
            self._changed.notify_all()
        if not self._said_deaf:  # once, until it is otherwise
            self._said_deaf = True
            _LOG.warning("listening at %s: %s", self._pool.location.where, _DEAF)

    def _proved(self, session: HearingSession) -> None:
        was_deaf = session.proof.deaf
        with self._changed:
            session.proof.heard, session.proof.deaf = True, False
            self._failure, self._said_deaf = None, False
            self._changed.notify_all()
        if was_deaf:
            _LOG.warning("listening at %s: notifications arrive after all", self._pool.location.where)
            self._tell_gap()

    def _echo(self) -> None:
        """On a thread of its own, as the database may be slow: send what the session is to hear, as others would."""
        session = self._session
        if session is None or session.proof.heard:
            return
        try:
            self._bell.read(sql.RING, {"channel": session.proof.channel, "payloads": ["echo"]})
        except AlkstoreError as exc:
            _LOG.debug("no echo could be sent: %s", exc)
            session.proof.failed()
            with self._changed:
                if self._session is session and not self._closed:
                    self._failure = exc
                    self._failures += 1
                    self._changed.notify_all()
        else:
            session.proof.sent()
        self._rouse()  # it has another time to wait for

    def _is_to_adjust(self, session: HearingSession) -> bool:
        with self._changed:
            return self._wanted() != session.listened

    def _adjust(self, session: HearingSession) -> None:
        """Listen to what is wanted, and to nothing else.

        A channel counts as listened to from after its LISTEN until before its UNLISTEN. So whoever comes while that is on
        its way knocks and waits for another LISTEN, instead of believing in one that is just being undone.
        """
        with self._changed:
            wanted = sorted(self._wanted() - session.listened)
        for channel in wanted:
            session.ask(f'LISTEN "{channel}"')
            with self._changed:
                session.listened.add(channel)
            if channel == self._channels.wakes:
                self._tell_waiters()  # of what was committed since they looked
        with self._changed:
            unwanted = sorted(session.listened - self._wanted())
            session.listened.difference_update(unwanted)
            self._changed.notify_all()
        for channel in unwanted:
            session.ask(f'UNLISTEN "{channel}"')

    def _take(self, session: HearingSession, channel: str, sent: str) -> None:
        if channel == self._channels.wakes:
            self._take_wake(sent)
            return
        if channel.startswith(PREFIX):
            return
        try:
            payload = self._channels.plain(sent)
        except ValueError as exc:
            _LOG.debug("a notification that can't be read, taken for a gap: %s", exc)
            payload = None
        for subscription in self._subscriptions.living():
            name = subscription.channels.get(channel)
            if name is None or channel not in session.listened:
                continue
            subscription.put(GAP if payload is None else Notification(channel=name, payload=payload))

    def _take_wake(self, sent: str) -> None:
        heard = self._heard
        if heard is None:
            return
        try:
            sender, queue, count = self._channels.read_wake(sent)
        except ValueError as exc:
            _LOG.debug("a wake that can't be read, taken for any change: %s", exc)
            heard(None, 0)
            return
        if sender != _me(self):
            heard(queue, count)

    def _tell_gap(self) -> None:
        for subscription in self._subscriptions.living():
            subscription.put(GAP)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        heard = self._heard
        if heard is not None:
            heard(None, 0)

    # --- losing the session, and making another -------------------------------------------------------------------

    def _failed(self, exc: Exception, failures: int) -> int:
        with self._changed:
            if self._closed:
                return failures
            # Said once per outage: it is tried again and again.
            level = logging.DEBUG if failures else logging.WARNING
            said = str(exc).strip().partition("\n")[0]
            _LOG.log(level, "listening at %s: %s", self._pool.location.where, said)
            self._failure = exc if isinstance(exc, AlkstoreError) else EngineUnavailableError(
                f"{self._pool.location.where}: the session that listens was lost"
            )  # fmt: skip
            self._failures += 1
            self._changed.notify_all()
        return failures + 1

    def _pause(self, me: threading.Thread, failures: int) -> None:
        first, longest = _BACKOFF
        seconds = pause(first, longest, failures - 1)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._thread is not me, seconds)

    def _drop(self, session: HearingSession) -> None:
        with self._changed:
            if self._session is session:
                self._session = None
            session.close()  # with the lock held, so that nobody cuts what is just being freed
            self._open.pop(session, None)

    # --- the engine's life ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """End it: whoever waits for a notification is told."""
        with self._changed:
            self._closed = True
            thread = self._thread
            subscriptions = self._subscriptions.living()
            self._changed.notify_all()
        for subscription in subscriptions:
            subscription.fail(StoreClosedError("the store is closed"))
        self._rouse()
        if self._open and thread is not None and thread is not threading.current_thread():
            thread.join(_ENDED_WITHIN)
        with self._changed:
            for session in self._open:
                session.cut()
        self._ringer.close()

    # --- fork ----------------------------------------------------------------------------------------------------

    def descriptors(self) -> list[int]:
        """Return the session's descriptor, for a fork's child."""
        found: list[int] = []
        for session in list(self._open):
            try:
                found.append(session.connection.pgconn.socket)
            except psycopg.Error:
                continue  # libpq has closed it
        return found

    def begin_anew(self) -> None:
        """In a fork's child: nobody waits here, and the session and its thread are the parent's."""
        self._inherited += [session.connection for session in self._open]
        for session in self._open:
            session.forget()
        subscriptions, closed = self._subscriptions.living(), self._closed
        self._begin()
        self._closed = closed
        for subscription in subscriptions:
            subscription.disown()


def _me(ear: Ear) -> str:
    """Say who rings, so that a store doesn't wake its own waiters twice."""
    return f"{os.getpid()}-{id(ear)}-{_HOST}"


_HOST: Final = secrets.token_hex(4)
