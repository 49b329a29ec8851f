"""The database's file is removed or replaced under an open store: whatever it does next says so, and nothing is lost in silence.

Q-ENQ-1: an id that ``enqueue`` returned is of a job that is on the disk, under the database's name.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import alkstore
from alkstore import EngineUnavailableError, RunningJob, Worker
from alkstore.store import Store
from alkstore.waiting import Waiters
from alkstore_sqlite.watch import Watch
from tests.sqlite.conftest import Opener
from tests.sqlite.support import back_door, look, pool_of
from tests.support.waiting import wait_until
from tests.worker.running import Running

WAIT = 60.0
SOON = 15.0
"""Seconds within which what is seen at all is seen."""

NEVER = 3_600

COUNT = "SELECT count(*) FROM alkstore_jobs"


def beside(path: Path) -> list[Path]:
    """Return the database's files."""
    return [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]


def remove(path: Path) -> None:
    """Remove all of it."""
    for file in beside(path):
        file.unlink()


def replace(path: Path) -> None:
    """Put a copy from before in its place, as one plays back a backup."""
    remove(path)
    shutil.copy(f"{path}.backup", path)


def exchange(path: Path) -> None:
    """Put another in its place in one step, as programs do that write files safely."""
    Path(f"{path}.backup").replace(path)
    for file in beside(path)[1:]:
        file.unlink()


def remove_log(path: Path) -> None:
    """Take the log for a leftover."""
    beside(path)[1].unlink()


def replace_log(path: Path) -> None:
    """Do so, and have another process make a new one, which sees nothing of what was in it."""
    for file in beside(path)[1:]:
        file.unlink()
    shutil.copy(f"{path}.backup", beside(path)[1])


def move_folder(path: Path) -> None:
    """Rename a folder further up."""
    path.parent.rename(path.parent.with_name("elsewhere"))


def put_away(path: Path) -> None:
    """Give all of it other names."""
    for file in reversed(beside(path)):
        file.rename(file.with_name(f"away-{file.name}"))


def put_back(path: Path) -> None:
    """Undo that."""
    for file in beside(path):
        file.with_name(f"away-{file.name}").rename(file)


DEEDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "removed": (remove, "was removed"),
    "replaced": (replace, "was replaced"),
    "exchanged": (exchange, "was replaced"),
    "log removed": (remove_log, "-wal"),
    "log replaced": (replace_log, "-wal"),
    "folder moved": (move_folder, "was removed"),
}

each_deed = pytest.mark.parametrize(("deed", "what"), DEEDS.values(), ids=DEEDS.keys())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a folder that may be moved, with a backup beside it."""
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()
    with alkstore.open(f"sqlite:///{path}", durability="relaxed"):
        pass
    shutil.copy(path, f"{path}.backup")
    return path


def in_transaction(store: alkstore.Store) -> None:
    with store.transaction() as tx:
        tx.queue("q").enqueue(1)


OPERATIONS: dict[str, Callable[[alkstore.Store], object]] = {
    "enqueue": lambda store: store.queue("q").enqueue(1),
    "enqueue many": lambda store: store.queue("q").enqueue_many(range(3)),
    "claim": lambda store: store.queue("q").claim_one("w"),
    "transaction": in_transaction,
    "read": lambda store: store.queue("q").stats(),
    "wait": lambda store: store.queue("q").wait(WAIT),
    "wait for a result": lambda store: store.queue("q").wait_result(1, WAIT),
    "consume": lambda store: next(store.queue("q").consume("w")),
    "notify": lambda store: store.notify("c"),
    "listen": lambda store: store.listen("c"),
    "health": lambda store: store.health(),
}


@each_deed
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_is_done_afterwards_says_so(
    path: Path, open_store: Opener, deed: Callable[[Path], None], what: str, operation: str
) -> None:
    """By an error that says which file it is and what to do, and that trying again is in vain."""
    store = open_store()
    store.queue("q").enqueue("before")
    deed(path)
    for _ in range(2):
        with pytest.raises(EngineUnavailableError, match=what) as caught:
            OPERATIONS[operation](store)
        assert str(path) in str(caught.value)
        assert "open the store anew" in str(caught.value)
        assert caught.value.lasting
    if path.exists() and what != "-wal":
        with open_store() as another:  # which the name stands for now
            assert 0 == another.queue("q").stats().ready
            another.queue("q").enqueue("after")
        assert [1] == look(path, COUNT)


@each_deed
def test_a_transaction_in_flight_is_rolled_back(
    path: Path, open_store: Opener, deed: Callable[[Path], None], what: str
) -> None:
    """The commit is the last moment to find it out, and nothing is on either file then."""
    store = open_store()
    kept = path.parent.parent / "kept.db"
    kept.hardlink_to(path)
    moved: list[int] = []
    with pytest.raises(EngineUnavailableError, match=what), store.transaction() as tx:
        tx.queue("q").enqueue(1)
        deed(path)
        moved.append(1)
    assert moved
    store.close()
    for file in (path, kept):
        if file.exists():
            assert [0] == look(file, COUNT)


def test_what_is_done_while_the_unit_runs_is_seen_before_the_commit(
    path: Path, store: alkstore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As late as can be: the file is replaced when the job has been written and not yet committed."""
    units = pool_of(store).take()
    pool_of(store).give(units)
    insert = type(units).insert

    def inserted(*arguments: Any) -> list[int]:
        ids = insert(*arguments)
        exchange(path)
        return ids

    monkeypatch.setattr("alkstore_sqlite.operations.Units.insert", inserted)
    with pytest.raises(EngineUnavailableError, match="was replaced"):
        store.queue("q").enqueue(1)


