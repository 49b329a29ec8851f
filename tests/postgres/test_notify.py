"""The session that listens: lost, silent, deaf, idle; and what it leaves alone (W-1 to W-4, Z-14)."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, cast

import pytest

from alkstore import Notification, NotSupportedError
from alkstore.backoff import pause
from alkstore.doorbell import Doorbell
from alkstore.errors import EngineUnavailableError
from alkstore.monitor import Monitor
from alkstore.store import Store
from alkstore_postgres import hearing, notify, proving, subscribing
from contract_tests.scale import rounds
from contract_tests.steps import Leave, leaving
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, ear_of
from tests.support.postgres_server import PostgresServer, replace_database
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

WAIT = 60.0
NEVER = 3_600


def listening(door: Door) -> list[tuple[int, str, Any]]:
    """Return the sessions whose last statement was about listening: process id, state, and whether they have a snapshot."""
    return cast(
        "list[tuple[int, str, Any]]",
        door.ask(
            "SELECT pid, state, backend_xmin FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'alkstore' AND query ~ '^(LISTEN|UNLISTEN|SELECT 1$)'"
        ),
    )


def bell_of(store: Store) -> Doorbell:
    """Return the store's doorbell."""
    bell = store.wakes._bell
    assert bell is not None
    return bell


def payload(found: Notification | None) -> str:
    """Return the payload of a notification that must be there."""
    assert found is not None
    assert not found.gap
    return found.payload


# --- lost -----------------------------------------------------------------------------------------------------------


def test_a_session_that_is_terminated_comes_back_and_says_what_may_be_lost(
    store: Store, open_store: Opener, door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """W-3: three times in a row; each time one gap, and everything that is sent afterwards."""
    other = open_store()
    with store.listen("c") as listener, store.listen("d") as second:
        for turn in range(3):
            [(pid, _, _)] = listening(door)
            door.do("SELECT pg_terminate_backend(%s, 10000)", pid)
            found = listener.get(WAIT)
            assert found == Notification(channel="", payload="", gap=True)
            other.notify("c", str(turn))
            assert str(turn) == payload(listener.get(WAIT))
            assert second.get(WAIT) == Notification(channel="", payload="", gap=True)
            assert None is second.get(0)
    assert 3 == sum("listening at" in record.getMessage() for record in caplog.records)


class Pauses:
    """What the thread draws to wait between its attempts at a session.

    "It is back in under two seconds" is held by that, and not by a clock that a busy machine would spoil: no pause takes more
    than one, and the first attempt that can succeed does, so that at most one pause and one connecting lie in between.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._drawn: list[float] = []
        monkeypatch.setattr(notify, "pause", self._draw)

    def _draw(self, first: float, longest: float, failures: int) -> float:
        self._drawn.append(pause(first, longest, failures))
        return self._drawn[-1]

    def check(self, failures: int) -> None:
        """Look at them, and at how many attempts have failed since they could succeed."""
        assert 1 < len(self._drawn), "several attempts were made meanwhile"
        assert max(self._drawn) <= 1
        assert failures <= 1, "one may have been refused just before"


def test_a_consumer_outlives_the_session_and_finds_what_came_meanwhile(
    through: tuple[TcpProxy, Callable[..., Store]], open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-3, W-4: the connection is cut and refused for a while; nothing polls."""
    proxy, opener = through
    paused = Pauses(monkeypatch)
    store, other = opener(), open_store()
    with (
        store.queue("q").consume("w", poll_interval=NEVER) as consumer,
        ThreadPoolExecutor(1) as thread,
        store.listen("c") as listener,
    ):
        waiting = thread.submit(next, consumer)
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: ear_of(store)._session is None, WAIT, "the loss to be noticed")
        other.queue("q").enqueue("while it was away")
        other.notify("c", "lost")
        before, start = time.process_time(), time.monotonic()
        assert None is listener.get(2)
        assert time.process_time() - before < 0.05 * (time.monotonic() - start), "it must not spin"
        failed = ear_of(store)._failures
        proxy.accept()
        found = listener.get(WAIT)
        assert found is not None
        assert found.gap
        paused.check(ear_of(store)._failures - failed)
        handle = waiting.result(WAIT)
        assert "while it was away" == handle.payload
        assert handle.ack()
        other.notify("c", "heard")
        assert "heard" == payload(listener.get(WAIT))


