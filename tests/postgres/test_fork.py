"""A store survives fork(): the child has connections of its own, and the parent's go on working (S-4)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from alkstore.errors import AlkstoreError, TransactionError
from alkstore.store import Store
from contract_tests.scale import rounds
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, in_transaction, pool_of
from tests.support.waiting import wait_until

WAIT = 60


def in_child(work: Callable[[], object]) -> int:
    """Fork, do the work in the child and leave it; return its process id. An error is the exit code 1."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as exc:  # noqa: BLE001 - whatever it is, a child must not go on into the tests
            sys.stderr.write(f"in the child: {exc!r}\n")
        finally:
            os._exit(code)
    return pid


def result_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_parent_and_children_enqueue(store: Store, database: str, schema: str, leave: str) -> None:
    """The parent 1, four children 100 each, and the parent goes on: 401 and its own three, without a hang or a warning.

    A transaction is open all the while: no way of leaving a child, its garbage included, ends it.
    """
    command = [sys.executable, "-W", "error", "-m", "tests.postgres.forking", database, schema, leave]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert store.queue("q").stats().ready == 401 + 3


def test_the_parents_session_is_the_same_after_a_fork(store: Store, door: Door) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    before = door.sessions()
    assert result_of(in_child(lambda: queue.enqueue(2))) == 0
    queue.enqueue(3)
    assert {pid for pid, _ in before} <= {pid for pid, _ in door.sessions()}


def test_an_open_transaction_is_the_parents_alone(store: Store) -> None:
    """It refuses use in the child, where the store itself works; and the parent commits it."""
    with store.transaction() as tx:
        tx.queue("q").enqueue(1)

        def work() -> None:
            with pytest.raises(TransactionError):
                tx.queue("q").enqueue(2)
            with pytest.raises(TransactionError):
                tx.execute("SELECT 1")
            store.queue("q").enqueue("the child's own")
            gc.collect()

        assert result_of(in_child(work)) == 0
        tx.queue("q").enqueue(3)
    assert store.queue("q").stats().ready == 3


def test_leaving_an_inherited_transaction_does_nothing_to_it(store: Store) -> None:
    """Whichever way the child leaves the block."""
    with store.transaction() as tx:
        tx.queue("q").enqueue(1)

        def commit() -> None:
            with pytest.raises(AlkstoreError):
                tx.__exit__(None, None, None)

        def roll_back() -> None:
            error = ValueError()
            tx.__exit__(ValueError, error, None)
            store.close()

        assert result_of(in_child(commit)) == 0
        assert result_of(in_child(roll_back)) == 0
        tx.queue("q").enqueue(2)
    assert store.queue("q").stats().ready == 2


def test_a_child_that_lives_on_does_not_keep_the_parents_sessions_alive(store: Store, door: Door) -> None:
    """It holds no copy of their sockets: when the parent's end is closed, the server sees the end."""
    queue = store.queue("q")
    queue.enqueue(1)
    hold_read, hold_write = os.pipe()

    def work() -> None:
        os.close(hold_write)
        os.read(hold_read, 1)

    child = in_child(work)
    try:
        connection = pool_of(store).acquire()
        descriptor = connection.fileno()
        pid = connection.info.backend_pid
        # The parent's death, as the server sees it: the last copy of the socket is closed, with nothing sent.
        spare = os.open(os.devnull, os.O_RDWR)
        os.dup2(spare, descriptor)
        os.close(spare)
        wait_until(lambda: pid not in {found for found, _ in door.sessions()}, WAIT, "the server to end the session")
        pool_of(store).discard(connection)
    finally:
        os.close(hold_write)
        os.close(hold_read)
        assert result_of(child) == 0


def test_forks_while_other_threads_use_the_store(open_store: Opener, door: Door) -> None:
    """Whatever those threads are in the middle of: no hang, no harm on either side, no session cut."""
    store = open_store(pool_size=3)
    queue = store.queue("q")
    stop = threading.Event()
    counts: list[int] = []
    failures: list[BaseException] = []

    def work() -> None:
        done = 0
        try:
            while not stop.is_set():
                with store.transaction() as tx:
                    tx.queue("q").enqueue(done)
                done += 1
                if done % 5 == 0:
                    pool = pool_of(store)
                    pool.discard(pool.acquire())  # so that connections are always being made
        except BaseException as exc:
            failures.append(exc)
            raise
        finally:
            counts.append(done)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    forks = rounds(100)
    try:
        for _ in range(forks):
            assert result_of(in_child(lambda: queue.enqueue("child"))) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT)
    assert failures == []
    assert queue.stats().ready == sum(counts) + forks
    assert in_transaction(door.sessions()) == []


def test_a_grandchild(store: Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1)

    def child() -> None:
        queue.enqueue(2)
        assert result_of(in_child(lambda: queue.enqueue(3))) == 0
        queue.enqueue(4)

    assert result_of(in_child(child)) == 0
    assert queue.enqueue(5) == 5
