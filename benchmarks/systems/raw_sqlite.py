"""The limit on SQLite: the statements of the simplest queue, through the standard library's ``sqlite3``.

It does the least that any queue must: it keeps a priority and a due time, never uses an id twice, and hands out the first
job that is due, marked as taken. It has no deadlines, no tokens, no budgets and no dead letters. So the ratio to it says
what those cost, and 1.00 is out of reach. Claimed is by SELECT and then UPDATE, acked by DELETE, each in a transaction of
its own; the payload was encoded beforehand. Its worker is the same loop by a hundred; waiting, it is woken by a datagram on
a Unix socket, which is the quickest way there is to tell another process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from benchmarks.payload import ENCODED, encoded
from benchmarks.system import Durability, System
from benchmarks.tally import Tally

_TABLE = """CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
    worker TEXT, payload BLOB NOT NULL)"""
_INDEX = "CREATE INDEX ready ON jobs (priority DESC, run_at, id) WHERE worker IS NULL"
_INSERT = "INSERT INTO jobs (priority, run_at, payload) VALUES (0, ?, ?)"
_SELECT = """SELECT id, payload FROM jobs WHERE worker IS NULL AND run_at <= ?
    ORDER BY priority DESC, run_at, id LIMIT ?"""
_TAKE = "UPDATE jobs SET worker = 'worker' WHERE id = ?"
_TAKE_MANY = "UPDATE jobs SET worker = 'worker' WHERE id IN (SELECT value FROM json_each(?))"
_DELETE = "DELETE FROM jobs WHERE id = ?"
_DELETE_MANY = "DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
_BATCH = 100
_GLANCE = 0.1


class RawSqlite(System):
    """The bare statements."""

    name = "raw"
    engine = "sqlite"
    durabilities: ClassVar[tuple[Durability, ...]] = ("full", "normal")

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        """Connect."""
        # Not beside the database: a socket's path may have a hundred characters only.
        self._bell = Path(tempfile.gettempdir()) / f"bell-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
        self._connection = sqlite3.connect(place, isolation_level=None, timeout=30)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode = WAL")
        self._execute(f"PRAGMA synchronous = {durability.upper()}")
        if create:
            self._execute(_TABLE)
            self._execute(_INDEX)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def versions(self) -> dict[str, str]:
        """Return SQLite's."""
        return {"SQLite": sqlite3.sqlite_version}

    def enqueue(self, jobs: int, first: int = 0) -> None:
        """Insert one by one."""
        execute = self._execute
        payload = encoded(first) if first else ENCODED
        for _ in range(jobs):
            execute(_INSERT, (time.time_ns(), payload))
        if first:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"x", str(self._bell))

    def enqueue_many(self, jobs: int, batch: int) -> None:
        """Insert by the batch."""
        for done in range(0, jobs, batch):
            self._execute("BEGIN IMMEDIATE")
            rows = ((time.time_ns(), ENCODED) for _ in range(min(batch, jobs - done)))
            self._connection.executemany(_INSERT, rows)
            self._execute("COMMIT")

    def claim_ack(self, jobs: int) -> None:
        """Select, update and delete one by one."""
        for _ in range(jobs):
            job_id, _payload = self._claim_one() or (None, None)
            self._execute(_DELETE, (job_id,))

    def claim_batches(self, jobs: int, batch: int) -> None:
        """Select, update and delete by the batch."""
        done = 0
        while done < jobs:
            claimed = self._claim(batch)
            done += len(claimed)
            self._ack(claimed)

    def work(self, tally: Tally, *, best: bool) -> None:
        """Claim and ack by the hundred while there is something; or one by one, and wait for the bell."""
        if best:
            while not tally.over.is_set():
                claimed = self._claim(_BATCH)
                if not claimed:
                    tally.over.wait(_GLANCE)
                    continue
                tally.many(len(claimed))
                self._ack(claimed)
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(self._bell))
            receiver.settimeout(_GLANCE)
            while not tally.over.is_set():
                claimed = self._claim_one()
                if claimed is None:
                    with contextlib.suppress(TimeoutError):
                        receiver.recv(1)
                else:
                    tally.one(json.loads(claimed[1])["n"])
                    self._execute(_DELETE, (claimed[0],))
        self._bell.unlink()

    def cycle(self) -> None:
        """Insert one; select, update and delete one."""
        self.enqueue(1)
        self.claim_ack(1)

    def claim_times(self, jobs: int) -> list[float]:
        """Time the claims."""
        times: list[float] = []
        for _ in range(jobs):
            begun = time.perf_counter()
            job_id, _payload = self._claim_one() or (None, None)
            times.append(time.perf_counter() - begun)
            self._execute(_DELETE, (job_id,))
        return times

    def _claim_one(self) -> tuple[int, bytes] | None:
        self._execute("BEGIN IMMEDIATE")
        row = self._execute(_SELECT, (time.time_ns(), 1)).fetchone()
        if row is not None:
            self._execute(_TAKE, (row[0],))
        self._execute("COMMIT")
        return row

    def _claim(self, count: int) -> list[int]:
        self._execute("BEGIN IMMEDIATE")
        ids = [job_id for job_id, _ in self._execute(_SELECT, (time.time_ns(), count)).fetchall()]
        self._execute(_TAKE_MANY, (json.dumps(ids),))
        self._execute("COMMIT")
        return ids

    def _ack(self, ids: list[int]) -> None:
        self._execute(_DELETE_MANY, (json.dumps(ids),))
