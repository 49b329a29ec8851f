"""What the tests run in processes of their own: ``python -m tests.sqlite.programs NAME ARGUMENTS``."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import alkstore
from alkstore_sqlite import fork, schema


def say(what: object) -> None:
    """Print a line, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def hear() -> str:
    """Wait for a line."""
    return sys.stdin.readline().rstrip("\n")


def open_each() -> None:
    """Open each file named to it, use it, and say what came of it."""
    say("ready")
    while url := hear():
        try:
            # Fifteen others are before this one, perhaps, on a machine that has other things to do, too.
            with alkstore.open(url, durability="relaxed", lock_timeout=60) as store:
                say(f"enqueued {store.queue('q').enqueue(os.getpid())}")
        except alkstore.AlkstoreError as exc:
            say(repr(exc))


def migrate_half_way(url: str) -> None:
    """Stop in the middle of the first migration."""
    whole = schema.statements

    def half(file: str) -> Iterator[str]:
        for number, statement in enumerate(whole(file)):
            if number == 3:
                say("half way")
                hear()
            yield statement

    schema.statements = half
    alkstore.open(url)


def watch_files(path: str) -> None:
    """Do what the library does, and say which files were opened, closed or touched other than by SQLite meanwhile."""
    touched: list[str] = []
    close, dup = os.close, os.dup

    def note(what: object) -> None:
        """Note the file that a path or a descriptor means, as an absolute path without links."""
        path = f"/proc/self/fd/{what}" if isinstance(what, int) else os.fsdecode(cast("str | bytes", what))
        touched.append(os.path.realpath(path))

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "shutil.copyfile", "os.remove", "os.rename", "os.truncate", "os.link"):
            for argument in arguments[: 2 if event in ("os.rename", "os.link", "shutil.copyfile") else 1]:
                note(argument)

    def closing(descriptor: int) -> None:
        note(descriptor)
        close(descriptor)

    def duplicating(descriptor: int) -> int:
        note(descriptor)
        return dup(descriptor)

    sys.addaudithook(hook)  # sees open(), os.open() and what is built on them; not SQLite, which is C
    os.close, os.dup = closing, duplicating  # no audit event tells of these
    url = f"sqlite:///{path}"
    first, second = alkstore.open(url, lock_timeout=10), alkstore.open(url, lock_timeout=10)
    queue = first.queue("q")
    ids = queue.enqueue_many(range(20))
    taken = threading.Event()

    def contend() -> None:
        taken.wait()
        second.queue("q").enqueue("waited for the write lock, in the line")

    thread = threading.Thread(target=contend)
    thread.start()
    with first.transaction() as tx:
        tx.queue("q").enqueue("held the write lock")
        taken.set()
        time.sleep(0.3)  # long enough for the other to have found it taken; nothing depends on it
    thread.join()
    for job in queue.claim_batch("w", 5):
        job.ack()
    job = queue.claim_one("w")
    assert job is not None
    job.fail("no")
    queue.retry_dead(job.id)
    queue.sweep_expired()
    queue.stats()
    queue.get_job(ids[-1])
    first.health()
    child = os.fork()
    if child == 0:
        queue.enqueue("from a child")
        say(json.dumps(touched))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    second.close()
    first.close()
    say(json.dumps(touched))


def hammer(url: str, seconds: str) -> None:
    """Enqueue, claim and ack for a while, and say how many cycles were done and what the slowest call took."""
    done, slowest = 0, 0.0
    with alkstore.open(url) as store:
        queue = store.queue("q")
        say("ready")
        hear()
        until = time.monotonic() + float(seconds)
        while (started := time.monotonic()) < until:
            for call in (lambda: queue.enqueue(os.getpid()), lambda: _claim_and_ack(queue)):
                call()
                now = time.monotonic()
                started, slowest = now, max(slowest, now - started)
            done += 1
    say(json.dumps([done, slowest]))


def _claim_and_ack(queue: alkstore.Queue) -> None:
    job = queue.claim_one(str(os.getpid()))
    assert job is None or job.ack()


def write_until_killed(url: str, seed: str) -> None:
    """Do one operation after the other, saying before and after each what it is."""
    dice = random.Random(seed)
    with alkstore.open(url, durability="relaxed") as store:
        queue = store.queue("q", max_attempts=3)
        say("ready")
        while True:
            for _ in range(dice.randint(1, 3)):
                say(f"enqueued {queue.enqueue('x' * dice.choice((10, 20_000)))}")
            say(f"enqueued {' '.join(map(str, queue.enqueue_many(range(5))))}")
            for job in queue.claim_batch("w", dice.randint(1, 4)):
                operation = dice.choice(("ack", "retry", "fail", "release", "keep", "cancel"))
                say(f"will {operation} {job.id}")
                _settle(queue, job, operation)
                say(f"did {operation} {job.id}")
            dead = queue.jobs("dead", limit=1)
            if dead and dice.random() < 0.3:
                queue.retry_dead(dead[0].id)


