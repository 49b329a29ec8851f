"""Run the command line: within the test, as a process, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner, Result

from alkstore.cli.app import app
from tests.integrations.places import Place

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "alkstore.cli")


def environ(**changes: str) -> dict[str, str]:
    """The environment for a process that is to find this repository's code, and nothing else of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALKSTORE_URL", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT), **changes}


class Cli:
    """The command line on one place."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.where = ["--url", place.url, *([] if place.schema is None else ["--schema", place.schema])]
        self.folder = folder

    def __call__(self, *arguments: str, given: bytes = b"") -> Result:
        """Run a command within this process."""
        return CliRunner().invoke(app, [*arguments, *self.where], input=given)

    def done(self, *arguments: str, given: bytes = b"") -> str:
        """Run a command that ends well, and return what it wrote."""
        told = self(*arguments, given=given)
        assert (0, "") == (told.exit_code, told.stderr), told.output
        return told.stdout

    def json(self, *arguments: str, given: bytes = b"") -> Any:
        """Run a command with `--json`, and return its one document."""
        return json.loads(self.done(*arguments, "--json", given=given))

    def lines(self, *arguments: str, given: bytes = b"") -> list[Any]:
        """Run a command with `--json`, and return the document of each line."""
        return [json.loads(line) for line in self.done(*arguments, "--json", given=given).splitlines()]

    def start(
        self,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command as a process of its own."""
        return subprocess.Popen(
            [*COMMAND, *arguments, *self.where],
            cwd=self.folder,
            env=env or environ(),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


class Terminal:
    """A command on a terminal of its own, 100 columns wide."""

    def __init__(self, cli: Cli, *arguments: str, **changes: str) -> None:
        self.written = b""
        self._mine, theirs = pty.openpty()
        self.process = cli.start(
            *arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ(**{"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "20", **changes}),
        )
        os.close(theirs)

    def read_until(self, text: bytes, seconds: float = 30) -> None:
        """Read until the text has been written."""
        deadline = time.monotonic() + seconds
        while text not in self.written:
            assert time.monotonic() < deadline, self.written
            self._read()

    def end(self, seconds: float = 30) -> int:
        """Read to the end, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, self.written
        os.close(self._mine)
        return self.process.wait(seconds)

    def _read(self) -> bool:
        if not select.select([self._mine], [], [], 0.2)[0]:
            return True
        try:
            found = os.read(self._mine, 65_536)
        except OSError:  # what Linux says once nobody has the other end open
            return False
        self.written += found
        return bool(found)
