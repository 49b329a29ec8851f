"""The runner's side of `child`: starts one, tells it what to do, and hears the answer before a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.system import Durability, System

Message = dict[str, Any]

ROOT: Final = Path(__file__).resolve().parent.parent
_PATIENCE: Final = 300.0


class ChildError(Exception):
    """What went wrong in a system's process, in a line."""


class Child:
    """A system in a process of its own."""

    def __init__(self, system: type[System], python: Path) -> None:
        self.system = system
        self.versions: dict[str, str] = {}
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.child", system.__module__, system.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def open(self, place: str, durability: Durability, *, create: bool) -> Message:
        """Open the system on a place; what its memory is then."""
        answer = self.ask({"do": "open", "place": place, "durability": durability, "create": create})
        self.versions = answer["versions"]
        return answer

    def run(self, operation: str, patience: float = _PATIENCE, **arguments: Any) -> Message:
        """Have an operation done, and return what it took."""
        return self.ask({"do": "run", "operation": operation, "arguments": arguments}, patience)

    def ask(self, message: Message, patience: float = _PATIENCE) -> Message:
        """Tell it something, and return its answer."""
        self.tell(message)
        return self.answer(patience)

    def tell(self, message: Message) -> None:
        """Tell it something, and go on."""
        assert self._process.stdin is not None  # noqa: S101 - it was asked for, and the types can't know
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildError(self._last_words()) from None

    def answer(self, patience: float = _PATIENCE) -> Message:
        """Return what it answers, what it heard meanwhile left aside; `ChildError` where that is an error or too late."""
        deadline = time.monotonic() + patience
        while True:
            message = self.hear(deadline - time.monotonic())
            if "ok" in message:
                return message["ok"]
            if "error" in message:
                raise ChildError(message["error"].splitlines()[0])

    def has_answered(self) -> bool:
        """Whether there is a line to be heard at once."""
        return not self._lines.empty()

    def hear(self, patience: float) -> Message:
        """Return its next line, whatever it is."""
        try:
            line = self._lines.get(timeout=max(patience, 0.0))
        except queue.Empty:
            raise ChildError("it took too long, and was given up") from None
        if line is None:
            raise ChildError(self._last_words())
        return json.loads(line)

    def close(self) -> None:
        """End it: in good order if it will, and with all that it started."""
        try:
            if self._process.poll() is None:
                with contextlib.suppress(ChildError):
                    self.ask({"do": "close"}, 20.0)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._complaints.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - as above
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _last_words(self) -> str:
        self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended with {self._process.returncode}"
