"""The thread that listens: how it begins, what may go wrong there, and that nobody waits for it (W-1 to W-4)."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import pytest

from alkstore import Notification, NotSupportedError
from alkstore.errors import EngineUnavailableError
from alkstore.store import Store
from alkstore_postgres import notify, proving
from alkstore_postgres.pool import Connection, Pool
from alkstore_postgres.runner import AutoRunner
from contract_tests.interrupting import StruckError, struck_at
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, ear_of, engine_of, pool_of
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_until

WAIT = 60.0
NEVER = 3_600
GAP = Notification(channel="", payload="", gap=True)


class Heard:
    """What an ear has told."""

    def __init__(self) -> None:
        self._told = SimpleQueue[tuple[str | None, int]]()

    def __call__(self, queue: str | None, count: int) -> None:
        self._told.put((queue, count))

    def awaits(self, queue: str) -> None:
        """Wait until it has told of the queue; of anything else it may tell before."""
        while self._told.get(timeout=WAIT)[0] != queue:
            pass


def is_woken(store: Store, other: Store) -> bool:
    """Say whether who waits in the store is told of the other's commit; nobody polls."""
    with ThreadPoolExecutor(1) as thread, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: store.wakes.waiters._line("q"), WAIT, "the consumer to stand in line")
        other.queue("q").enqueue(1)
        return waiting.result(WAIT).ack()


# --- beginning --------------------------------------------------------------------------------------------------------


def test_a_process_that_is_out_of_descriptors_for_a_moment_listens_again(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-3, W-4: whoever listens then is told so; whoever comes later is woken and listened for, by the same thread even."""
    store, other = open_store(), open_store()

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", fail)
        with pytest.raises(EngineUnavailableError):
            store.listen("c")
        assert False is store.queue("q").wait(0)
    assert is_woken(store, other)
    with store.listen("c") as listener:
        other.notify("c", "x")
        found = listener.get(WAIT)
        assert found is not None


def test_an_interrupt_at_any_step_of_its_beginning_keeps_nobody_from_being_told(
    store: Store, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4: Ctrl-C between any two; the next who comes is told of wakes, and there is one thread in the end."""
    monkeypatch.setattr(notify, "_LINGER", 0.05)
    monkeypatch.setattr(notify, "_PROBE_EVERY", 0.05)
    engine_ear, step = ear_of(store), 0
    before = set(threading.enumerate())
    while True:
        ear, heard = notify.Ear(engine_ear._pool, engine_ear._statements), Heard()
        with struck_at(step) as steps, suppress(StruckError):
            ear.attend(heard, store)
        ear.attend(heard, store)
        wait_until(lambda ear=ear: ear._hears({ear._channels.wakes}), WAIT, "a session")
        door.do("SELECT pg_notify(%s, %s)", ear._channels.wakes, ear._channels.wake("somebody", f"q{step}", 1))
        heard.awaits(f"q{step}")
        ear.leave(store)
        ear.close()
        if steps.taken <= step:
            break
        step += 1
    assert step > 20
    # One that was struck before it had begun is still in the interpreter's list, and not alive.
    left = [each for each in threading.enumerate() if each.name == "alkstore-ear" and each not in before]
    wait_until(lambda: not any(each.is_alive() for each in left), WAIT, "the threads to end")


# --- nobody waits for it ----------------------------------------------------------------------------------------------


@pytest.fixture
def silent(database: str) -> Iterator[str]:
    """A URL at which connections are taken, and nobody ever says anything."""
    parts = urlsplit(database)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        port = server.getsockname()[1]
        yield parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()


def is_still_tried(store: Store) -> bool:
    """Say whether the first attempt at a session is still under way: it takes ten seconds, which nobody has waited for then."""
    ear = ear_of(store)
    return ear._session is None and ear._failures == 0 and ear._has_thread()


def test_who_waits_looks_first_and_waits_no_longer_than_asked_for(open_store: Opener, silent: str) -> None:
    """W-4: a session that is long in coming keeps nobody waiting, be there a job or none."""
    store = open_store(listen_url=silent)
    queue = store.queue("q")
    assert False is queue.wait(0.1)
    job_id = queue.enqueue(1, keep_result=60)
    assert True is queue.wait(30)
    assert None is queue.wait_result(job_id, 0.1)
    with queue.consume("w", poll_interval=NEVER) as consumer:
        assert next(consumer).ack(result="done")
    assert is_still_tried(store)
    assert "poll" == store.health().wakes
    assert "being made" in str(store.health().wakes_reason)


@pytest.mark.parametrize("how", ["stop", "close", "close the store"])
def test_who_waits_can_be_ended_while_the_session_is_long_in_coming(how: str, open_store: Opener, silent: str) -> None:
    """W-4, S-3: from another thread; nobody waits for the attempt, and closing the store doesn't either."""
    store, stop = open_store(listen_url=silent), threading.Event()
    consumer = store.queue("q").consume("w", poll_interval=NEVER, stop=stop)
    with ThreadPoolExecutor(1) as thread:
        looping = thread.submit(lambda: list(consumer))
        wait_until(lambda: store.wakes.waiters._line("q"), WAIT, "the consumer to stand in line")
        {"stop": stop.set, "close": consumer.close, "close the store": store.close}[how]()
        assert looping.exception(WAIT) is None or how == "close the store"
        assert is_still_tried(store)


def test_who_waits_polls_until_the_session_is_there(open_store: Opener, silent: str) -> None:
    store = open_store(listen_url=silent)
    with ThreadPoolExecutor(1) as thread, store.queue("q").consume("w", poll_interval=0.2) as consumer:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: store.wakes.waiters._line("q"), WAIT, "the consumer to stand in line")
        open_store().queue("q").enqueue(1)
        assert waiting.result(WAIT).ack()
        assert is_still_tried(store)


