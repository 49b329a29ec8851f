"""Databases to work on, back doors into them, and programs that run in processes of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import alkstore
from alkstore_sqlite.engine import SqliteEngine
from alkstore_sqlite.pool import Pool

LIMIT: Final = 120.0
"""Seconds after which a program is taken to hang, and killed."""


def url_of(path: Path) -> str:
    """Return the URL of a file."""
    return f"sqlite:///{path}"


def pool_of(store: alkstore.Store) -> Pool:
    """Return the pool underneath a store."""
    return cast(SqliteEngine, cast(Any, store).engine)._pool


def on_pool(store: alkstore.Store, statement: str) -> Any:
    """Run a statement on the connection that the store's next call will take, and return its first value."""
    pool = pool_of(store)
    units = pool.take()
    try:
        row = units.execute(statement).fetchone()
        return None if row is None else row[0]
    finally:
        pool.give(units)


@contextmanager
def back_door(path: Path) -> Generator[sqlite3.Connection]:
    """Open the file with the bare driver."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        yield connection


def look(path: Path, query: str, *values: object) -> list[Any]:
    """Return what a query finds, as its first column."""
    with back_door(path) as connection:
        return [row[0] for row in connection.execute(query, values)]


def is_sound(path: Path) -> bool:
    """Say whether SQLite finds the file in order."""
    return look(path, "PRAGMA integrity_check") == ["ok"]


class Program:
    """A function of ``tests.sqlite.programs`` in a process of its own; a context manager that leaves none behind."""

    def __init__(self, name: str, *arguments: object) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite.programs", name, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._watchdog = threading.Timer(LIMIT, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def hear(self) -> str:
        """Wait for the next line that it prints; fail if it ends instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith("\n"), f"the program ended with {self.process.wait()}, or hung"
        return line.rstrip("\n")

    def tell(self, line: str = "") -> None:
        """Give it a line to read."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Wait until it has ended well, and return the rest of what it printed."""
        rest = self.rest()
        code = self.process.wait()
        assert code == 0, f"the program ended with {code}"
        return rest

    def kill(self) -> list[str]:
        """Kill it with SIGKILL, and return the rest of what it printed."""
        self.process.kill()
        rest = self.rest()
        self.process.wait()
        return rest

    def rest(self) -> list[str]:
        """Return what it prints until it ends; not by ``communicate``, which passes over what was read and not yet heard."""
        assert self.process.stdout is not None
        return self.process.stdout.read().splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
