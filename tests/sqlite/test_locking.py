"""Who writes next: in the process and between processes, fairly and within the time allowed (Z-12)."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import alkstore
from alkstore_sqlite import locking
from alkstore_sqlite.locking import LINE_SUFFIX, Hold, Line, Mutex
from tests.sqlite.conftest import Opener
from tests.sqlite.support import Program, back_door, url_of
from tests.support.waiting import wait_until


@contextmanager
def threads(*targets: Callable[[], object]) -> Generator[list[threading.Thread]]:
    """Run functions in threads, all ended when the block is left."""
    started = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in started:
        thread.start()
    yield started
    for thread in started:
        thread.join(30)
        assert not thread.is_alive()


def test_a_mutex_excludes_and_times_out() -> None:
    mutex = Mutex()
    hold, other = Hold(mutex.lock), Hold(mutex.lock)
    assert mutex.acquire(hold, 0)
    assert not mutex.acquire(other, 0)
    assert not mutex.acquire(other, 0.05)
    hold.give()
    assert mutex.acquire(other, 0)


def test_a_waiting_thread_is_not_passed_by_without_end() -> None:
    """One thread takes the mutex again and again; another gets it although it is never free for long."""
    mutex, stop, passed = Mutex(), threading.Event(), [0]
    holding = threading.Event()

    def hog() -> None:
        while not stop.is_set():
            hold = Hold(mutex.lock)
            assert mutex.acquire(hold, 30)
            holding.set()
            time.sleep(0.001)
            passed[0] += 1
            hold.give()

    with threads(hog):
        holding.wait()
        for _ in range(5):
            before = passed[0]
            hold = Hold(mutex.lock)
            assert mutex.acquire(hold, 30)
            after = passed[0]
            hold.give()
            assert after - before < 100
        stop.set()


def test_threads_that_wait_come_in_order_and_those_who_give_up_block_nobody() -> None:
    mutex, order = Mutex(), list[int]()
    hold = Hold(mutex.lock)
    assert mutex.acquire(hold, 0)

    def take(number: int, timeout: float) -> None:
        hold = Hold(mutex.lock)
        if mutex.acquire(hold, timeout):
            order.append(number)
            hold.give()

    waiting: list[threading.Thread] = []
    for number in range(6):
        timeout = 0.1 if number in (0, 3) else 30
        thread = threading.Thread(target=take, args=(number, timeout))
        thread.start()
        waiting.append(thread)
        wait_until(lambda count=number + 1: len(mutex._line) == count, 10, "the thread to be in line")
    wait_until(lambda: len(mutex._line) == 4, 10, "the two to give up")
    hold.give()
    for thread in waiting:
        thread.join(30)
    assert [1, 2, 4, 5] == order
    assert mutex.acquire(hold, 0)


@pytest.fixture
def database(path: Path) -> str:
    path.touch()
    return str(path)


def test_only_the_head_of_the_line_tries(database: str) -> None:
    first, second = Line(database), Line(database)  # each with a descriptor of its own, as in two processes
    tries, go, order = [0, 0], threading.Event(), list[int]()

    def stand(number: int, line: Line) -> None:
        def attempt() -> int | None:
            tries[number] += 1
            return number if go.is_set() else None

        got = line.wait(attempt, time.monotonic() + 30)
        assert got == number
        order.append(number)

    with threads(lambda: stand(0, first)):
        wait_until(lambda: tries[0] > 0, 10, "the first to be the head")
        with threads(lambda: stand(1, second)):
            wait_until(lambda: tries[0] > 300, 30, "the head to have tried often")
            seen = tries[1]
            go.set()
    assert seen < 30
    assert {0, 1} == set(order)
    first.close()
    second.close()


def test_whoever_stands_behind_a_stopped_head_gets_on(database: str) -> None:
    descriptor = os.open(database + LINE_SUFFIX, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    line, tries = Line(database), [0]

    def attempt() -> bool | None:
        tries[0] += 1
        return True if tries[0] == 2 else None

    assert line.wait(attempt, time.monotonic() + 30)
    # He has left, and comes again; the lock that he waited for may come in between.
    os.close(descriptor)
    assert line.wait(lambda: True, time.monotonic() + 30)
    line.close()


def test_the_line_ends_with_the_time_allowed(database: str) -> None:
    line = Line(database)
    assert line.wait(lambda: None, time.monotonic() + 0.05) is None
    descriptor = os.open(database + LINE_SUFFIX, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert line.wait(lambda: None, time.monotonic() + 0.05) is None
    os.close(descriptor)
    line.close()


def test_without_a_line_whoever_waits_tries_by_himself(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(database + LINE_SUFFIX).mkdir()
    assert Line(database).wait(lambda: 1, time.monotonic()) == 1
    tries = iter([None, None, 1])
    assert Line(database).wait(lambda: next(tries), time.monotonic() + 30) == 1
    Path(database + LINE_SUFFIX).rmdir()

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    descriptor = os.open(database + LINE_SUFFIX, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(locking.threading.Thread, "start", no_thread)
    tries = iter([None, None, None, 1])
    assert Line(database).wait(lambda: next(tries), time.monotonic() + 30) == 1
    os.close(descriptor)


def test_a_foreign_lock_is_waited_for_no_longer_than_allowed(path: Path, open_store: Opener) -> None:
    store = open_store(lock_timeout=0.2)
    queue = store.queue("q")
    with back_door(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for call in (lambda: queue.enqueue(1), lambda: queue.claim_one("w"), lambda: store.transaction().__enter__()):
            with pytest.raises(alkstore.EngineBusyError) as caught:
                call()
            assert "SQLITE_BUSY" == getattr(caught.value.__cause__, "sqlite_errorname", None)
        assert 0 == queue.stats().ready  # reading takes no lock
        connection.execute("COMMIT")
    assert 1 == queue.enqueue(1)


def test_a_write_waits_for_another_processs_transaction(path: Path, store: alkstore.Store) -> None:
    with Program("keep_lock", url_of(path)) as program:
        assert "locked" == program.hear()
        ids: list[int] = []
        with threads(lambda: ids.append(store.queue("q").enqueue("waited"))):
            wait_until(lambda: Path(f"{path}{LINE_SUFFIX}").exists(), 10, "the writer to stand in line")
            program.tell()
        program.finish()
    assert [2] == ids


def test_a_killed_holder_of_the_lock_holds_nobody_up(path: Path, store: alkstore.Store) -> None:
    with Program("keep_lock", url_of(path)) as program:
        assert "locked" == program.hear()
        program.kill()
    assert 1 == store.queue("q").enqueue("the other's was rolled back")


def test_threads_of_one_store_wait_for_its_transaction(open_store: Opener) -> None:
    store = open_store(lock_timeout=0.1)
    errors: list[str] = []

    def write() -> None:
        try:
            store.queue("q").enqueue(1)
        except alkstore.EngineBusyError as exc:
            errors.append(str(exc))

    with store.transaction(), threads(write):
        pass
    assert ["0.1 s" in error for error in errors] == [True]
    with threads(write):
        pass
    assert 1 == store.queue("q").stats().ready


def test_closing_ends_the_wait_for_a_lock(path: Path, open_store: Opener) -> None:
    store, errors = open_store(lock_timeout=60), list[str]()

    def write() -> None:
        try:
            store.queue("q").enqueue(1)
        except alkstore.StoreClosedError as exc:
            errors.append(type(exc).__name__)

    with back_door(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with threads(write, write, write):
            wait_until(lambda: Path(f"{path}{LINE_SUFFIX}").exists(), 10, "a writer to stand in line")
            store.close()
    assert ["StoreClosedError"] * 3 == errors