def test_who_waits_looks_once_more_when_the_session_is_there(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4: what was rung meanwhile, nobody heard; and nobody polls."""
    go_on, make = threading.Event(), Pool.make_listener

    def make_late(pool: Pool) -> Connection:
        assert go_on.wait(WAIT)
        return make(pool)

    monkeypatch.setattr(Pool, "make_listener", make_late)
    store, other = open_store(), open_store()
    job_id = other.queue("kept").enqueue(2, keep_result=60)
    with ThreadPoolExecutor(2) as threads, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = threads.submit(next, consumer)
        result = threads.submit(store.queue("kept").wait_result, job_id, poll_interval=NEVER)
        wait_until(lambda: store.wakes.waiters._line("q") and store.wakes.results._waiting, WAIT, "both to wait")
        other.queue("q").enqueue(1)
        handle = other.queue("kept").claim_one("w")
        assert handle is not None
        assert handle.ack(result="done")
        other.wakes.flush()
        go_on.set()
        assert waiting.result(WAIT).ack()
        found = result.result(WAIT)
        assert found is not None
        assert "done" == found.value


# --- whether it hears -------------------------------------------------------------------------------------------------


def test_listening_waits_for_no_connection_of_the_pool(open_store: Opener) -> None:
    """The application has all of them, and is heard of only when it gives one back."""
    store, other = open_store(pool_size=1), open_store()
    with store.transaction(), ThreadPoolExecutor(1) as thread:
        listener = thread.submit(store.listen, "c").result(WAIT)
    with listener:
        other.notify("c", "x")
        found = listener.get(WAIT)
        assert found is not None
        assert "x" == found.payload


def swallow_echoes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no echo of the store arrive, though each is sent."""
    bell = ear_of(store)._bell
    read = bell.read

    def send(statement: Any, parameters: Mapping[str, object]) -> Any:
        return [] if str(parameters["channel"]).startswith(proving.PREFIX) else read(statement, parameters)

    monkeypatch.setattr(bell, "read", send)


def test_a_session_that_was_called_deaf_hears_again_with_whatever_arrives(
    store: Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W-3, Z-14: its listener is told that something may be lost; that it hears is said as plainly as that it didn't."""
    monkeypatch.setattr(proving, "_ECHO_WITHIN", 0.2)
    other, ear = open_store(), ear_of(store)
    with store.listen("c") as listener:
        assert ("notify", None) == (store.health().wakes, store.health().wakes_reason)
        swallow_echoes(store, monkeypatch)
        session = ear._session
        assert session is not None
        session.cut()
        assert GAP == listener.get(WAIT)
        wait_until(ear._is_deaf, WAIT, "the silence to be noticed")
        assert "poll" == store.health().wakes
        assert "listen_url" in str(store.health().wakes_reason)
        with pytest.raises(NotSupportedError, match="listen_url"):
            store.listen("d")
        assert None is listener.get(0)
        other.notify("c", "x")
        assert GAP == listener.get(WAIT)
        found = listener.get(WAIT)
        assert found is not None
        assert "x" == found.payload
        assert None is listener.get(0)
        assert ("notify", None) == (store.health().wakes, store.health().wakes_reason)
        store.listen("d").close()
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert 1 == sum("notifications don't arrive" in each for each in said)
    assert 1 == sum("arrive after all" in each for each in said)


def test_an_echo_that_is_late_has_it_hear_again(
    through: tuple[TcpProxy, Callable[..., Store]], open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those who wait look once more, as they may have missed a wake; nobody polls, and nothing else arrives."""
    monkeypatch.setattr(proving, "_ECHO_WITHIN", 0.2)
    proxy, opener = through
    store, other = opener(), open_store()
    ear, read = ear_of(store), AutoRunner.read

    def send_into_silence(self: AutoRunner, statement: Any, parameters: Any) -> Any:
        if self is ear._bell:
            proxy.silence()
        return read(self, statement, parameters)

    monkeypatch.setattr(AutoRunner, "read", send_into_silence)
    with ThreadPoolExecutor(1) as thread, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = thread.submit(next, consumer)
        wait_until(ear._is_deaf, WAIT, "the silence to be noticed")
        other.queue("q").enqueue("rung into silence")
        other.wakes.flush()
        proxy.speak()
        assert "rung into silence" == waiting.result(WAIT).payload
        wait_until(lambda: store.health().wakes == "notify", WAIT, "it to hear")


def test_what_comes_with_an_answer_proves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler a notification may come with the answer of a session that was lent by chance; another echo decides."""
    monkeypatch.setattr(proving, "_ECHO_WITHIN", 0.3)
    swallow_echoes(store, monkeypatch)
    adjust = notify.Ear._adjust

    def adjust_and_notify(self: notify.Ear, session: Any) -> None:
        adjust(self, session)
        session.ask(f"NOTIFY \"{session.proof.channel}\", 'with the answer'")

    monkeypatch.setattr(notify.Ear, "_adjust", adjust_and_notify)
    with pytest.raises(NotSupportedError, match="listen_url"):
        store.listen("c")


# --- what is true now -------------------------------------------------------------------------------------------------


def test_the_stores_health_says_poll_for_as_long_as_nothing_can_be_heard(
    through: tuple[TcpProxy, Callable[..., Store]],
) -> None:
    """Q-8: and why."""
    proxy, opener = through
    store = opener()
    with store.listen("c"):
        assert ("notify", None) == (store.health().wakes, store.health().wakes_reason)
        proxy.refuse()
        proxy.cut()
        wait_until(lambda: store.health().wakes == "poll", WAIT, "the loss to be noticed")
        wait_until(lambda: "could not be reached" in str(store.health().wakes_reason), WAIT, "the reason")
        proxy.accept()
        wait_until(lambda: store.health().wakes == "notify", WAIT, "another session")
        assert None is store.health().wakes_reason


# --- the doorbell's connections ---------------------------------------------------------------------------------------


def test_a_ring_waits_for_no_connection_of_the_pool(open_store: Opener, door: Door) -> None:
    """Z-14: it has one of its own then, and keeps it for the next."""
    store, other = open_store(pool_size=1), open_store()
    heard = Heard()
    ear_of(other).attend(heard, other)
    wait_until(lambda: other.health().wakes == "notify", WAIT, "a session")
    with store.transaction():
        for name in ("a", "b"):
            engine_of(store).ring({name: 1}, notified=False)
            heard.awaits(name)
    assert 1 == len(ear_of(store)._ringer._own)
    store.close()
    assert not ear_of(store)._ringer._own
    ear_of(other).leave(other)


def test_a_ring_takes_no_connection_that_is_the_pools_last(open_store: Opener) -> None:
    """The application would wait for it; with one to spare there is no need of another, and that isn't kept."""
    store = open_store(pool_size=2)
    ringer = ear_of(store)._ringer
    with store.transaction():
        own = ringer.acquire()
        assert own.slot is None
        ringer.release(own)
        assert own is ringer.acquire()
        ringer.release(own)
    own.idle_since -= 3_600
    lent = ringer.acquire()
    assert lent.slot is not None
    ringer.release(lent)
    assert own.closed
    assert lent in pool_of(store)._idle


def test_a_fork_leaves_the_doorbells_own_connection_alone(open_store: Opener, door: Door) -> None:
    """S-4: the child rings by another, and its end doesn't end the parent's."""
    store = open_store(pool_size=1)
    ring = engine_of(store).ring
    ring({"a": 1}, notified=False)
    (own,) = ear_of(store)._ringer._own
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ring({"a": 1}, notified=False)
            (another,) = ear_of(store)._ringer._own
            code = 0 if another is not own else 2
            store.close()
        finally:
            os._exit(code)
    assert 0 == os.waitpid(child, 0)[1]
    ring({"a": 1}, notified=False)
    assert [own] == list(ear_of(store)._ringer._own)
    assert 1 == own.execute("SELECT 1").fetchall()[0][0]