@each_deed
def test_those_who_wait_are_told(
    path: Path, open_store: Opener, caplog: pytest.LogCaptureFixture, deed: Callable[[Path], None], what: str
) -> None:
    """All of them, heads of their lines or not; and it is in the log, once."""
    if deed is replace:  # in two steps: who looks between them finds no file, and says so
        what = "was (removed|replaced)"
    store = cast(Store, open_store())
    queue = store.queue("q")
    queue.enqueue(1, keep_result=60, delay=NEVER)
    listener = store.listen("c")
    waits: list[Callable[[], object]] = [
        lambda: queue.wait(NEVER),
        lambda: queue.wait(NEVER),
        lambda: next(queue.consume("w", poll_interval=NEVER)),
        lambda: next(queue.consume("w", poll_interval=NEVER)),
        lambda: queue.wait_result(1, NEVER, poll_interval=NEVER),
        listener.get,
    ]
    with ThreadPoolExecutor(len(waits)) as threads:
        waiting = [threads.submit(wait) for wait in waits]
        wait_until(lambda: len(store.wakes.waiters._line("q")) == 4, WAIT, "all to wait")
        wait_until(lambda: len(store.wakes.results._waiting) == 1, WAIT, "the result to be waited for")
        deed(path)
        try:
            for each in waiting:
                with pytest.raises(EngineUnavailableError, match=what):
                    each.result(SOON)
        except BaseException:
            store.close()  # else those who still wait would keep the test from ending
            raise

    def said() -> int:
        messages = [record.getMessage() for record in caplog.records if record.name == "alkstore"]
        return sum("open the store anew" in message for message in messages)

    wait_until(said, WAIT, "the log's line")
    time.sleep(0.5)  # for two more looks
    assert 1 == said()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody who waits has looked, and is about to sleep."""
    sleeps, sleep = threading.Event(), Waiters.sleep

    def sleep_seen(*arguments: Any) -> None:
        sleeps.set()
        sleep(*arguments)

    monkeypatch.setattr(Waiters, "sleep", sleep_seen)
    return sleeps


def wait_for_next(store: alkstore.Store) -> object:
    """Wait for a job, and poll never."""
    return next(store.queue("q").consume("w", poll_interval=NEVER))


@each_deed
def test_those_who_wait_are_told_before_the_first_look_of_the_thread_that_hears(
    path: Path,
    store: alkstore.Store,
    sleeps: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    deed: Callable[[Path], None],
    what: str,
) -> None:
    """Which has no connection then that would tell it of the log: the attempt to open one does."""
    store.queue("q").enqueue(1, delay=NEVER)
    may_look, has_changed = threading.Event(), Watch.has_changed

    def look_later(watch: Watch) -> bool:
        assert may_look.wait(WAIT)
        return has_changed(watch)

    monkeypatch.setattr(Watch, "has_changed", look_later)
    with ThreadPoolExecutor(1) as threads, store:
        waiting = threads.submit(wait_for_next, store)
        assert sleeps.wait(WAIT)
        deed(path)
        may_look.set()
        with pytest.raises(EngineUnavailableError, match=what):
            waiting.result(SOON)


def test_what_is_lost_once_more_is_noticed_by_the_next_thread_that_hears(
    path: Path, store: alkstore.Store, sleeps: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may never have seen that it was back."""
    monkeypatch.setattr("alkstore_sqlite.notify._LINGER", 0.05)
    with ThreadPoolExecutor(1) as threads, store:
        for _ in range(2):
            sleeps.clear()
            waiting = threads.submit(wait_for_next, store)
            assert sleeps.wait(WAIT)
            put_away(path)
            with pytest.raises(EngineUnavailableError):
                waiting.result(SOON)
            wait_until(lambda: not hears(), WAIT, "the thread that hears to end")
            put_back(path)


def hears() -> bool:
    """Say whether a store's thread runs that hears of others' commits."""
    return any(thread.name == "alkstore-hub" for thread in threading.enumerate())


