"""Compare alkstore with the bare statements through the bare driver, in one run on one machine.

    python benchmarks/quick.py [--url postgresql://user@host/database] [--rounds 5] [--jobs 2000]

SQLite is always measured, PostgreSQL where a URL is given. Both sides are at full durability, both take turns (A B A B
...), and what counts is the ratio of the medians: absolute figures drift from day to day, and within one. The bare side
does the least that any queue must: it keeps a priority and a due time and hands out the first job that is due, but has no
deadlines, no tokens, no budgets and no dead letters. So the ratio says what those cost, and 1.00 is out of reach.
"""

from __future__ import annotations

import argparse
import secrets
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import alkstore

PAYLOAD: Final = {"to": "somebody@example.org", "subject": "about a hundred bytes", "n": 12345678, "html": False}
ENCODED: Final = b'{"to":"somebody@example.org","subject":"about a hundred bytes","n":12345678,"html":false}'
BATCH: Final = 100


class Side(Protocol):
    """What is measured: each method does so many jobs' worth."""

    def enqueue(self, jobs: int) -> None:
        """Enqueue the jobs, each in a commit of its own."""

    def enqueue_many(self, jobs: int) -> None:
        """Enqueue the jobs in one call."""

    def drain(self, jobs: int) -> None:
        """Claim and ack the jobs one by one."""

    def drain_batches(self, jobs: int) -> None:
        """Claim and ack the jobs a hundred at a time."""


class Alkstore:
    """The library, as an application uses it."""

    def __init__(self, store: alkstore.Store) -> None:
        self._queue = store.queue("bench")

    def enqueue(self, jobs: int) -> None:
        """Enqueue one by one."""
        for _ in range(jobs):
            self._queue.enqueue(PAYLOAD)

    def enqueue_many(self, jobs: int) -> None:
        """Enqueue in one call."""
        self._queue.enqueue_many(PAYLOAD for _ in range(jobs))

    def drain(self, jobs: int) -> None:
        """Claim and ack one by one."""
        for _ in range(jobs):
            handle = self._queue.claim_one("worker")
            check(handle is not None and handle.ack())

    def drain_batches(self, jobs: int) -> None:
        """Claim and ack by the hundred."""
        for _ in range(0, jobs, BATCH):
            check(self._queue.ack_batch(self._queue.claim_batch("worker", BATCH)) > 0)


class BareSqlite:
    """The statements of the simplest queue, through ``sqlite3``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        self._execute(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,"
            " worker TEXT, payload BLOB NOT NULL)"
        )
        self._execute("CREATE INDEX ready ON jobs (priority DESC, run_at, id) WHERE worker IS NULL")

    def enqueue(self, jobs: int) -> None:
        """Insert one by one."""
        for _ in range(jobs):
            self._execute("INSERT INTO jobs (priority, run_at, payload) VALUES (0, ?, ?)", (time.time_ns(), ENCODED))

    def enqueue_many(self, jobs: int) -> None:
        """Insert in one transaction."""
        self._execute("BEGIN IMMEDIATE")
        rows = ((time.time_ns(), ENCODED) for _ in range(jobs))
        self._executemany("INSERT INTO jobs (priority, run_at, payload) VALUES (0, ?, ?)", rows)
        self._execute("COMMIT")

    def drain(self, jobs: int) -> None:
        """Select, update and delete one by one."""
        for _ in range(jobs):
            (job_id,) = self._claim(1)
            self._execute("DELETE FROM jobs WHERE id = ?", (job_id,))

    def drain_batches(self, jobs: int) -> None:
        """Select, update and delete by the hundred."""
        for _ in range(0, jobs, BATCH):
            claimed = self._claim(BATCH)
            self._execute("BEGIN IMMEDIATE")
            self._executemany("DELETE FROM jobs WHERE id = ?", [(job_id,) for job_id in claimed])
            self._execute("COMMIT")

    def _claim(self, count: int) -> list[int]:
        self._execute("BEGIN IMMEDIATE")
        rows = self._execute(
            "SELECT id, payload FROM jobs WHERE worker IS NULL AND run_at <= ? ORDER BY priority DESC, run_at, id LIMIT ?",
            (time.time_ns(), count),
        ).fetchall()
        self._executemany("UPDATE jobs SET worker = 'worker' WHERE id = ?", [(job_id,) for job_id, _ in rows])
        self._execute("COMMIT")
        return [job_id for job_id, _ in rows]


class BarePostgres:
    """The statements of the simplest queue, through ``psycopg`` in autocommit."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._table = f'"{schema}".bare'
        connection.execute(
            f"CREATE TABLE {self._table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, priority integer NOT NULL,"
            " run_at timestamptz NOT NULL DEFAULT statement_timestamp(), worker text, payload bytea NOT NULL)"
        )
        connection.execute(f"CREATE INDEX ON {self._table} (priority DESC, run_at, id) WHERE worker IS NULL")

    def enqueue(self, jobs: int) -> None:
        """Insert one by one."""
        insert = f"INSERT INTO {self._table} (priority, payload) VALUES (0, %s) RETURNING id"
        for _ in range(jobs):
            self._connection.execute(insert, (ENCODED,)).fetchone()

    def enqueue_many(self, jobs: int) -> None:
        """Insert in one statement."""
        self._connection.execute(
            f"INSERT INTO {self._table} (priority, payload) SELECT 0, unnest(%b::bytea[]) RETURNING id",
            ([ENCODED] * jobs,),
        ).fetchall()

    def drain(self, jobs: int) -> None:
        """Update and delete one by one."""
        for _ in range(jobs):
            self._delete(self._claim(1))

    def drain_batches(self, jobs: int) -> None:
        """Update and delete by the hundred."""
        for _ in range(0, jobs, BATCH):
            self._delete(self._claim(BATCH))

    def _claim(self, count: int) -> list[int]:
        claim = (
            f"WITH picked AS MATERIALIZED (SELECT id FROM {self._table} WHERE worker IS NULL AND run_at <= statement_timestamp()"
            " ORDER BY priority DESC, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED)"
            f" UPDATE {self._table} AS jobs SET worker = 'worker' FROM picked WHERE jobs.id = picked.id"
            " RETURNING jobs.id, jobs.payload"
        )
        return [row[0] for row in self._connection.execute(claim, (count,))]

    def _delete(self, ids: Sequence[int]) -> None:
        self._connection.execute(f"DELETE FROM {self._table} WHERE id = ANY(%s)", (ids,))


