"""Index every file below a directory through a durable queue, while a worker is killed in the middle of it.

    python examples/index_files.py [DIRECTORY] [--url postgresql://user@host/database]

Every file becomes a job. Three worker processes claim the jobs; for each they compute the file's SHA-256 and its line
and byte counts, and write one row to a results table *in the same transaction as the ack*, so that a job is done
exactly when its row is there. One worker is killed with SIGKILL while it holds a job: the job's claim lapses, and
another worker takes it over. In the end the results are checked against a direct walk of the directory: every file is
there exactly once, with the right figures, or the exit code is 1.

Apart from the murder (``assassin.py``) and the show (``display.py``), this is how one would write it in earnest.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import secrets
import signal
import stat
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import assassin
import display

import alkstore

WORKERS: Final = 3
VISIBILITY: Final = 2.0
"""Seconds for which a claim is valid: short, so that a killed worker's job comes back soon. Heartbeats extend it."""

# `spawn` starts a fresh interpreter per worker, which inherits neither connections nor locks.
SPAWN: Final = multiprocessing.get_context("spawn")
STDLIB: Final = Path(sysconfig.get_path("stdlib")).resolve()


class Facts(NamedTuple):
    """What the index says of a file: the figures, or an error where it can't be read."""

    sha256: str | None
    lines: int | None
    size: int | None
    error: str | None


@dataclass(frozen=True)
class Place:
    """Where jobs and results are: all that a worker has to know to open a store of its own."""

    url: str
    run: str
    """A name for this run alone, so that it disturbs nothing in a database that is used for other things."""

    @property
    def is_sqlite(self) -> bool:
        """Whether to speak SQLite's SQL, or else PostgreSQL's."""
        return self.url.startswith("sqlite:")

    @property
    def results(self) -> str:
        """The name of the results table."""
        return f"results_{self.run}" if self.is_sqlite else f'"alkstore_{self.run}".results'

    def insert(self) -> str:
        """Return the statement that records one file; the placeholders are the driver's own."""
        marks = ", ".join(["?" if self.is_sqlite else "%s"] * 6)
        return f"INSERT INTO {self.results} (path, attempt, sha256, lines, size, error) VALUES ({marks})"

    def open(self) -> alkstore.Store:
        """Open the store."""
        return alkstore.open(self.url) if self.is_sqlite else alkstore.open(self.url, schema=f"alkstore_{self.run}")

    def queue(self, store: alkstore.Store) -> alkstore.Queue:
        """Return the queue of files. A payload is a path as bytes, since a file's name need not be text."""
        return store.queue(f"index {self.run}", codec="raw", visibility_timeout=VISIBILITY)


# --- the work: what each worker process does -----------------------------------------------------------------------


def examine(path: Path, alive: Callable[[], bool] = lambda: True) -> Facts | None:
    """Read a file and return the facts; or ``None`` when ``alive``, asked now and then, says that it is too late."""
    digest, lines, size, asked = hashlib.sha256(), 0, 0, time.monotonic()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                lines += chunk.count(b"\n")
                size += len(chunk)
                if time.monotonic() - asked > VISIBILITY / 3:
                    if not alive():
                        return None
                    asked = time.monotonic()
    except OSError as exc:  # not readable, or gone since it was listed: a finding as well, and no reason to stop
        return Facts(None, None, None, type(exc).__name__)
    return Facts(digest.hexdigest(), lines, size, None)