def test_a_worker_says_so_once_tries_seldom_and_goes_on_when_the_file_is_back(
    path: Path, open_store: Opener, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, done = cast(Store, open_store()), threading.Event()
    queue = store.queue("q")
    attempts: list[int] = []
    lost = type(pool_of(store).files).lost

    def noted(files: Any) -> EngineUnavailableError:
        attempts.append(1)
        return lost(files)

    def handle(_: RunningJob) -> None:
        done.set()

    monkeypatch.setattr(type(pool_of(store).files), "lost", noted)
    with Running(Worker(store, {"q": handle}, poll_interval=0.05)):
        wait_until(lambda: len(store.wakes.waiters._line("q")) == 1, WAIT, "the worker to be idle")
        put_away(path)
        wait_until(lambda: attempts, WAIT, "the worker to find it out")
        time.sleep(1)
        assert 1 < len(attempts) < 50, "it tries again, but not without pauses"
        put_back(path)
        queue.enqueue(1)
        assert done.wait(WAIT)
        wait_until(lambda: not queue.jobs(), WAIT, "the ack")
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 == sum("claiming from 'q' waits for the database" in record.getMessage() for record in said)
    assert any("open the store anew" in record.getMessage() for record in said)


@pytest.mark.parametrize("options", [{}, {"isolation_level": None}], ids=["their transaction", "auto-commit"])
def test_a_joined_connection_says_so(path: Path, store: alkstore.Store, options: dict[str, Any]) -> None:
    """Whether it has been joined already or not; and nothing of the operation is left in what it has open."""
    with closing(sqlite3.connect(path, **options)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        tx = store.join(connection)
        tx.queue("q").enqueue("before")
        connection.commit()
        connection.execute("INSERT INTO theirs VALUES (1)")
        exchange(path)
        for act in (
            lambda: tx.queue("q").enqueue("after"),
            lambda: tx.queue("q").stats(),
            lambda: store.join(connection),
        ):
            with pytest.raises(EngineUnavailableError, match="was replaced"):
                act()
        assert [(1,)] == connection.execute("SELECT x FROM theirs").fetchall()
        assert [(1,)] == connection.execute(COUNT).fetchall()


def test_a_connection_that_the_pool_opens_later_is_none_to_another_file(path: Path, open_store: Opener) -> None:
    """One store is never on two files, however many connections it needs."""
    store = open_store()
    taken = pool_of(store).take()
    exchange(path)
    with pytest.raises(EngineUnavailableError, match="was replaced"):
        pool_of(store).take()
    pool_of(store).give(taken)


def test_a_file_that_is_replaced_as_it_is_opened_is_not_taken_for_the_other(
    path: Path, open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA schema_version").fetchone()
        if Path(f"{path}.backup").exists():
            exchange(path)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connected)
    with pytest.raises(EngineUnavailableError, match="was replaced"):
        open_store()
    monkeypatch.undo()
    assert 0 == open_store().queue("q").stats().ready


def test_where_this_process_may_not_look_any_more_nothing_is_said(path: Path, store: alkstore.Store) -> None:
    """As after a change of the user: what can't be looked at isn't gone."""
    seen: list[str] = []

    def refused(name: str) -> os.stat_result:
        seen.append(name)
        raise PermissionError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alkstore_sqlite.files._stat", refused)
        store.queue("q").enqueue(1)
    assert seen
    assert [1] == look(path, COUNT)


def test_a_link_is_followed_once(tmp_path: Path, path: Path) -> None:
    """What it points to when the store is opened is the database; where it points later doesn't matter."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with alkstore.open(f"sqlite:///{link}", durability="relaxed") as store:
        link.unlink()
        link.symlink_to(tmp_path / "nowhere.db")
        store.queue("q").enqueue(1)
    assert [1] == look(path, COUNT)


def test_a_child_can_open_what_has_the_name_now(path: Path, store: alkstore.Store) -> None:
    """And its inherited store says what happened."""
    exchange(path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(EngineUnavailableError, match="was replaced"):
                store.queue("q").enqueue(1)
            with alkstore.open(f"sqlite:///{path}", durability="relaxed") as another:
                another.queue("q").enqueue(1)
            code = 0
        finally:
            os._exit(code)
    assert 0 == os.waitpid(child, 0)[1]
    assert [1] == look(path, COUNT)


def test_closing_the_store_leaves_the_other_file_alone(path: Path, open_store: Opener) -> None:
    """Its log, too, which somebody is using."""
    store = open_store()
    store.queue("q").enqueue(1)
    remove(path)
    with back_door(Path(f"{path}.backup")) as connection:
        connection.execute("VACUUM INTO ?", [str(path)])
    with alkstore.open(f"sqlite:///{path}", durability="relaxed") as another:
        another.queue("q").enqueue(2)
        store.close()
        another.queue("q").enqueue(3)
        assert all(file.exists() for file in beside(path))
    assert [2] == look(path, COUNT)
