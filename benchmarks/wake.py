"""How long after a commit another process has the job, and what waiting costs, beside the rawest way of telling.

    python benchmarks/wake.py [--url postgresql://user@host/database] [--rounds 300] [--idle 20] [--turns 9]

SQLite is always measured, PostgreSQL where a URL is given. A second process enqueues, and notes the time when ``enqueue``
has returned, which is after the commit; this one has been waiting in ``queue.consume``, which never polls, and notes the
time when it has the handle, claimed. Beside it, in the same run and between the same two processes: a datagram on a Unix
socket (SQLite), and NOTIFY to a session that does nothing but wait for it (PostgreSQL), from the moment before it is sent:
that is what telling takes at least. They carry no job, and claim nothing. All clocks are the machine's monotonic one. Then
nothing happens for a while, and the processor time of this process is counted.

And what listeners cost those who commit: eight threads enqueue, each job in a commit of its own, in turns with and without
eight stores in another process that are waiting, for jobs of another queue. They hear of every commit that is rung, and do
nothing about it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import alkstore

NEVER = 3_600
PAUSE = 0.005
COMMITTERS = LISTENERS = 8
TURN = 1.5


def enqueue(url: str, options: dict[str, Any], pipe: Connection) -> None:
    """Enqueue at each word, and say when that was done."""
    with alkstore.open(url, **options) as store:
        queue = store.queue("bench")
        while pipe.recv():
            queue.enqueue("work")
            pipe.send(time.monotonic_ns())


def send_datagrams(path: str, pipe: Connection) -> None:
    """Send a datagram at each word, and say when that was begun."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        while pipe.recv():
            begun = time.monotonic_ns()
            sender.sendto(b"x", path)
            pipe.send(begun)


def notify(url: str, channel: str, pipe: Connection) -> None:
    """Notify at each word, and say when that was begun."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        statement = sql.SQL("NOTIFY {}").format(sql.Identifier(channel))
        while pipe.recv():
            begun = time.monotonic_ns()
            connection.execute(statement)
            pipe.send(begun)


def listen(url: str, options: dict[str, Any], pipe: Connection) -> None:
    """Have so many stores wait for something else, until told to end."""
    with ExitStack() as ends, ThreadPoolExecutor(LISTENERS) as threads:
        for _ in range(LISTENERS):
            store = ends.enter_context(alkstore.open(url, **options))
            consumer = store.queue("something else").consume("w", poll_interval=NEVER)
            threads.submit(next, consumer, None)
            ends.callback(consumer.close)
        time.sleep(1)  # until they all listen: nobody outside can see it
        pipe.send(True)
        pipe.recv()
        ends.close()


@contextmanager
def other(task: Callable[..., None], *arguments: Any) -> Generator[Any]:
    """Have another process do the task; the pipe to it."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=task, args=(*arguments, theirs))
    process.start()
    try:
        yield mine
        mine.send(False)
    finally:
        process.join(10)
        process.kill()


def times(pipe: Any, receive: Callable[[], object], rounds: int) -> list[float]:
    """Return, in microseconds, how long after each deed it was heard of here."""
    found: list[float] = []
    for _ in range(rounds):
        heard: list[int] = []

        def wait(heard: list[int] = heard) -> None:
            receive()
            heard.append(time.monotonic_ns())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(PAUSE)
        pipe.send(True)
        done: int = pipe.recv()
        thread.join()
        found.append((heard[0] - done) / 1_000)
    return sorted(found)


def picked_up(store: alkstore.Store, url: str, options: dict[str, Any], rounds: int) -> list[float]:
    """Return how long it took to have a job."""
    with store.queue("bench").consume("w", poll_interval=NEVER) as consumer, other(enqueue, url, options) as pipe:
        handles: list[alkstore.JobHandle] = []

        def receive() -> None:
            handles.append(next(consumer))

        found = times(pipe, receive, rounds)
        store.queue("bench").ack_batch(handles)
    return found