def _settle(queue: alkstore.Queue, job: alkstore.JobHandle, operation: str) -> None:
    if operation == "ack":
        job.ack()
    elif operation == "retry":
        job.retry("again", delay=0)
    elif operation == "fail":
        job.fail("no")
    elif operation == "release":
        job.release()
    elif operation == "cancel":
        queue.cancel(job.id)


def keep_lock(url: str) -> None:
    """Begin a transaction, say so, and keep it until told to end it."""
    with alkstore.open(url) as store, store.transaction() as tx:
        tx.queue("q").enqueue("kept")
        say("locked")
        hear()


# --- forks -------------------------------------------------------------------------------------------------------


def enqueue_when_told(path: str) -> None:
    """Enqueue a job at each line, and say when it is done, until told to end."""
    with alkstore.open(f"sqlite:///{path}", durability="relaxed") as store:
        say("ready")
        while hear() != "end":
            store.queue("q").enqueue(os.getpid())
            say("done")


def wait_for_jobs(path: str) -> None:
    """Wait for jobs of a queue that has none."""
    with alkstore.open(f"sqlite:///{path}", durability="relaxed") as store:
        say("waiting")
        store.queue("idle").wait()


def enqueue_on_demand(path: str) -> None:
    """Enqueue numbers from 0, one for each line, up to 2 ms after it was heard."""
    dice = random.Random()
    with alkstore.open(f"sqlite:///{path}", durability="relaxed") as store:
        say("ready")
        turn = 0
        while hear():
            time.sleep(dice.uniform(0, 0.002))
            store.queue("q").enqueue(turn)
            store.notify("c", str(turn))
            turn += 1


def fork_four(url: str, how: str) -> None:
    """Enqueue 1, have 4 children enqueue 100 each and end, and go on."""
    store = alkstore.open(url, durability="relaxed")
    queue = store.queue("q")
    queue.enqueue("parent")
    if how.startswith("multiprocessing"):
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=_hundred, args=(queue, how)) for _ in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0, child.exitcode
    else:
        pids: list[int] = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                _hundred(queue, how)
            pids.append(pid)
        for pid in pids:
            assert os.waitpid(pid, 0)[1] == 0
    for _ in range(3):
        job = queue.claim_one("parent")
        assert job is not None
        assert job.release()
    queue.enqueue("after")
    assert queue.cancel(max(job.id for job in queue.jobs(limit=1_000)))
    say(queue.stats().ready)
    store.close()


def _hundred(queue: alkstore.Queue, how: str) -> None:
    signal.alarm(60)
    for number in range(100):
        queue.enqueue(number)
    if how.endswith("os._exit"):
        os._exit(0)
    sys.exit(0)


def parent_ends_first(url: str, how: str) -> None:
    """Fork, write in the child, close or end in the parent, and only then write in the child again."""
    store = alkstore.open(url, durability="relaxed")
    store.queue("q").enqueue("parent")
    ended, parents_end = os.pipe()
    childs_end, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(parents_end)
        store.queue("q").enqueue("while the parent has the file open")
        os.write(begun, b"x")
        os.read(ended, 1)  # until the parent has closed the store, or is gone
        for number in range(99):
            store.queue("q").enqueue(number)
        say("child done")
        sys.exit(0)
    os.close(ended)
    os.read(childs_end, 1)
    if how == "close":
        store.close()
        os.close(parents_end)
        assert os.waitpid(pid, 0)[1] == 0
    elif how == "exit":
        sys.exit(0)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def fork_with_foreign_connection(path: str, closes: str) -> None:
    """Fork with an idle connection of the application's own, and close it before or after the child opens a store."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE customers (name)")
    closed, opened = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os.close(closed[1])
        if closes == "before":
            os.read(closed[0], 1)
        try:
            with alkstore.open(f"sqlite:///{path}", durability="relaxed") as store:
                store.queue("q").enqueue("before")
                os.close(opened[1])
                os.read(closed[0], 1)
                store.queue("q").enqueue("after")
        except alkstore.EngineUnavailableError as exc:
            say(type(exc).__name__)
        os._exit(0)
    os.close(closed[0])
    os.close(opened[1])
    if closes == "after":
        os.read(opened[0], 1)
    connection.close()
    os.close(closed[1])
    assert os.waitpid(pid, 0)[1] == 0


def fork_with_temporary_table(url: str) -> None:
    """Fork with a transaction open that the child can't clear: it refuses, in a new store as well."""
    store = alkstore.open(url, durability="relaxed")
    with store.transaction() as tx:
        tx.queue("q").enqueue("parent")
        tx.execute("CREATE TEMPORARY TABLE scratch AS SELECT 1 AS x")
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            for use in (lambda: store.queue("q").enqueue("never"), lambda: alkstore.open(url)):
                try:
                    use()
                except alkstore.EngineUnavailableError as exc:
                    say(type(exc).__name__)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert tx.execute("SELECT x FROM scratch").fetchall() == [(1,)]
    say(store.queue("q").stats().ready)
    store.close()


