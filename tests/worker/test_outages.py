"""A worker outlives its database's absences, and goes on by itself (PostgreSQL; SQLite has no server to lose)."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

import alkstore
from alkstore import RunningJob, Worker
from contract_tests.scale import scale
from tests.integrations.places import Place
from tests.support.postgres_server import private_server
from tests.support.waiting import wait_until
from tests.worker.conftest import options_of
from tests.worker.running import Running

WAIT = 60


def terminate_sessions(url: str) -> None:
    """End all sessions in the database but for the one that does it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


class Work:
    """Handlers that note which jobs they begin."""

    def __init__(self) -> None:
        self.begun: Counter[Any] = Counter()
        self.first = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def handle(self, job: RunningJob) -> None:
        """Note it, and wait until the test lets it go on."""
        with self._lock:
            self.begun[job.payload] += 1
        self.first.set()
        assert self.go_on.wait(WAIT)


@pytest.mark.parametrize("when", ["idle", "in the middle of handlers"])
def test_all_its_sessions_are_ended(postgres_place: Place, when: str) -> None:
    """What runs is acked on other connections, and not run again; what comes later is found."""
    place, work = postgres_place, Work()
    with alkstore.open(place.url, **options_of(place)) as store:
        queue = store.queue("q")
        with Running(Worker(store, {"q": work.handle}, poll_interval=0.5)):
            if when == "idle":
                wait_until(lambda: len(store.wakes.waiters._line("q")) == 1, WAIT, "the worker to be idle")
                terminate_sessions(place.url)
                with alkstore.open(place.url, **options_of(place)) as other:
                    other.queue("q").enqueue_many(range(20))
            else:
                queue.enqueue_many(range(20))
                assert work.first.wait(WAIT)
                terminate_sessions(place.url)
            work.go_on.set()
            wait_until(lambda: sum(work.begun.values()) >= 20, WAIT, "all jobs to begin")
            with alkstore.open(place.url, **options_of(place)) as other:
                wait_until(lambda: not other.queue("q").jobs(), WAIT, "all acks")
    assert Counter(range(20)) == work.begun


def test_the_server_is_down_for_a_while(tmp_path: Any) -> None:
    """Longer than the heartbeats' interval, and shorter than the visibility timeout: nothing is lost, and nothing doubled."""
    with private_server() as server:
        schema, work = f"s{secrets.token_hex(6)}", Work()
        with alkstore.open(server.url, schema=schema) as store:
            store.queue("q", visibility_timeout=60).enqueue_many(range(20))
            workers = [Running(Worker(store, {"q": work.handle}, concurrency=4)) for _ in range(3)]
            for worker in workers:
                worker.__enter__()
            try:
                assert work.first.wait(WAIT)
                server.stop("immediate")
                work.go_on.set()
                time.sleep(20 * scale())
                server.start()
                wait_until(lambda: sum(work.begun.values()) >= 20, WAIT, "all jobs to begin")
                with alkstore.open(server.url, schema=schema) as other:
                    wait_until(lambda: not other.queue("q").jobs(), WAIT, "all acks")
            finally:
                for worker in workers:
                    worker.__exit__()
    assert Counter(range(20)) == work.begun