def show(what: str, found: list[float], raw: list[float]) -> None:
    """Print the medians and the 99th percentiles, and their ratios."""

    def ends(values: list[float]) -> tuple[float, float]:
        return statistics.median(values), values[int(len(values) * 0.99)]

    (median, late), (raw_median, raw_late) = ends(found), ends(raw)
    print(
        f"{what:12} p50 {median:7.0f} us  p99 {late:7.0f} us    raw {raw_median:7.0f} / {raw_late:7.0f}"
        f"    ratio {median / raw_median:5.2f} / {late / raw_late:5.2f}"
    )


def idle(store: alkstore.Store, seconds: float) -> None:
    """Print what a consumer that waits costs."""
    with store.queue("idle").consume("w") as consumer:
        thread = threading.Thread(target=lambda: next(consumer, None))
        thread.start()
        time.sleep(0.5)
        before = time.process_time()
        time.sleep(seconds)
        spent = time.process_time() - before
        consumer.close()
        thread.join()
    print(f"{'':12} waiting for {seconds:g} s took {100 * spent / seconds:.2f} % of a core")


def committed(store: alkstore.Store) -> float:
    """Return how many jobs a second are enqueued one by one, by all threads together."""
    queue, over = store.queue("committed"), time.monotonic() + TURN

    def commit(_: int) -> int:
        count = 0
        while time.monotonic() < over:
            queue.enqueue("work")
            count += 1
        return count

    with ThreadPoolExecutor(COMMITTERS) as threads:
        return sum(threads.map(commit, range(COMMITTERS))) / TURN


def committers(url: str, options: dict[str, Any], turns: int) -> None:
    """Print what listeners cost those who commit."""
    without, beside = list[float](), list[float]()
    with alkstore.open(url, **options) as store:
        committed(store)
        for _ in range(turns):
            without.append(committed(store))
            with other(listen, url, options) as pipe:
                pipe.recv()
                beside.append(committed(store))
    ratios = sorted(b / w for b, w in zip(beside, without, strict=True))
    print(
        f"{'':12} {COMMITTERS} threads commit {statistics.median(without):.0f} jobs a second, and beside {LISTENERS} listening"
        f" stores {statistics.median(beside):.0f}: ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def on_sqlite(rounds: int, seconds: float, turns: int) -> None:
    """Measure SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bench.db"
        path = str(Path(folder) / "raw")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(path)
            with other(send_datagrams, path) as pipe:
                raw = times(pipe, lambda: receiver.recv(1), rounds)
        for durability in ("full", "relaxed"):
            options: dict[str, Any] = {"durability": durability}
            with alkstore.open(url, **options) as store:
                show(f"SQLite {durability}"[:12], picked_up(store, url, options, rounds), raw)
                if durability == "full":
                    idle(store, seconds)
                    committers(url, options, turns)


def on_postgres(url: str, rounds: int, seconds: float, turns: int) -> None:
    """Measure PostgreSQL."""
    import psycopg
    from psycopg import sql

    schema = f"bench_{secrets.token_hex(4)}"
    options: dict[str, Any] = {"schema": schema}
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(schema)))
            with other(notify, url, schema) as pipe:
                raw = times(pipe, lambda: next(connection.notifies(stop_after=1)), rounds)
            with alkstore.open(url, **options) as store:
                show("PostgreSQL", picked_up(store, url, options, rounds), raw)
                idle(store, seconds)
            committers(url, {**options, "pool_size": COMMITTERS + 2}, turns)
        finally:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def main() -> int:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(description="Measure wakes between processes.")
    parser.add_argument("--url", help="a PostgreSQL database to measure as well")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds to wait for nothing")
    parser.add_argument("--turns", type=int, default=9, help="turns of those who commit, with and without listeners")
    given = parser.parse_args()
    on_sqlite(given.rounds, given.idle, given.turns)
    if given.url:
        on_postgres(given.url, given.rounds, given.idle, given.turns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
