"""Looks at a PostgreSQL server, and at the traces of one, that use nothing of what the tests examine."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg


@contextlib.contextmanager
def open_ground() -> Generator[Path, None, None]:
    """A directory of the test's own for throw-away directories, so that those of other tests don't count.

    Unlike pytest's own it can be passed by every account, and its path is short enough for a Unix socket.
    """
    ground = Path(tempfile.mkdtemp(prefix="alk-", dir="/tmp"))
    ground.chmod(0o755)
    try:
        yield ground
    finally:
        shutil.rmtree(ground)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped doesn't."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return False
        return subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 0
    return status.rpartition(")")[2].split()[0] != "Z"


def ask(url: str, query: str) -> Any:
    """The one value that a query gives."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def tell(url: str, statement: str) -> None:
    """Have a statement executed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