def test_an_outage_of_the_whole_store_is_one_gap_and_costs_no_job(
    through: tuple[TcpProxy, Callable[..., Store]], open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-3, W-4: ten seconds at scale 1, in which the pool is cut off as well; nothing polls."""
    proxy, opener = through
    seconds, jobs, paused = float(rounds(10)), 5, Pauses(monkeypatch)
    other = open_store()
    store = opener(whole=True)
    with (
        store.queue("q").consume("w", poll_interval=NEVER) as consumer,
        ThreadPoolExecutor(1) as thread,
        store.listen("c") as listener,
        store.listen("d") as second,
    ):
        waiting = thread.submit(next, consumer)
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: ear_of(store)._session is None, WAIT, "the loss to be noticed")
        for number in range(jobs):
            other.queue("q").enqueue(number)
            other.notify("c", "lost")
        before, start = time.process_time(), time.monotonic()
        assert None is listener.get(seconds)
        # The burst of quick attempts comes first: it is part of ten seconds, and nearly all of a short run.
        assert time.process_time() - before < max(0.1, 0.05 * (time.monotonic() - start)), "it must not spin"
        failed = ear_of(store)._failures
        proxy.accept()
        for each in (listener, second):
            assert Notification(channel="", payload="", gap=True) == each.get(WAIT)
        paused.check(ear_of(store)._failures - failed)
        found = [waiting.result(WAIT)]
        found += [next(consumer) for _ in range(jobs - 1)]
        assert list(range(jobs)) == [handle.payload for handle in found]
        assert all(handle.ack() for handle in found)
        for name, each in (("c", listener), ("d", second)):
            other.notify(name, "heard")
            assert "heard" == payload(each.get(WAIT))


def test_a_session_that_goes_silent_is_found_by_asking_it(
    through: tuple[TcpProxy, Callable[..., Store]], open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-3: nothing is closed, and nothing comes; a job is found by the poll meanwhile."""
    monkeypatch.setattr(notify, "_PROBE_EVERY", 0.3)
    monkeypatch.setattr(hearing, "_ANSWERED_WITHIN", 0.5)
    proxy, opener = through
    store, other = opener(), open_store()
    with store.listen("c") as listener, store.queue("q").consume("w", poll_interval=0.5) as consumer:
        proxy.silence()
        other.queue("q").enqueue("polled")
        assert "polled" == next(consumer).payload
        wait_until(lambda: ear_of(store)._session is None, WAIT, "the silence to be noticed")
        proxy.speak()
        found = listener.get(WAIT)
        assert found is not None
        assert found.gap
        other.notify("c", "heard")
        assert "heard" == payload(listener.get(WAIT))


def test_listening_where_nothing_can_be_reached_is_an_error_and_works_later(
    through: tuple[TcpProxy, Callable[..., Store]], open_store: Opener
) -> None:
    proxy, opener = through
    store = opener()
    proxy.refuse()
    with pytest.raises(EngineUnavailableError):
        store.listen("c")
    proxy.accept()
    with store.listen("c") as listener:
        open_store().notify("c", "x")
        found = listener.get(WAIT)
        if found is not None and found.gap:  # the thread had gone on trying
            found = listener.get(WAIT)
        assert "x" == payload(found)


# --- what others may send ---------------------------------------------------------------------------------------------

JUNK = (
    "", "junk", ":", "1:", "1:junk", "g:[]", "1:{}", "1:null", "1:[]", '1:["x", "q"]', '1:["x", "q", 1, 2]',
    '1:["x", "q", true]', '1:["x", "q", -1]', '1:["x", "q", 1.0]', '1:["x", null, 1]', "1:[[], {}, []]",
    "1:" + "[" * 7_000, "1:" + "9" * 7_000, "é\U0001f600\x01",
)  # fmt: skip


def test_a_wake_that_cannot_be_read_is_taken_for_any_change(
    store: Store, open_store: Opener, door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """W-4: whoever may connect can send anything there."""
    caplog.set_level(logging.DEBUG, "alkstore")
    ear, came = ear_of(store), SimpleQueue[tuple[str | None, int]]()
    ear.attend(lambda queue, count: came.put((queue, count)), store)
    assert (None, 0) == came.get(timeout=WAIT)  # he is to look once more, as it listens
    for junk in JUNK:
        door.do("SELECT pg_notify(%s, %s)", ear._channels.wakes, junk)
        assert (None, 0) == came.get(timeout=WAIT), junk
    assert len(JUNK) == sum("can't be read" in record.getMessage() for record in caplog.records)
    assert not any(record.levelno > logging.DEBUG for record in caplog.records)
    open_store().queue("q").enqueue(1)
    assert ("q", 1) == came.get(timeout=WAIT)
    ear.leave(store)


def test_a_wake_of_what_cannot_be_deafens_nobody(store: Store, open_store: Opener, door: Door) -> None:
    """It reads well, and names a result of a job that no server could number."""
    with store.queue("q").consume("w", poll_interval=NEVER) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        ear = ear_of(store)
        wait_until(
            lambda: ear._session is not None and ear._channels.wakes in ear._session.listened, WAIT, "the session"
        )
        for queue in ("_result " + "9" * 5_000, "_result", "_", ""):
            door.do("SELECT pg_notify(%s, %s)", ear._channels.wakes, ear._channels.wake("x", queue, 0))
        open_store().queue("q").enqueue(7)
        try:
            assert 7 == waiting.result(WAIT).payload
        finally:
            consumer.close()


@pytest.mark.parametrize("junk", ["", "junk", ":x", "x:x", "1", "é:\U0001f600"])
def test_a_notification_that_cannot_be_read_is_a_gap(store: Store, door: Door, junk: str) -> None:
    """W-2: of its channel alone."""
    with store.listen("c") as listener, store.listen("d") as other:
        door.do("SELECT pg_notify(%s, %s)", ear_of(store)._channels.of("c"), junk)
        assert Notification(channel="", payload="", gap=True) == listener.get(WAIT)
        for name, each in (("c", listener), ("d", other)):
            store.notify(name, "x")
            assert "x" == payload(each.get(WAIT))


def test_an_error_in_the_thread_that_nobody_thought_of_ends_its_listeners_with_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-2: they don't wait for ever; whoever comes afterwards is listened for again."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    def show(args: threading.ExceptHookArgs) -> None:
        shown.put(args.exc_type)

    shown = SimpleQueue[type[BaseException]]()
    monkeypatch.setattr(threading, "excepthook", show)
    with store.listen("c") as listener:
        session = ear_of(store)._session
        assert session is not None
        monkeypatch.setattr(session, "_take", fail)
        store.notify("c", "x")
        with pytest.raises(EngineUnavailableError, match="ended by an error"):
            listener.get(WAIT)
        assert ZeroDivisionError is shown.get(timeout=WAIT)
        with store.listen("c") as another:
            store.notify("c", "y")
            assert "y" == payload(another.get(WAIT))


# --- those who come and go -------------------------------------------------------------------------------------------


@pytest.fixture
def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Hold the thread up after its next UNLISTEN: one event says that it is sent, the other has it go on.

    That one is set as soon as somebody waits for the thread: the other who may set it is whoever believes he needn't.
    """
    sent, go_on = threading.Event(), threading.Event()
    ask, ear = hearing.HearingSession.ask, ear_of(store)
    wait_for = Monitor.wait_for

    def ask_slowly(self: hearing.HearingSession, statement: str) -> None:
        ask(self, statement)
        if statement.startswith("UNLISTEN") and "_echo_" not in statement and not sent.is_set():
            sent.set()
            assert go_on.wait(WAIT)

    def wait(self: Monitor, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if self is ear._changed and sent.is_set() and not predicate():
            go_on.set()
        return wait_for(self, predicate, timeout)

    monkeypatch.setattr(hearing.HearingSession, "ask", ask_slowly)
    monkeypatch.setattr(Monitor, "wait_for", wait)
    return sent, go_on


def test_who_listens_while_the_last_one_is_forgotten_is_listened_for(
    store: Store, open_store: Opener, held: tuple[threading.Event, threading.Event]
) -> None:
    """W-1: an UNLISTEN is on its way when he comes."""
    sent, go_on = held
    other = open_store()
    with store.listen("kept"):
        store.listen("c").close()
        assert sent.wait(WAIT)
        with store.listen("c") as listener:
            other.notify("c", "x")
            go_on.set()
            assert "x" == payload(listener.get(WAIT))


def test_who_waits_while_wakes_are_unlistened_is_woken(
    store: Store, open_store: Opener, held: tuple[threading.Event, threading.Event]
) -> None:
    """W-4: as nobody waited any more, only listened."""
    sent, go_on = held
    other, ear, rung = open_store(), ear_of(store), threading.Event()

    def heard(*_: object) -> None:
        rung.set()

    with store.listen("kept"):
        with store.wakes.attending():
            wait_until(lambda: ear._hears({ear._channels.wakes}), WAIT, "it to be listened for")
        with store.listen("another"):
            assert sent.wait(WAIT)
            ear.attend(heard, store)
            other.queue("q").enqueue(1)
            bell_of(other).flush()  # unheard: he is to look once more, when it is listened for
            assert not rung.is_set()
            go_on.set()
            assert rung.wait(WAIT)
            ear.leave(store)


def test_who_comes_while_the_session_ends_gets_one_of_his_own(
    store: Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-1, W-4: the old one's end, however slow, is not taken for listening, and takes nothing from the new one."""
    monkeypatch.setattr(notify, "_LINGER", 0.05)
    monkeypatch.setattr(notify, "_PROBE_EVERY", 0.05)
    ended, go_on = list[hearing.HearingSession](), threading.Event()
    drop = notify.Ear._drop

    def drop_slowly(self: notify.Ear, session: hearing.HearingSession) -> None:
        if not ended:
            ended.append(session)
            assert go_on.wait(WAIT)
        drop(self, session)

    monkeypatch.setattr(notify.Ear, "_drop", drop_slowly)
    other, ear, rung = open_store(), ear_of(store), threading.Event()
    with store.wakes.attending():
        wait_until(lambda: ear._hears({ear._channels.wakes}), WAIT, "a session")
    wait_until(lambda: ended, WAIT, "the session to end")
    ear.attend(lambda queue, _: rung.set() if queue == "q" else None, store)
    wait_until(lambda: ear._hears({ear._channels.wakes}), WAIT, "another session")
    assert ear._session not in ended
    other.queue("q").enqueue(1)
    assert rung.wait(WAIT)
    with store.listen("c") as listener:
        go_on.set()
        wait_until(lambda: ended[0] not in ear._open, WAIT, "the old session to be closed")
        other.notify("c", "x")
        assert "x" == payload(listener.get(WAIT))
    ear.leave(store)


# --- deaf, or not wanted ---------------------------------------------------------------------------------------------


def test_a_deaf_session_is_said_to_be_one_and_waiting_goes_on_by_polling(
    open_store: Opener, database: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Z-14: as behind a pooler. Here it listens in another database, where nothing of this one arrives."""
    monkeypatch.setattr(proving, "_ECHO_WITHIN", 0.2)
    store = open_store(listen_url=replace_database(database, "postgres"))
    assert "notify" == store.health().wakes
    with pytest.raises(NotSupportedError, match="listen_url"):
        store.listen("c")
    assert "poll" == store.health().wakes
    assert 1 == sum(
        "listen_url" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    )
    other = open_store()
    with store.queue("q").consume("w", poll_interval=0.3) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        other.queue("q").enqueue(7)
        assert 7 == waiting.result(WAIT).payload
    store.close()


def test_a_store_that_polls_opens_no_session(open_store: Opener, door: Door) -> None:
    """``wakes="poll"``: it neither listens nor rings."""
    store, other = open_store(wakes="poll"), open_store()
    with pytest.raises(NotSupportedError, match="wakes='poll'"):
        store.listen("c")
    with other.listen("c") as listener:
        store.notify("c", "sending needs no session")
        assert "sending needs no session" == payload(listener.get(WAIT))
    assert "poll" == store.health().wakes
    with store.queue("q").consume("w", poll_interval=0.3) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        other.queue("q").enqueue(7)
        assert 7 == waiting.result(WAIT).payload
    other.close()
    wait_until(lambda: not listening(door), WAIT, "the other store's session to end")


# --- idle -----------------------------------------------------------------------------------------------------------


def test_an_idle_session_holds_nothing_open_and_the_servers_queue_is_emptied(store: Store, door: Door) -> None:
    """W-3: idle, no snapshot; however many notifications there were."""
    count = rounds(50_000)
    with store.listen("c") as listener:
        for start in range(0, count, 1_000):
            with store.transaction() as tx:
                for turn in range(start, min(start + 1_000, count)):
                    tx.notify("c", str(turn))
            for turn in range(start, min(start + 1_000, count)):
                assert str(turn) == payload(listener.get(WAIT))
        assert [("idle", None)] == [row[1:] for row in listening(door)]
        assert [(0.0,)] == door.ask("SELECT pg_notification_queue_usage()")


def test_a_reader_that_is_too_slow_keeps_the_latest_and_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-2: memory is bounded; one gap stands where the oldest were."""
    monkeypatch.setattr(subscribing, "_KEPT", 10)
    with store.listen("c") as listener, store.listen("c") as quick:
        for turn in range(50):
            store.notify("c", str(turn))
            assert str(turn) == payload(quick.get(WAIT))
        first = listener.get(WAIT)
        assert first is not None
        assert first.gap
        assert [str(turn) for turn in range(41, 50)] == [payload(listener.get(WAIT)) for _ in range(9)]
        assert None is listener.get(0)


def test_limits_on_idle_sessions_do_not_keep_a_job_from_being_picked_up(
    open_store: Opener, database: str, door: Door
) -> None:
    """``idle_session_timeout`` and a short life of the pool's connections: the session that listens has neither."""
    store = open_store(database + "?options=-c%20idle_session_timeout%3D300", max_lifetime=0.5)
    with store.queue("q").consume("w", poll_interval=NEVER) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: listening(door), WAIT, "the session")
        [(pid, _, _)] = listening(door)
        door.do("SELECT pg_sleep(1.5)")
        assert [pid] == [row[0] for row in listening(door)]
        open_store().queue("q").enqueue(7)
        assert 7 == waiting.result(WAIT).payload


def test_one_session_listens_for_the_whole_store_and_ends_with_it(store: Store, door: Door) -> None:
    before = set(threading.enumerate())  # another test's may be left for some seconds
    listeners = [store.listen(f"c{number}") for number in range(20)]
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(store.queue("q").wait) for _ in range(3)]
        assert 1 == len(listening(door))
        store.queue("q").enqueue_many(range(3))
        assert [True] * 3 == [each.result(WAIT) for each in waiting]
    for listener in listeners:
        listener.close()
    store.close()
    wait_until(lambda: not door.sessions(), WAIT, "the sessions to end")
    assert not [each for each in threading.enumerate() if each.name == "alkstore-ear" and each not in before]


def test_a_session_that_nobody_needs_any_more_ends(store: Store, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A while later; and is made again when it is needed."""
    monkeypatch.setattr(notify, "_LINGER", 0.2)
    for turn in range(2):
        with store.listen("c") as listener:
            store.notify("c", str(turn))
            assert str(turn) == payload(listener.get(WAIT))
        wait_until(lambda: not listening(door), WAIT, "the session to end")


def test_a_fork_leaves_the_parents_listener_alone(store: Store) -> None:
    """S-4: the child hears nothing of it, and has a session of its own when it listens."""
    with store.listen("c") as listener:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if listener.get(0) is None:
                    with store.listen("c") as own:
                        store.notify("c", "from the child")
                        code = 0 if own.get(WAIT) is not None else 2
                store.close()
            finally:
                os._exit(code)
        assert 0 == os.waitpid(child, 0)[1]
        assert "from the child" == payload(listener.get(WAIT))
        store.notify("c", "from the parent")
        assert "from the parent" == payload(listener.get(WAIT))


# --- the doorbell -----------------------------------------------------------------------------------------------------


def test_a_doorbell_that_cannot_be_rung_fails_no_enqueue(
    store: Store, door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-ENQ-4: it is logged, once for the outage, and swallowed."""

    def fail(*_: object, **__: object) -> None:
        raise EngineUnavailableError("no bell today")

    bell = bell_of(store)
    monkeypatch.setattr(bell, "_ring", fail)
    for turn in range(5):
        store.queue("q").enqueue(turn)
        bell.flush()
    assert 5 == len(door.live())
    assert 1 == sum(
        "no bell today" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    )


def test_many_enqueues_ring_seldom_and_the_last_one_always(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Z-14: coalesced, and flushed when the store is closed."""
    rung: list[dict[str, int]] = []
    bell = bell_of(store)
    ring = bell._ring

    def count(rings: Any, *, notified: bool) -> None:
        rung.append(dict(rings))
        ring(rings, notified=notified)

    monkeypatch.setattr(bell, "_ring", count)
    for turn in range(500):
        store.queue(f"q{turn % 2}").enqueue(turn)
    store.close()
    assert {"q0": 250, "q1": 250} == {name: sum(rings.get(name, 0) for rings in rung) for name in ("q0", "q1")}
    assert len(rung) < 400


def test_a_job_that_cannot_be_had_yet_holds_up_no_other(open_store: Opener) -> None:
    """It is due, and in an open transaction that has claimed it; tried in vain often enough to be tried seldom."""
    store, other = open_store(), open_store()
    queue = store.queue("q")
    queue.enqueue("locked")
    with ThreadPoolExecutor(2) as threads:
        consumers = [queue.consume("w", poll_interval=NEVER) for _ in range(2)]
        with leaving(), other.transaction() as tx:
            assert tx.queue("q").claim_one("holder") is not None
            waiting = [threads.submit(next, consumer) for consumer in consumers]
            wait_until(lambda: len(store.wakes.waiters._line("q")) == 2, WAIT, "both to wait")
            store.wakes.waiters._in_vain["q"] = 30
            queue.enqueue("later", delay=0.3)
            wait_until(lambda: any(each.done() for each in waiting), WAIT, "the other job")
            (first,) = [each for each in waiting if each.done()]
            assert "later" == first.result().payload
            store.wakes.waiters._in_vain["q"] = 30
            raise Leave
        (last,) = [each for each in waiting if each is not first]
        assert "locked" == last.result(WAIT).payload
        for consumer in consumers:
            consumer.close()


def test_dropped_listeners_are_forgotten(open_store: Opener, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without being closed: the session and its thread go when nobody is left; and who is left goes on hearing."""
    monkeypatch.setattr(notify, "_LINGER", 0.3)
    monkeypatch.setattr(notify, "_PROBE_EVERY", 0.2)
    store, other = open_store(), open_store()
    kept = store.listen("kept")
    dropped = [store.listen(f"c{number}", "d") for number in range(20)]
    ear = ear_of(store)
    session = ear._session
    assert session is not None
    assert 22 == len(session.listened)
    dropped.clear()
    gc.collect()
    wait_until(lambda: len(session.listened) == 1, WAIT, "the dropped listeners' channels to be given up")
    other.notify("kept", "x")
    assert "x" == payload(kept.get(WAIT))
    del kept
    gc.collect()
    wait_until(lambda: ear._thread is None and not listening(door), WAIT, "the session to end")


def test_where_no_thread_can_be_had_waiting_is_by_polling(open_store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listening is refused, and says why; nothing is left behind, and the next who comes has it tried again."""
    store = open_store()
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        if thread.name == "alkstore-ear":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", starting)
        with pytest.raises(EngineUnavailableError, match="can't start new thread"):
            store.listen("c")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(next, store.queue("q").consume("w", poll_interval=0.2))
            wait_until(lambda: store.health().wakes == "poll", WAIT, "the consumer to attend")
            open_store().queue("q").enqueue("found by looking")
            assert "found by looking" == waiting.result(WAIT).payload
    with store.listen("c") as listener:
        open_store().notify("c", "x")
        assert "x" == payload(listener.get(WAIT))
    assert "notify" == store.health().wakes
    store.close()


def test_listeners_may_come_and_go_while_others_are_told(open_store: Opener) -> None:
    """The ear goes through them with its lock held: a set that changes meanwhile would be the end of its thread."""
    store, other = open_store(), open_store()
    before = sys.getswitchinterval()
    kept = [store.listen("c") for _ in range(100)]
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            store.listen("c").close()

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as threads:
            churning = [threads.submit(churn) for _ in range(3)]
            for _ in range(rounds(2_000)):
                other.notify("c", "x")
            ended.set()
            for each in churning:
                each.result(WAIT)
    finally:
        sys.setswitchinterval(before)
    other.notify("c", "last")
    for listener in kept[:3]:
        while (found := listener.get(WAIT)) is not None and found.payload != "last":
            pass
        assert found is not None
