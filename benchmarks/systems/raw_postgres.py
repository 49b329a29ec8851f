"""The limit on PostgreSQL: the statements of the simplest queue, through ``psycopg`` in autocommit.

It does the least that any queue must, as its twin on SQLite: a priority, a due time, ids that are never used twice, and the
first due job is handed out, marked as taken, by one statement; another deletes it. By the thousand it inserts by
``unnest`` with ids returned. Its worker acks the last hundred and claims the next in one statement; waiting, it is woken
by NOTIFY, which each enqueueing commit sends then (and only then: ``first`` is given).
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from benchmarks.payload import ENCODED, encoded
from benchmarks.system import Durability, System, peer
from benchmarks.tally import Tally

_TABLE = """CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, priority integer NOT NULL,
    run_at timestamptz NOT NULL DEFAULT statement_timestamp(), worker text, payload bytea NOT NULL)"""
_INDEX = "CREATE INDEX ready ON jobs (priority DESC, run_at, id) WHERE worker IS NULL"
_INSERT = "INSERT INTO jobs (priority, payload) VALUES (0, %b) RETURNING id"
_INSERT_MANY = "INSERT INTO jobs (priority, payload) SELECT 0, unnest(%b::bytea[]) RETURNING id"
_INSERT_TELLING = """WITH told AS (INSERT INTO jobs (priority, payload) VALUES (0, %b) RETURNING id)
    SELECT pg_notify('jobs', '') FROM told"""
_PICK = """SELECT id FROM jobs WHERE worker IS NULL AND run_at <= statement_timestamp()
    ORDER BY priority DESC, run_at, id LIMIT %s FOR UPDATE SKIP LOCKED"""
_CLAIM = f"""WITH picked AS MATERIALIZED ({_PICK})
    UPDATE jobs SET worker = 'worker' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id, jobs.payload"""
_ACK = "DELETE FROM jobs WHERE id = %s"
_ACK_MANY = "DELETE FROM jobs WHERE id = ANY(%s)"
# The rows to delete are locked in id order, or four workers by the hundred deadlock.
_FUSED = f"""WITH done AS MATERIALIZED (SELECT id FROM jobs WHERE id = ANY(%s) ORDER BY id FOR UPDATE),
    acked AS (DELETE FROM jobs USING done WHERE jobs.id = done.id),
    picked AS MATERIALIZED ({_PICK})
    UPDATE jobs SET worker = 'worker' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id, jobs.payload"""
_BATCH = 100
_GLANCE = 0.1


class RawPostgres(System):
    """The bare statements."""

    name = "raw"
    engine = "postgresql"

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect."""
        del durability
        self._place = place
        self._driver = peer("psycopg")
        self._connection: Any = self._driver.connect(place, autocommit=True)
        self._connection.prepare_threshold = 0
        self._execute = self._connection.execute
        if create:
            self._execute(_TABLE)
            self._execute(_INDEX)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def versions(self) -> dict[str, str]:
        """Return the driver's and the server's."""
        server = self._connection.info.parameter_status("server_version").split()[0]
        return {"PostgreSQL": server, "psycopg": self._driver.__version__}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Insert one by one."""
        if first:
            self._execute(_INSERT_TELLING, (encoded(first),))
            return
        for _ in range(jobs):
            self._execute(_INSERT, (ENCODED,)).fetchone()

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Insert by the batch."""
        for done in range(0, jobs, batch):
            self._execute(_INSERT_MANY, ([ENCODED] * min(batch, jobs - done),)).fetchall()

    def enqueue_threads(self, jobs: int, threads: int) -> None:
        """Insert one by one, each thread through a connection of its own."""

        def insert() -> None:
            with self._driver.connect(self._place, autocommit=True) as connection:
                connection.prepare_threshold = 0
                for _ in range(jobs // threads):
                    connection.execute(_INSERT, (ENCODED,)).fetchone()

        running = [threading.Thread(target=insert) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def claim_ack(self, jobs: int) -> None:
        """Update and delete one by one."""
        for _ in range(jobs):
            job_id, _payload = self._execute(_CLAIM, (1,)).fetchone()
            self._execute(_ACK, (job_id,))

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Update and delete by the batch."""
        done = 0
        while done < jobs:
            claimed = [row[0] for row in self._execute(_CLAIM, (batch,)).fetchall()]
            done += len(claimed)
            self._execute(_ACK_MANY, (claimed,))

    def work(self, tally: Tally, *, best: bool) -> None:
        """Ack and claim by the hundred while there is something, and wait for NOTIFY."""
        self._execute("LISTEN jobs")
        held: list[int] = []
        while not tally.over.is_set():
            rows = self._execute(_FUSED, (held, _BATCH if best else 1)).fetchall()
            held = [row[0] for row in rows]
            if not rows:
                for _ in self._connection.notifies(timeout=_GLANCE, stop_after=1):
                    pass
            elif best:
                tally.many(len(rows))
            else:
                tally.one(json.loads(rows[0][1])["n"])
        self._execute(_ACK_MANY, (held,))

    def cycle(self) -> None:
        """Insert one; update and delete one."""
        self._execute(_INSERT, (ENCODED,)).fetchone()
        row = self._execute(_CLAIM, (1,)).fetchone()
        if row is not None:
            self._execute(_ACK, (row[0],))

    def claim_times(self, jobs: int) -> list[float]:
        """Time the claims."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            job_id, _payload = self._execute(_CLAIM, (1,)).fetchone()
            times.append(time.perf_counter() - begun)
            self._execute(_ACK, (job_id,))
        return times