def check(done: bool) -> None:
    """Stop where a side didn't do what it is timed for."""
    if not done:
        raise SystemExit("a job that was enqueued could not be claimed and acked: the figures would mean nothing")


# --- measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """One row of the table: what is done, and what has to be there first."""

    name: str
    run: Callable[[Side, int], None]
    before: Callable[[Side, int], None] | None
    factor: int
    """How many times as many jobs as the slowest measure, so that each takes long enough to be timed."""


MEASURES: Final = (
    Measure("enqueue", lambda side, jobs: side.enqueue(jobs), None, 1),
    Measure("enqueue_many", lambda side, jobs: side.enqueue_many(jobs), None, 10),
    Measure("claim_one + ack", lambda side, jobs: side.drain(jobs), lambda side, jobs: side.enqueue_many(jobs), 1),
    Measure(
        f"claim_batch({BATCH}) + ack_batch",
        lambda side, jobs: side.drain_batches(jobs),
        lambda side, jobs: side.enqueue_many(jobs),
        10,
    ),
)


def rate(measure: Measure, side: Side, jobs: int) -> float:
    """Return jobs per second; the side is left as empty as it was."""
    if measure.before is not None:
        measure.before(side, jobs)
    begun = time.perf_counter()
    measure.run(side, jobs)
    elapsed = time.perf_counter() - begun
    if measure.before is None:
        side.drain_batches(jobs)
    return jobs / elapsed


def report(engine: str, ours: Side, bare: Side, rounds: int, jobs: int) -> None:
    """Measure both sides in turn, and print the table."""
    print(f"\n{engine}: median of {rounds} rounds, jobs per second (least to most)\n")
    print(f"{'':32} {'bare driver':>26} {'alkstore':>26}  ratio")
    for measure in MEASURES:
        count = jobs * measure.factor
        figures: dict[str, list[float]] = {"bare": [], "ours": []}
        for side in (bare, ours):
            rate(measure, side, max(BATCH, count // 10))  # caches and statements are warm afterwards
        for _ in range(rounds):
            figures["bare"].append(rate(measure, bare, count))
            figures["ours"].append(rate(measure, ours, count))
        shown = [
            f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
            for values in figures.values()
        ]
        ratio = statistics.median(figures["ours"]) / statistics.median(figures["bare"])
        print(f"{measure.name:32} {shown[0]:>26} {shown[1]:>26}  {ratio:.2f}", flush=True)


@contextmanager
def postgres_sides(url: str) -> Generator[tuple[str, Side, Side]]:
    """Give both sides in a schema for this run, which is dropped afterwards."""
    import psycopg

    schema = f"alkstore_bench_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            with alkstore.open(url, schema=schema) as store:
                yield f"PostgreSQL {store.health().server_version}", Alkstore(store), BarePostgres(connection, schema)
        finally:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description="Compare alkstore with the bare driver.")
    parser.add_argument("--url", help="a PostgreSQL database to measure as well")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs per round of the slowest measure")
    given = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, full durability, payloads of {len(ENCODED)} bytes, one connection each")
    with tempfile.TemporaryDirectory(prefix="alkstore-bench-") as folder:
        bare_file, our_file = Path(folder, "bare.db"), Path(folder, "alkstore.db")
        with (
            closing(sqlite3.connect(bare_file, isolation_level=None)) as connection,
            alkstore.open(f"sqlite:///{our_file}") as store,
        ):
            report(
                f"SQLite {sqlite3.sqlite_version}", Alkstore(store), BareSqlite(connection), given.rounds, given.jobs
            )
    if given.url is not None:
        with postgres_sides(given.url) as (engine, ours, bare):
            report(engine, ours, bare, given.rounds, given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
