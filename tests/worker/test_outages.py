"""A worker outlives its database's absences, and goes on by itself (SQLite has no server to lose, but may be locked)."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import psycopg.conninfo
import pytest

import alkstore
from alkstore import EngineUnavailableError, RunningJob, Worker
from alkstore.worker.outages import Outage
from contract_tests.scale import scale
from tests.integrations.places import Place
from tests.support.postgres_server import private_server
from tests.support.tcp_proxy import TcpProxy
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
                wait_until(lambda: sum(work.begun.values()) == 12, WAIT, "all three to work")
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


# --- an ack that fails ------------------------------------------------------------------------------------------------

FAILURES = {
    "serialisation failure": "RAISE EXCEPTION 'injected' USING ERRCODE = '40001';",
    "deadlock": "RAISE EXCEPTION 'injected' USING ERRCODE = '40P01';",
    "dead connection": "PERFORM pg_terminate_backend(pg_backend_pid());",
}


@pytest.mark.parametrize(
    ("failure", "times"),
    [
        ("serialisation failure", 1), ("serialisation failure", 30),
        ("deadlock", 1), ("deadlock", 30),
        ("dead connection", 1), ("dead connection", 4),
    ],
)  # fmt: skip
def test_an_ack_that_fails_in_the_database_is_tried_again_and_no_handler_runs_again(
    postgres_place: Place, failure: str, times: int
) -> None:
    """Once is for the engine to try again, and oftener for the worker; on another connection where it was that which died."""
    place, starts = postgres_place, Counter[int]()
    with (
        alkstore.open(place.url, **options_of(place)) as store,
        psycopg.connect(place.url, autocommit=True, options=f"-c search_path={place.schema}") as connection,
    ):
        connection.execute("CREATE SEQUENCE acks")  # what it has counted isn't undone with the ack
        function = (
            f"CREATE FUNCTION inject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('{place.schema}.acks') <= {times} THEN {FAILURES[failure]} END IF; RETURN OLD; END $$"
        )
        connection.execute(function.encode())
        connection.execute("CREATE TRIGGER inject BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION inject()")
        store.queue("q").enqueue_many(range(3))
        summary = Worker(store, {"q": lambda job: starts.update([job.payload])}).run(until_idle=True)
        tried = connection.execute("SELECT last_value FROM acks").fetchone()
    assert (3, 0) == (summary.succeeded, summary.lost)
    assert Counter(range(3)) == starts
    assert tried is not None
    assert tried[0] > times


class Waits(logging.Handler):
    """Hears that a worker's acks wait for the database."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("settling jobs of 'q' waits for the database"):
            self.heard.set()


def test_an_ack_that_finds_the_file_locked_is_tried_again_and_no_handler_runs_again(sqlite_place: Place) -> None:
    """For longer than the lock timeout: SQLITE_BUSY (SQLite)."""
    place, starts, waits = sqlite_place, Counter[int](), Waits()
    options: dict[str, Any] = {**options_of(place), "lock_timeout": 0.1}
    log = logging.getLogger("alkstore.worker")
    log.addHandler(waits)
    try:
        with (
            alkstore.open(place.url, **options) as store,
            closing(sqlite3.connect(place.path, isolation_level=None, check_same_thread=False)) as connection,
        ):
            queue = store.queue("q", visibility_timeout=300)
            queue.enqueue(1)

            def handle(job: RunningJob) -> None:
                starts.update([job.payload])
                connection.execute("BEGIN IMMEDIATE")

            with Running(Worker(store, {"q": handle})):
                assert waits.heard.wait(WAIT)
                connection.execute("ROLLBACK")
                wait_until(lambda: not queue.jobs(), WAIT, "the ack")
    finally:
        log.removeHandler(waits)
    assert Counter([1]) == starts


def test_attempts_at_a_database_that_is_away_grow_rare_and_do_not_coincide() -> None:
    """So that workers don't all come at once when it is back; at most five seconds later each of them has noticed."""
    outages = [Outage("claiming") for _ in range(20)]
    pauses = [[outage.pause(EngineUnavailableError("away")) for outage in outages] for _ in range(12)]
    for turn in (pauses[0], pauses[-1]):
        assert len(set(turn)) > 10
    assert max(pauses[0]) <= 0.05
    assert 2.5 <= min(pauses[-1]) <= max(pauses[-1]) <= 5
    outages[0].over()
    assert outages[0].pause(EngineUnavailableError("away")) <= 0.05


def test_many_workers_do_not_storm_a_server_that_is_away_or_has_just_come_back(postgres_place: Place) -> None:
    """Each comes seldom by then, and not when the others do; and none needs more connections than before."""
    workers, done, lock = 8, Counter[int](), threading.Lock()
    address = psycopg.conninfo.conninfo_to_dict(postgres_place.url)

    def handle(job: RunningJob) -> None:
        with lock:
            done[job.payload] += 1

    with TcpProxy(str(address["host"]), int(str(address["port"]))) as proxy, ExitStack() as stack:
        user, password, database = (address[key] for key in ("user", "password", "dbname"))
        url = f"postgresql://{user}:{password}@127.0.0.1:{proxy.port}/{database}"
        options: dict[str, Any] = {**options_of(postgres_place), "pool_size": 2}
        stores = [stack.enter_context(alkstore.open(url, **options)) for _ in range(workers)]
        for store in stores:
            stack.enter_context(Running(Worker(store, {"q": handle}, concurrency=2)))
        near = stack.enter_context(alkstore.open(postgres_place.url, **options))
        wait_until(lambda: all(store.wakes.waiters._line("q") for store in stores), WAIT, "all to be idle")
        before = proxy.connections
        proxy.turn_away()
        proxy.cut()
        time.sleep(10)  # the outage
        over = time.monotonic()
        near.queue("q").enqueue_many(range(200))
        proxy.turn_away(False)
        wait_until(lambda: sum(done.values()) == 200, WAIT, "the work to be done")
        late = [moment for moment in proxy.turned_away if moment > over - 5]
        assert len(late) < 4 * 5 * workers, "a few times a second, each of them, with all its threads"
        assert max(sum(moment <= other < moment + 0.1 for other in late) for moment in late) < 2 * workers
        assert proxy.connections <= before
        assert Counter(range(200)) == done
