"""Bells, the backstop, and the table of notifications (W-1 to W-4, Z-15)."""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import alkstore
from alkstore import EngineUnavailableError, Notification, consuming
from alkstore_sqlite import bells as bells_of
from alkstore_sqlite import notify
from alkstore_sqlite.bells import BELLS_SUFFIX, Bell
from alkstore_sqlite.executor import NOTIFIED_FOR
from alkstore_sqlite.locking import LINE_SUFFIX
from contract_tests.scale import rounds
from contract_tests.steps import promptly
from tests.sqlite.conftest import Opener
from tests.sqlite.support import Program, back_door, look, pool_of
from tests.support.waiting import wait_until

WAIT = 60.0
NEVER = 3_600
SOON = 15.0
"""Seconds within which what is seen at all is seen."""


def bells(path: Path) -> list[Path]:
    """Return the FIFOs that hang beside the database."""
    folder = path.with_name(path.name + BELLS_SUFFIX)
    return sorted(folder.iterdir()) if folder.exists() else []


def hub_of(store: alkstore.Store) -> notify.Hub:
    """Return what hears for the store."""
    return cast(Any, store).engine._hub


def no_bell(_: Bell) -> bool:
    """Hang up none."""
    return False


def test_a_bell_hangs_only_while_somebody_waits(
    path: Path, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for a while longer; written to by whoever may write to the database, and it goes with the store, too."""
    monkeypatch.setattr(notify, "_LINGER", 0.3)
    store = open_store()
    path.chmod(0o664)
    store.queue("q").enqueue(1)
    assert [] == bells(path)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(store.queue("idle").wait)
        [bell] = wait_until(lambda: [bell for bell in bells(path) if bell.name[0] != "."], WAIT, "the bell")
        assert stat.S_ISFIFO(bell.stat().st_mode)
        assert (0o620, 0o775) == (stat.S_IMODE(bell.stat().st_mode), stat.S_IMODE(bell.parent.stat().st_mode))
        store.queue("idle").enqueue(1)
        assert waiting.result(WAIT)
    wait_until(lambda: not bell.parent.exists(), WAIT, "the bell to be taken down")
    listener = store.listen("c")
    assert 1 == len(bells(path))
    store.close()
    assert not bell.parent.exists()
    listener.close()


def test_the_bell_of_a_process_that_was_killed_is_taken_down(path: Path, store: alkstore.Store) -> None:
    """By whoever rings first afterwards."""
    with Program("wait_for_jobs", path) as program:
        assert "waiting" == program.hear()
        wait_until(lambda: bells(path), WAIT, "the program's bell")
        program.kill()
    [left] = bells(path)
    with store.listen("c"):
        assert 2 == len(bells(path))
        store.queue("q").enqueue(1)
        wait_until(lambda: len(bells(path)) == 1, WAIT, "the dead bell to be taken down")
        assert not left.exists()


def test_a_bell_that_never_came_to_hang_is_cleared_away(path: Path, store: alkstore.Store) -> None:
    """Its owner died between making and hanging it; one that is just being made is left alone."""
    folder = path.with_name(path.name + BELLS_SUFFIX)
    folder.mkdir()
    old, new, file = (folder / name for name in (".old", ".new", ".file"))
    os.mkfifo(old)
    os.mkfifo(new)
    file.write_text("precious")
    for each in (old, file):
        os.utime(each, (0, 0))
    with store.listen("c"):
        assert {file, new} == {bell for bell in bells(path) if bell.name[0] == "."}


def test_a_bell_is_not_taken_down_while_it_is_struck(
    path: Path, store: alkstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its descriptor could be another file's before anything is written."""
    bell = Bell(str(path))
    assert bell.hang()
    struck, down = threading.Event(), threading.Event()
    open_still: list[bool] = []

    def write(descriptor: int, _: bytes) -> int:
        struck.set()
        down.wait(0.3)
        open_still.append(stat.S_ISFIFO(os.fstat(descriptor).st_mode))
        return 1

    def take_down() -> None:
        struck.wait(WAIT)
        bell.take_down()
        down.set()

    monkeypatch.setattr(os, "write", write)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(take_down)
        bell.strike()
    monkeypatch.undo()
    assert [True] == open_still
    assert down.is_set()
    bell.strike()


def test_a_bell_that_somebody_removed_is_hung_up_again(path: Path, store: alkstore.Store) -> None:
    with store.listen("c"):
        [bell] = bells(path)
        bell.unlink()
        bell.parent.rmdir()
        wait_until(lambda: bells(path), WAIT, "another bell")


def test_what_is_no_bell_is_left_alone(path: Path, store: alkstore.Store, tmp_path: Path) -> None:
    """Files and links in the folder: nothing is written to them, and nothing removed."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with store.listen("c"):
        folder = bells(path)[0].parent
        (folder / "file").write_text("precious")
        (folder / "link").symlink_to(precious)
        (folder / "folder").mkdir()
        other = alkstore.open(f"sqlite:///{path}")
        for turn in range(3):
            other.queue("q").enqueue(turn)
        other.close()
        assert ("precious", "precious") == (precious.read_text(), (folder / "file").read_text())
        assert (folder / "link").is_symlink()


@pytest.mark.parametrize(
    "junk", [b"9" * 5_000 + b" q\n", b"0 _result " + b"9" * 5_000 + b"\n", b"1 \xff\n", b"\0\n", b" \n", b"1"]
)
def test_what_is_no_ring_deafens_nobody(junk: bytes, path: Path, store: alkstore.Store) -> None:
    """Whoever may write to the database can write anything into a bell."""
    with store.queue("q").consume("w", poll_interval=NEVER) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: bells(path), WAIT, "the bell")
        bells(path)[0].write_bytes(junk)
        time.sleep(2 * notify._LOOK)  # so that it isn't the look on beginning that finds the job
        other = alkstore.open(f"sqlite:///{path}")
        other.queue("q").enqueue(7)
        try:
            assert 7 == waiting.result(SOON).payload
        finally:
            consumer.close()
            other.close()


def test_bells_alone_wake_across_processes(path: Path, store: alkstore.Store) -> None:
    """Round after round something is committed within 2 ms of a wait's beginning; nothing polls, and nobody looks for commits."""
    engine, looks = cast(Any, store).engine, 0
    hub = engine._hub = notify.Hub(pool_of(store), engine.executor(), look=NEVER)
    look_really = hub._look

    def counted(watch: Any) -> None:
        nonlocal looks
        looks += 1
        look_really(watch)

    cast(Any, hub)._look = counted
    with (
        Program("enqueue_on_demand", path) as program,
        store.queue("q").consume("w", poll_interval=NEVER) as consumer,
        store.listen("c") as listener,
        ThreadPoolExecutor(1) as thread,
    ):
        assert "ready" == program.hear()
        for turn in range(rounds(1_000)):
            waiting = thread.submit(next, consumer)
            program.tell("another")
            try:
                assert str(turn) == _payload(listener.get(SOON))
                assert turn == waiting.result(SOON).payload
            except BaseException:
                consumer.close()
                raise
        program.tell()
    assert 1 == looks


def test_a_writer_that_knows_nothing_of_bells_is_seen(path: Path, store: alkstore.Store) -> None:
    """By the data version: an application's own connection enqueues by SQL, and nothing polls."""
    with ThreadPoolExecutor(1) as thread, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: bells(path), WAIT, "the consumer to wait")
        with back_door(path) as connection:
            connection.execute("INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q', '7')")
        assert 7 == waiting.result(WAIT).payload


