"""One process of a worker's, as the worker has it: how it is started and ended, and its pipes.

**Pipes.** Three for each. The connection has the jobs one way and what becomes of them the other, used by the runner thread alone.
The news are small, and written without waiting, by whoever has them. Nothing is written to the third: its end is the worker's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from typing import Final

from alkstore.worker import messages
from alkstore.worker.signals import STOPPING

_ENDS: Final = 2.0
"""Seconds that an idle process has to end, when it is told to."""

# Its path first, then whatever is to be imported. The application's own modules could stand before the library's (-P).
_PROGRAM: Final = (
    "import sys, pickle; from multiprocessing.connection import Connection; c = Connection({}); "
    "sys.path[:] = pickle.loads(c.recv_bytes()); from alkstore.worker.child import main; main(c, {}, {})"
)


class Process:
    """A process, and its pipes. Whoever reaps it keeps others from killing: by then the pid may be another's."""

    def __init__(self) -> None:
        """Start it; raise ``OSError`` where there is none to be had."""
        with ExitStack() as theirs, ExitStack() as ours:
            self._connection, far = Pipe()
            ours.callback(self._connection.close)
            theirs.callback(far.close)
            news, self._news = _pipe(theirs, ours)
            life, _ = _pipe(theirs, ours)
            os.set_blocking(self._news, False)
            pipes = (far.fileno(), news, life)
            # Blocked until it can heed them: a SIGTERM for all of a service would kill it while it begins.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            theirs.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
            self._process = subprocess.Popen(
                [sys.executable, "-P", *_flags(), "-c", _PROGRAM.format(*pipes)],
                stdin=subprocess.DEVNULL,
                pass_fds=pipes,
                process_group=0,
            )
            self._pipes = ours.pop_all()

    def send(self, data: bytes) -> None:
        """Send; raise ``OSError`` where it has died."""
        self._connection.send_bytes(data)

    def receive(self) -> messages.Said:
        """Wait for what it says; raise ``OSError`` or ``EOFError`` where it has died."""
        return messages.decode(self._connection.recv_bytes())

    def tell(self, news: messages.News) -> None:
        """Tell it, without waiting: one that doesn't read is past news."""
        with suppress(OSError):
            os.write(self._news, news.encode())

    def kill(self) -> None:
        """Kill it, and what it has started."""
        with suppress(OSError):  # all of them have ended
            os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self) -> str:
        """Wait for its end, after it was killed or has closed its pipe, and say how it ended."""
        code = self._process.wait()
        self._pipes.close()
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def end(self) -> None:
        """Have it end, and wait for that; kill it where it takes too long."""
        with suppress(OSError):
            self.send(messages.encode(None))
        try:
            self._process.wait(_ENDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reap()


def _pipe(theirs: ExitStack, ours: ExitStack) -> tuple[int, int]:
    """Return a new pipe's ends, and have them closed."""
    reading, writing = os.pipe()
    theirs.callback(os.close, reading)
    ours.callback(os.close, writing)
    return reading, writing


def _flags() -> list[str]:
    """Return this interpreter's own options."""
    flags = [f"-W{each}" for each in sys.warnoptions]
    flags += ["-X" + name for name, given in (("dev", sys.flags.dev_mode), ("utf8", sys.flags.utf8_mode)) if given]
    for letter, count in (
        ("O", sys.flags.optimize), ("B", sys.flags.dont_write_bytecode), ("s", sys.flags.no_user_site),
        ("E", sys.flags.ignore_environment), ("I", sys.flags.isolated), ("S", sys.flags.no_site),
        ("b", sys.flags.bytes_warning),
    ):  # fmt: skip
        flags += [f"-{letter}"] * count
    return flags