def fork_in_transaction(url: str, after: str) -> None:
    """Fork with a transaction open; the child finds it refused, and writes once the parent has ended it."""
    store = alkstore.open(url, durability="relaxed")
    reader, writer = os.pipe()
    pid = 0
    with contextlib.suppress(KeyError), store.transaction() as tx:
        tx.queue("q").enqueue("first of the parent's")
        rows = tx.execute("SELECT id FROM alkstore_jobs")  # a cursor that isn't read to its end
        pid = os.fork()
        if pid == 0:
            _use_inherited(store, tx, writer)
        os.close(writer)
        assert os.read(reader, 1) == b"r"
        assert len(rows.fetchall()) == 1
        tx.queue("q").enqueue("second of the parent's")
        if after == "rollback":
            raise KeyError
    assert os.waitpid(pid, 0)[1] == 0
    say(store.queue("q").stats().ready)


def _use_inherited(store: alkstore.Store, tx: alkstore.Transaction, writer: int) -> None:
    signal.alarm(60)
    code = 1
    try:
        for use in (lambda: tx.queue("q").enqueue("never"), lambda: tx.execute("SELECT 1")):
            try:
                use()
            except alkstore.TransactionError:
                continue
            os._exit(2)
        os.write(writer, b"r")
        for number in range(20):
            store.queue("q").enqueue(number)
        code = 0
    finally:
        os._exit(code)


def fork_among_threads(url: str, forks: str) -> None:
    """Fork again and again while threads read, write and keep transactions."""
    store = alkstore.open(url, durability="relaxed")
    stop, counts, problems = threading.Event(), [0] * 4, list[str]()

    def work(number: int, act: Callable[[], int]) -> None:
        try:
            while not stop.is_set():
                counts[number] += act()
        except alkstore.AlkstoreError as exc:
            problems.append(repr(exc))

    def one() -> int:
        store.queue("q").enqueue("one")
        return 1

    def two() -> int:
        with store.transaction() as tx:
            tx.queue("q").enqueue("two")
            tx.execute("SELECT count(*) FROM alkstore_jobs")
            for _ in tx.execute(
                "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 99) SELECT x FROM n"
            ):
                pass  # inside SQLite at each step
            tx.queue("q").enqueue("two")
        return 2

    def read() -> int:
        store.queue("q").stats()
        return 0

    acts: Final = (one, one, two, read)
    threads = [threading.Thread(target=work, args=(number, act)) for number, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    pids: list[int] = []
    for _ in range(int(forks)):
        pid = os.fork()
        if pid == 0:
            _ten(store)
        pids.append(pid)
        if len(pids) == 4:
            assert os.waitpid(pids.pop(0), 0)[1] == 0
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems, problems
    say(json.dumps([sum(counts) + 10 * int(forks), store.queue("q").stats().ready]))
    store.close()


def _ten(store: alkstore.Store) -> None:
    signal.alarm(60)
    code = 1
    try:
        for number in range(10):
            store.queue("q").enqueue(number)
        code = 0
    finally:
        os._exit(code)


def fork_memory() -> None:
    """Fork with a store in memory: the child finds it closed, the parent goes on."""
    store = alkstore.open("sqlite:///:memory:")
    store.queue("q").enqueue("parent")
    pid = os.fork()
    if pid == 0:
        try:
            store.queue("q").enqueue("never")
        except alkstore.StoreClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    store.queue("q").enqueue("parent")
    say(store.queue("q").stats().ready)


def fork_inside_sqlite(url: str) -> None:
    """Fork while another thread won't come out of SQLite."""
    fork._CALM_WITHIN = 0.2
    store = alkstore.open(url, durability="relaxed")
    store.queue("q").enqueue("parent")
    inside, go_on = threading.Event(), threading.Event()

    def stay() -> int:
        inside.set()
        go_on.wait()
        return 1

    def read() -> None:
        with store.transaction() as tx:
            tx.execute("SELECT 1").connection.create_function("stay", 0, stay)
            tx.execute("SELECT stay()").fetchone()

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        try:
            store.queue("q").enqueue("never")
        except alkstore.EngineUnavailableError as exc:
            say(type(exc).__name__)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    go_on.set()
    thread.join()
    say(store.queue("q").stats().ready)
    store.close()


def main(name: str, *arguments: str) -> None:
    """Run the function of that name."""
    function: Any = globals()[name]
    function(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