def test_steady_rings_do_not_hide_other_commits(path: Path, store: alkstore.Store) -> None:
    """The look for commits goes by the time: another queue's bell may ring without a pause."""
    over = threading.Event()

    def ring() -> None:
        while not over.wait(0.01):
            bells_of.ring(str(path), None, [b"1 busy\n"])

    with ThreadPoolExecutor(2) as threads, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        for turn in range(3):
            waiting = threads.submit(next, consumer)
            if turn == 1:  # by now the first look is over
                threads.submit(ring)
            wait_until(lambda: bells(path), WAIT, "the consumer to wait")
            with back_door(path) as connection:
                connection.execute("INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q', ?)", [str(turn)])
            try:
                assert turn == waiting.result(SOON).payload
            finally:
                if turn == 2 or not waiting.done():
                    over.set()
                    consumer.close()


def test_where_many_wait_only_those_look_who_may_find_something(
    path: Path, store: alkstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits to other queues make no look in a queue that has no job; one that gets a job, due or not, is seen."""
    looked: Counter[str] = Counter()
    look_really = consuming.look

    def counted(of: alkstore.Store, queue: str) -> float | None:
        looked[queue] += 1
        return look_really(cast(Any, of), queue)

    size = 30
    with ThreadPoolExecutor(size) as threads, store:
        waiting = [threads.submit(store.queue(f"q{number}").wait, NEVER) for number in range(size)]
        wait_until(lambda: len(looked) == size or len(hub_of(store)._attending) == size, WAIT, "all to wait")
        watched = store.listen("c")
        monkeypatch.setattr(consuming, "look", counted)
        for turn in range(20):
            store.queue("busy").enqueue(turn)
            assert None is watched.get(0.1)
        assert sum(looked.values()) < 3 * size
        others = [
            "INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q0', '7')",
            "INSERT INTO alkstore_enqueue (queue, payload, delay) VALUES ('q1', '7', 1)",
        ]
        for statement in others:
            with back_door(path) as connection:
                connection.execute(statement)
        for each in waiting[:2]:
            assert each.result(SOON)
        for number in range(2, size):
            store.queue(f"q{number}").enqueue(1)
        assert all(each.result(WAIT) for each in waiting)


def test_where_no_bell_can_be_hung_commits_are_looked_for_and_health_says_so(
    path: Path, store: alkstore.Store, open_store: Opener
) -> None:
    """W-4, Q-8: something else has the folder's name, or nothing may be added there."""
    Path(f"{path}{BELLS_SUFFIX}").touch()
    with ThreadPoolExecutor(1) as thread, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: store.health().wakes == "poll", WAIT, "it to be said")
        assert "no FIFO" in str(store.health().wakes_reason)
        open_store().queue("q").enqueue(7)
        assert 7 == waiting.result(WAIT).payload
    with alkstore.open("sqlite:///:memory:") as in_memory:  # where nobody else commits
        assert "notify" == in_memory.health().wakes