def work(place: Place, root: Path, name: str, stop: Connection) -> None:
    """Index files until told to stop."""
    with place.open() as store:
        queue = place.queue(store)
        pause = 0.0
        # The pipe becomes readable when the parent closes its end, or dies: no worker outlives its parent. (An Event of
        # multiprocessing has a lock in it, which a killed worker could take along.)
        while not stop.poll(pause):
            handle = queue.claim_one(name)
            if handle is None:
                # Nothing to do now, though a lapsed claim may still come back. What is waited on is the pipe, so that the
                # parent's end is seen at once; so the queue is asked again, ever less often.
                pause = min(0.25, pause * 2 or 0.01)
                continue
            pause = 0.0
            # The reading comes first and the transaction is short: on SQLite, an open one keeps all other writers waiting.
            facts = examine(root / os.fsdecode(handle.raw), alive=lambda h=handle: not stop.poll() and h.heartbeat())
            if facts is None:
                continue  # the claim is lost, or all is over
            try:
                with handle.transaction() as tx:
                    tx.execute(place.insert(), (handle.raw, handle.attempt, *facts))
            except alkstore.ClaimLostError:
                continue  # somebody else has the job by now; the row was rolled back with the ack, and is theirs to write


@contextmanager
def workers(place: Place, root: Path) -> Generator[dict[str, SpawnProcess]]:
    """Start the workers, and stop them however the block ends."""
    crew: dict[str, SpawnProcess] = {}
    ends: list[Callable[[], None]] = []
    try:
        # Ctrl-C reaches every process at the terminal, but only the parent heeds it, and stops the workers in good order:
        # that it is ignored is inherited.
        heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for name in (f"worker {number}" for number in range(1, WORKERS + 1)):
                theirs, ours = SPAWN.Pipe(duplex=False)
                ends.append(ours.close)
                crew[name] = SPAWN.Process(target=work, args=(place, root, name, theirs), name=name)
                crew[name].start()
                theirs.close()
        finally:
            signal.signal(signal.SIGINT, heeded)
        yield crew
    finally:
        for end in ends:
            end()
        for process in crew.values():
            if process.pid is not None:
                process.join(timeout=10)
                process.kill()
                process.join()


# --- around the work: what the parent does -------------------------------------------------------------------------


def walk(root: Path) -> dict[str, tuple[int, int]]:
    """Return every regular file below ``root``: its path from there, and a stamp that changes when the file does."""
    found: dict[str, tuple[int, int]] = {}
    for folder, folders, names in os.walk(root):
        if root == STDLIB and "site-packages" in folders:
            folders.remove("site-packages")  # what is installed there isn't the standard library
        for path in (Path(folder, name) for name in names):
            try:
                status = path.lstat()
            except OSError:
                continue  # gone again
            if stat.S_ISREG(status.st_mode):  # links may lead out or round and round, and a FIFO never ends
                found[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns)
    return found


@contextmanager
def results_table(place: Place, store: alkstore.Store) -> Generator[None]:
    """Make the results table; in the end drop it, with whatever else the run has put into the database."""
    blob = "BLOB" if place.is_sqlite else "BYTEA"
    columns = f"path {blob}, attempt INTEGER, sha256 TEXT, lines BIGINT, size BIGINT, error TEXT"
    # No unique key on the path: a file that is indexed twice shall show in the end, not be covered up.
    with store.transaction() as tx:
        tx.execute(f"CREATE TABLE {place.results} ({columns})")
    try:
        yield
    finally:
        for state in alkstore.State:
            place.queue(store).purge(state)
        with store.transaction() as tx:
            tx.execute(f"DROP TABLE {place.results}")
            if not place.is_sqlite:
                tx.execute(f'DROP SCHEMA "alkstore_{place.run}" CASCADE')


def watch(queue: alkstore.Queue, crew: Mapping[str, SpawnProcess], total: int, bar: display.Bar) -> str | None:
    """Show the progress until nothing is left to do; on the way, kill a worker and return its name."""
    victim: str | None = None
    while True:
        stats = queue.stats()
        left = stats.ready + stats.scheduled + stats.processing
        bar.show(total - left - stats.dead)
        if left == 0 or not any(process.is_alive() for process in crew.values()):
            return victim
        if victim is None and left <= total * 3 / 4:
            victim = assassin.kill_in_the_middle_of_a_job(queue, crew)
            if victim is not None:
                bar.note(f"{victim} was killed in the middle of a job (SIGKILL); its claim lapses in {VISIBILITY:g} s")
        time.sleep(0.05)


