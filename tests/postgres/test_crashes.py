"""Writers and servers killed at random moments: no acknowledged job lost, none in two tables or in none (J-8, Q-7)."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg

import alkstore
from alkstore.errors import EngineUnavailableError, OutcomeUnknownError
from alkstore.protocols import JobHandle
from alkstore.store import Store
from contract_tests.scale import rounds
from tests.postgres.door import Door, in_transaction
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

WAIT = 60


class Book:
    """What writers have said, and what must then be in the tables."""

    def __init__(self) -> None:
        self.enqueued: set[int] = set()
        self.acked: set[int] = set()
        self.doubtful: set[int] = set()
        """Jobs with an ack of which nobody knows whether it worked."""
        self.dead: set[int] = set()

    def note(self, line: str) -> None:
        """Take a line of ``writing.py``."""
        letter, number = line.split()
        job_id = int(number)
        if letter == "e":
            self.enqueued.add(job_id)
        elif letter == "a":
            self.doubtful.add(job_id)
        elif letter == "A":
            self.acked.add(job_id)
        elif letter == "F":
            self.dead.add(job_id)

    def check(self, live: set[int], dead: set[int]) -> None:
        """Compare with the tables."""
        assert live & dead == set()
        assert self.acked & (live | dead) == set(), "an acked job is back"
        assert self.enqueued - self.acked - self.doubtful <= live | dead, "an acknowledged job is lost"
        assert self.dead <= dead, "a buried job is not"


def test_a_writer_that_is_killed(store: Store, door: Door, database: str, schema: str) -> None:
    """SIGKILL at random moments of enqueue, claim, ack, retry and fail, round after round in one schema."""
    book, dice = Book(), random.Random()
    for _ in range(rounds(50)):
        seed = secrets.token_hex(4)
        command = [sys.executable, "-m", "tests.postgres.writing", database, schema, seed]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(dice.randrange(1, 120)):
                book.note(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            for line in writer.stdout:  # what it had said before
                if line.endswith("\n"):
                    book.note(line)
        wait_until(lambda: len(door.sessions()) <= 1, WAIT, "the server to end the writer's sessions")
        live, dead = door.snapshot()
        book.check(live, dead)
        assert in_transaction(door.sessions()) == []
    # What the killed ones had claimed is there for others, once its lease has lapsed.
    door.do("UPDATE {jobs} SET lease_until = 1, next_at = CASE phase WHEN 1 THEN 1 END WHERE token IS NOT NULL")
    queue = store.queue("q")
    live, dead = door.snapshot()
    handed_out = set[int]()
    while handles := queue.claim_batch("w", 100):
        handed_out |= {handle.id for handle in handles}
        queue.ack_batch(handles)
    now_live, now_dead = door.snapshot()
    assert now_live == set()
    assert handed_out | now_dead == live | dead


def test_a_server_that_crashes_under_load(own_postgres: PostgresServer) -> None:
    """Immediate stops: what was acknowledged is there after recovery, and the same store goes on."""
    schema = f"s{secrets.token_hex(6)}"
    store = alkstore.open(own_postgres.url, schema=schema, pool_size=4)
    queue = store.queue("q", max_attempts=3)
    book, guard, stop = Book(), threading.Lock(), threading.Event()
    turns = [0]
    failures: list[BaseException] = []

    def attempt(call: Any) -> Any:
        """Make the call; None where it did not happen, False where nobody knows."""
        try:
            return call()
        except EngineUnavailableError:
            return None
        except OutcomeUnknownError:
            return False

    def settling(handle: JobHandle, ending: str) -> Callable[[], bool]:
        if ending == "a":
            return handle.ack
        return lambda: handle.fail("no") if ending == "f" else handle.retry("again", delay=0)

    def work(dice: random.Random) -> None:
        try:
            while not stop.is_set():
                ids = attempt(lambda: queue.enqueue_many([1, 2]))
                with guard:
                    book.enqueued |= set(ids or ())
                for handle in attempt(lambda: queue.claim_batch("w", 2)) or ():
                    ending = dice.choice("aafr")
                    done = attempt(settling(handle, ending))
                    with guard:
                        turns[0] += 1
                        if ending == "a" and done is not None:
                            (book.acked if done else book.doubtful).add(handle.id)
                        elif ending == "f" and done:
                            book.dead.add(handle.id)
        except BaseException as exc:
            failures.append(exc)
            raise

    threads = [threading.Thread(target=work, args=(random.Random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds(50)):
            target = turns[0] + random.randrange(20, 200)
            wait_until(lambda target=target: turns[0] >= target or failures, WAIT, "the writers to get on")
            own_postgres.stop("immediate")
            own_postgres.start()
        target = turns[0] + 50
        wait_until(lambda: turns[0] >= target or failures, WAIT, "the writers to get on after the last crash")
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT)
    assert failures == []
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        door = Door(connection, schema)
        live, dead = door.snapshot()
        assert in_transaction(door.sessions()) == []
    book.check(live, dead)
    assert queue.stats().dead == len(dead)
    store.close()