def test_one_connection_will_do(open_store: Opener, path: Path) -> None:
    """Whoever hears has one of his own, so that he takes none from those who work; and it is closed with the others."""
    store = open_store(pool_size=1, lock_timeout=2)
    with ThreadPoolExecutor(1) as thread, store.listen("c") as listener:
        with store.queue("q").consume("w", poll_interval=NEVER) as consumer:
            for turn in range(5):
                waiting = thread.submit(next, consumer)
                wait_until(lambda: len(pool_of(store)._open) == 2, WAIT, "the hub's connection")
                store.queue("q").enqueue(turn)
                assert turn == waiting.result(WAIT).payload
                with back_door(path) as connection:
                    connection.execute("INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q', '7')")
                handle = thread.submit(next, consumer).result(WAIT)
                assert 7 == handle.payload
                with store.transaction() as tx:
                    tx.notify("c", str(turn))
                    assert tx.bind(handle).ack()
                assert str(turn) == _payload(listener.get(WAIT))
        pool = pool_of(store)
        store.close()
    assert [] == list(pool._open)


def test_with_one_connection_a_fork_is_survived(open_store: Opener) -> None:
    """The hub's connection is held still like the others."""
    store = open_store(pool_size=1, lock_timeout=2)
    with store.listen("c") as listener:
        for turn in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    store.notify("c", f"child {turn}")
                    with store.listen("c") as own:
                        store.notify("c", f"own {turn}")
                        code = 0 if own.get(WAIT) is not None else 2
                    store.close()
                finally:
                    os._exit(code)
            assert 0 == os.waitpid(child, 0)[1]
            store.notify("c", f"parent {turn}")
            assert [f"child {turn}", f"own {turn}", f"parent {turn}"] == [
                _payload(listener.get(WAIT)) for _ in range(3)
            ]