def check(root: Path, listed: Mapping[str, tuple[int, int]], rows: Mapping[str, list[Facts]]) -> Iterator[str]:
    """Yield whatever is wrong with the results, as a direct walk of the directory tells."""
    present = walk(root)
    for path, stamp in listed.items():
        found = rows.get(path, [])
        if len(found) != 1:
            yield f"{display.printable(path)} is in the results {len(found)} times"
        # A file that was changed or removed during the run has no facts to compare with; what matters is its one row.
        elif present.get(path) == stamp and found[0] != examine(root / path):
            yield f"{display.printable(path)} has the wrong figures in the results"
    for path in rows.keys() - listed.keys():
        yield f"{display.printable(path)} is in the results and was never enqueued"


def index(place: Place, root: Path) -> bool:
    """Do the whole of it, and say whether every file was indexed exactly once."""
    with place.open() as store:
        if not store.capabilities.processes:
            raise SystemExit("such a store can't be shared by processes: give the URL of a file or of a server")
        with results_table(place, store):
            queue = place.queue(store)
            listed = walk(root)
            queue.enqueue_many(os.fsencode(path) for path in listed)
            print(f"{len(listed)} files below {display.printable(str(root))}, each a job on {store.health().engine}")
            begun = time.monotonic()
            with display.Bar(len(listed)) as bar, workers(place, root) as crew:
                victim = watch(queue, crew, len(listed), bar)
                elapsed = time.monotonic() - begun
            attempts: list[int] = []
            rows: defaultdict[str, list[Facts]] = defaultdict(list)
            with store.transaction() as tx:
                select = f"SELECT path, attempt, sha256, lines, size, error FROM {place.results}"
                for path, attempt, *facts in tx.execute(select):
                    attempts.append(attempt)
                    rows[os.fsdecode(path)].append(Facts(*facts))
            problems = list(check(root, listed, rows))
            problems += [f"{name} ended with {p.exitcode}" for name, p in crew.items() if name != victim and p.exitcode]
    display.table(
        {
            "files": len(listed),
            "processed": len(attempts),
            "reclaimed": sum(attempt > 1 for attempt in attempts),
            "attempts": sum(attempts),
            "files per second": round(len(attempts) / elapsed),
        }
    )
    if victim is None:
        print("Nobody was killed: there was too little to do to catch a worker in the middle of a job.")
    for problem in problems[:20]:
        print(f"WRONG: {problem}")
    if problems:
        print(f"Checked against a direct walk: {len(problems)} problems.")
    else:
        print("Checked against a direct walk: every file exactly once, every hash and count right.")
    return not problems


def leave(signum: int, _frame: object) -> None:
    """Turn a signal into an exit that cleans up."""
    sys.exit(128 + signum)


def main() -> int:
    """Read the command line and return the exit code: 0 when every file was indexed exactly once, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Index a directory's files through a durable queue, exactly once.")
    parser.add_argument("directory", nargs="?", help="default: this Python's standard library")
    parser.add_argument("--url", help="the database; default: an SQLite file in a temporary directory")
    given = parser.parse_args()
    root = Path(given.directory).resolve() if given.directory else STDLIB
    try:
        if not root.is_dir():
            parser.error(f"{display.printable(str(root))} is not a directory")
    except OSError as exc:
        parser.error(f"{display.printable(str(root))} can't be read: {exc.strerror}")
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    try:
        with tempfile.TemporaryDirectory(prefix="alkstore-") as folder:
            url = given.url or f"sqlite:///{quote(os.fsencode(Path(folder, 'index.db')))}"
            return 0 if index(Place(url, secrets.token_hex(4)), root) else 1
    except alkstore.AlkstoreError as exc:
        print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
