"""What every source of a PostgreSQL server for the tests has in common."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import psycopg

from tests.support.waiting import wait_until

StopMode = Literal["fast", "immediate"]

SUPERVISOR = Path(__file__).with_name("postgres_supervisor.py")


class SourceUnavailable(Exception):
    """Why one source gives no server; the text completes a line of the report that the reader gets."""


class Control(Protocol):
    """How a server that belongs to the test session is driven."""

    def start(self) -> None:
        """Start the server and return when it accepts connections."""

    def stop(self, mode: StopMode) -> None:
        """Stop the server and return when it has ended."""

    def close(self) -> None:
        """Stop the server and remove everything; harmless when done before."""

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster on this machine; None when stopped, or when it can't be known."""


@dataclass(frozen=True)
class Request:
    """What is asked of a source: any version it has, or one major version."""

    major: int | None = None
    url: str | None = None


@dataclass(frozen=True)
class Running:
    """A server that a source has started, or was shown."""

    url: str
    source: str
    control: Control | None = None
    socket_url: str | None = None
    directory: Path | None = None


class Supervisor:
    """The session's end of the pipe to the process that cleans up after it (see `postgres_supervisor`)."""

    def __init__(self, config: dict[str, Any], *, site_packages: bool) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        isolation = ["-P"] if site_packages else ["-I", "-S"]
        self._process = subprocess.Popen(
            [sys.executable, *isolation, str(SUPERVISOR), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )
        try:
            self.state = self.ask(config)
        except BaseException:
            # The supervisor removes what it made when the pipe ends; asking it would hide the reason.
            self._release()
            raise

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return the answer. Raises SourceUnavailable with the supervisor's reason."""
        self._check_owner()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock, contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request).encode() + b"\n")
            line = stdout.readline()
            if line:
                self.state = json.loads(line)
                if "error" in self.state:
                    raise SourceUnavailable(self.state["error"])
                return self.state
        self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip()
        raise SourceUnavailable(f"the supervisor ended with {self._process.returncode}: {said[-2000:]}")

    def close(self) -> None:
        """Have everything removed, and return when it is."""
        # A child that the session forked may run this at its exit; the server isn't its own to stop.
        if os.getpid() != self._owner or self._complaints.closed:
            return
        try:
            if self._process.poll() is None:
                self.ask({"do": "close"})
        finally:
            self._release()

    def _release(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._complaints.close()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("only the process that started the PostgreSQL server may drive it")


def server_version(url: str, timeout: float = 0.0) -> int:
    """The server's version number, such as 180001.

    A server that can't be reached is asked again for `timeout` seconds; then SourceUnavailable is raised.
    """
    refused: list[psycopg.OperationalError] = []

    def look() -> int:
        try:
            with psycopg.connect(url, connect_timeout=10) as connection:
                return connection.info.server_version
        except psycopg.OperationalError as error:
            refused.append(error)
            return 0

    try:
        return wait_until(look, timeout, "PostgreSQL to accept connections")
    except TimeoutError as error:
        raise SourceUnavailable(f"{refused[-1]}".strip()) from error