def test_a_journal_mode_changed_by_others_does_not_deafen(path: Path, open_store: Opener) -> None:
    """Under an open store SQLite refuses the change; a store that is opened after one uses the log again, and hears."""
    store = open_store(lock_timeout=5)
    for turn in range(2):
        with store.listen("c") as listener, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
            with ThreadPoolExecutor(1) as thread:
                waiting = thread.submit(next, consumer)
                with back_door(path) as connection:
                    with pytest.raises(sqlite3.OperationalError, match="locked"):
                        connection.execute("PRAGMA journal_mode = DELETE")
                    assert "wal" == connection.execute("PRAGMA journal_mode").fetchone()[0]
                    connection.execute("INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q', ?)", [str(turn)])
                assert turn == waiting.result(WAIT).payload
            with open_store() as other:
                other.notify("c", "x")
            assert "x" == _payload(listener.get(WAIT))
        if turn == 0:
            store.close()
            with back_door(path) as connection:
                assert "delete" == connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
            store = open_store(lock_timeout=5)


def test_without_fifos_the_backstop_does_it_all(
    path: Path, store: alkstore.Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, or where the folder can't be made."""
    monkeypatch.setattr(Bell, "hang", no_bell)
    with store.listen("c") as listener, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(next, consumer)
            other = open_store()
            other.notify("c", "x")
            other.queue("q").enqueue(7)
            assert 7 == waiting.result(WAIT).payload
        assert Notification(channel="c", payload="x") == listener.get(WAIT)
    assert [] == bells(path)


def test_without_fifos_many_who_wait_for_results_are_told(
    store: alkstore.Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result isn't a job to wait for: the question which queues have one says nothing of it."""
    monkeypatch.setattr(Bell, "hang", no_bell)
    size, other = 12, open_store()
    ids = store.queue("q").enqueue_many(range(size), keep_result=60)
    with ThreadPoolExecutor(size) as threads, store:
        waiting = [threads.submit(store.queue("q").wait_result, each, WAIT, poll_interval=NEVER) for each in ids]
        wait_until(lambda: len(hub_of(store)._attending) == size, WAIT, "all to wait")
        time.sleep(2 * notify._LOOK)  # until all have looked
        for handle in other.queue("q").claim_batch("w", size):
            assert handle.ack(result="done")
        for each in waiting:
            found = each.result(SOON)
            assert found is not None
            assert "done" == found.value


def test_a_listener_that_was_too_slow_is_told_so_once(path: Path, store: alkstore.Store) -> None:
    """What is older than a minute is taken away by those who notify later; what is left comes after the gap."""
    with store.listen("c") as listener, store.listen("c") as quick:
        for turn in range(30):
            store.notify("c", str(turn))
        assert [str(turn) for turn in range(30)] == [_payload(quick.get(WAIT)) for _ in range(30)]
        with back_door(path) as connection:
            connection.execute("UPDATE alkstore_notifications SET sent_at = sent_at - ? WHERE id <= 25", [NOTIFIED_FOR])
        for turn in range(30, 33):
            store.notify("c", str(turn))
        assert 26 == look(path, "SELECT min(id) FROM alkstore_notifications")[0]
        first = listener.get(WAIT)
        assert first is not None
        assert first.gap
        assert [str(turn) for turn in range(25, 33)] == [_payload(listener.get(WAIT)) for _ in range(8)]
        assert ["30", "31", "32"] == [_payload(quick.get(WAIT)) for _ in range(3)]
        assert None is listener.get(0.01)


def _payload(found: Notification | None) -> str:
    assert found is not None
    assert not found.gap
    return found.payload


def test_old_notifications_do_not_pile_up(path: Path, store: alkstore.Store) -> None:
    """Each that is sent takes more away than it adds."""
    count = max(200, rounds(2_000))
    for turn in range(count):
        store.notify("c", str(turn))
    with back_door(path) as connection:
        connection.execute("UPDATE alkstore_notifications SET sent_at = 0")
    for turn in range(count // 10):
        store.notify("c", str(turn))
    assert count // 10 >= look(path, "SELECT count(*) FROM alkstore_notifications")[0]


def test_a_listener_keeps_nothing_in_memory(path: Path, store: alkstore.Store) -> None:
    """What it has not read lies in the table, and it reads a page at a time."""
    with store.listen("c") as listener:
        with store.transaction() as tx:
            for turn in range(1_700):
                tx.notify("c", str(turn))
        subscription = cast(Any, listener)._subscription
        assert "0" == _payload(listener.get(WAIT))
        assert isinstance(subscription, notify.TableSubscription)
        assert len(subscription._page[0]) < 500
        assert [str(turn) for turn in range(1, 1_700)] == [_payload(listener.get(WAIT)) for _ in range(1_699)]


def test_a_file_that_is_replaced_is_noticed(
    path: Path, store: alkstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever listens is told; nothing can come any more."""

    def said() -> int:
        return sum("replaced" in record.message for record in caplog.records if record.levelno == logging.WARNING)

    with store.listen("c") as listener, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(listener.get)
        path.rename(path.with_name("elsewhere.db"))
        with pytest.raises(EngineUnavailableError, match="replaced"):
            waiting.result(WAIT)
        wait_until(lambda: said() == 1, WAIT, "the thread that hears to say so, too")
    assert 1 == said()


def test_a_fork_leaves_the_parents_listener_alone(path: Path, store: alkstore.Store) -> None:
    """The child hears nothing of it, has a bell of its own when it listens, and takes the parent's down in no way."""
    with store.listen("c") as listener:
        [mine] = bells(path)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if listener.get(0) is None:
                    with store.listen("c") as own:
                        hangs = len(bells(path)) == 2 and mine in bells(path)
                        store.notify("c", "from the child")
                        code = 0 if hangs and own.get(WAIT) is not None else 2
                store.close()
            finally:
                os._exit(code)
        assert 0 == os.waitpid(child, 0)[1]
        assert "from the child" == _payload(listener.get(WAIT))
        assert [mine] == bells(path)
        store.queue("q").enqueue(1)
        assert store.queue("q").wait(WAIT)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let no hub's thread start, until the event is set."""
    allowed = threading.Event()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "alkstore-hub" and not allowed.is_set():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    yield allowed
    allowed.set()


def test_without_a_thread_whoever_waits_polls(
    store: alkstore.Store, open_store: Opener, no_threads: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Promptly, and it is said once; listeners look for themselves, and a wait ends in its time."""
    other = open_store()
    start = time.monotonic()
    assert False is store.queue("q").wait(0.1)
    assert time.monotonic() - start < 3
    assert "poll" == store.health().wakes
    with store.listen("c") as listener, ThreadPoolExecutor(1) as thread:
        assert None is listener.get(0.01)
        waiting = thread.submit(listener.get)
        other.notify("c", "x")
        assert "x" == _payload(waiting.result(WAIT))
        consuming = thread.submit(next, store.queue("q").consume("w", poll_interval=0.1))
        other.queue("q").enqueue(7)
        assert 7 == consuming.result(WAIT).payload
    said = [record for record in caplog.records if record.levelno == logging.WARNING and "polls" in record.message]
    assert 1 == len(said)

    def close_another() -> float:
        another = open_store()
        listener = another.listen("c")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(listener.get)
            time.sleep(0.1)
            start = time.monotonic()
            another.close()
            assert isinstance(waiting.exception(WAIT), alkstore.StoreClosedError)
            return time.monotonic() - start

    promptly(close_another)


def test_the_thread_is_tried_anew(
    path: Path, store: alkstore.Store, open_store: Opener, no_threads: threading.Event
) -> None:
    """By the next who waits or listens, by a listener that waits already, and when the store itself has committed."""
    with ThreadPoolExecutor(2) as threads, store.queue("q").consume("w", poll_interval=NEVER) as consumer:
        waiting = threads.submit(next, consumer)
        wait_until(lambda: store.health().wakes == "poll", WAIT, "the refusal")
        no_threads.set()
        store.queue("other").enqueue(1)
        wait_until(lambda: store.health().wakes == "notify", WAIT, "another attempt")
        open_store().queue("q").enqueue(7)
        assert 7 == waiting.result(WAIT).payload
        store.close()

        store = open_store()
        no_threads.clear()
        listener = store.listen("c")
        getting = threads.submit(listener.get)
        assert "poll" == store.health().wakes
        no_threads.set()
        wait_until(lambda: store.health().wakes == "notify", WAIT, "another attempt")
        open_store().notify("c", "x")
        assert "x" == _payload(getting.result(WAIT))


def test_dropped_listeners_are_forgotten(
    path: Path, store: alkstore.Store, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without being closed: the thread and the bell go when nobody is left; and who is left goes on hearing."""
    monkeypatch.setattr(notify, "_LINGER", 0.3)
    kept = store.listen("c")
    dropped = [store.listen("c") for _ in range(50)]
    hub = hub_of(store)
    assert 51 == len(hub._listeners)
    dropped.clear()
    gc.collect()
    wait_until(lambda: len(hub._listeners) == 1, WAIT, "the dropped listeners to be forgotten")
    open_store().notify("c", "x")
    assert "x" == _payload(kept.get(WAIT))
    assert 1 == len(bells(path))
    del kept
    gc.collect()
    wait_until(lambda: not bells(path) and hub._thread is None, WAIT, "the hub to end")
    store.notify("c", "nobody hears it")


def test_dropped_listeners_of_a_store_in_memory_are_forgotten() -> None:
    """There is no thread that could: the next notification does it."""
    with alkstore.open("sqlite:///:memory:") as store:
        for _ in range(50):
            store.listen("c")
        gc.collect()
        listener = store.listen("c")
        store.notify("c", "x")
        assert "x" == _payload(listener.get(WAIT))
        wait_until(lambda: len(hub_of(store)._listeners) == 1, WAIT, "the dropped to be forgotten")


def test_the_thread_that_hears_ends_with_the_store(store: alkstore.Store) -> None:
    before = set(threading.enumerate())  # another test's may be left for some seconds
    store.listen("c")
    mine = [each for each in threading.enumerate() if each.name == "alkstore-hub" and each not in before]
    assert 1 == len(mine)
    store.close()
    mine[0].join(WAIT)
    assert not mine[0].is_alive()


def test_an_idle_listener_costs_next_to_nothing(store: alkstore.Store) -> None:
    """A generous bound on its processor time, which is no judgement of speed."""
    with store.listen("c") as listener, store.queue("q").consume("w") as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        before, start = time.process_time(), time.monotonic()
        assert None is listener.get(2)
        assert time.process_time() - before < 0.25 * (time.monotonic() - start)
        store.queue("q").enqueue(1)
        waiting.result(WAIT)


def test_leaving_a_consumer_whose_claim_had_to_wait_gives_back_at_once(path: Path, store: alkstore.Store) -> None:
    """W-4: nothing that was refused on the way keeps it alive until the collector comes."""
    queue, line = store.queue("q"), Path(str(path) + LINE_SUFFIX)
    queue.enqueue_many([1, 2, 3])
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def let_go() -> None:
        wait_until(line.exists, WAIT, "the claim to be refused")
        other.execute("ROLLBACK")

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(let_go)
            for handle in queue.consume("w", batch=3):
                assert handle.release()
                break
            done.result(WAIT)
        assert (3, 0) == (queue.stats().ready, queue.stats().processing)
    finally:
        gc.enable()
        other.close()
