"""FIFOs beside the database, by which processes tell each other of commits (clauses W-4, Z-14).

SQLite tells nobody of a commit. So whoever waits hangs up a bell: a FIFO in a folder beside the database, named by
chance, which whoever may write to the database may write to, and nobody but its owner read. Whoever has committed writes a
line into each FIFO that he finds there: which queue, and how many jobs. A FIFO that nobody reads any more refuses to be opened
for writing, so that the first who rings there after a crash takes it down. Without waiters there is no folder, and a ring is
one failed look for it.

A FIFO is opened under a name that nobody rings, and gets its own when it is being read: else it could be taken for a
dead one in between, and be taken down. If its owner dies in between, the next who hangs one up clears it away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BELLS_SUFFIX: Final = "-alkstore-bells"
"""The folder of the bells is the database's name with this behind it."""

LINE: Final = min(512, getattr(select, "PIPE_BUF", 512))
"""Bytes of a line at most, which is so written whole or not at all."""

_MADE_WITHIN: Final = 60.0
"""Seconds after which a FIFO that doesn't hang yet is taken for one that never will; it takes its owner a fraction of one."""

ANYTHING: Final = b"0 \n"
"""The line that says that anything may have been committed."""


class Bell:
    """This process's FIFO in the folder beside the database."""

    def __init__(self, database: str) -> None:
        self._database: Final = Path(database)
        self._folder: Final = Path(database + BELLS_SUFFIX)
        self._path: Path | None = None
        self._closing = threading.Lock()
        """Held while it is struck, or its descriptor closed: that number may be another file's a moment later."""
        self.descriptor = -1

    @property
    def name(self) -> str | None:
        """Its name in the folder."""
        path = self._path
        return None if path is None else path.name

    def hang(self) -> bool:
        """Hang it up, where it isn't; say whether it is there."""
        if not can_hang():
            return False
        if self._path is not None and self._path.exists():
            return True
        self.take_down()
        _clear(self._folder)
        with contextlib.suppress(OSError):
            mode = self._database.stat().st_mode & 0o666
            for _ in range(3):  # whoever leaves last takes the folder away
                with contextlib.suppress(FileNotFoundError):
                    self._make(mode)
                    return True
        return False

    def _make(self, mode: int) -> None:
        if not self._folder.is_dir():
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(0o700)
                self._folder.chmod(mode | (mode & 0o444) >> 2)  # whoever may read the database may look in
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        hidden = self._folder / f".{name}"
        os.mkfifo(hidden, 0o600)
        descriptor = -1
        try:
            hidden.chmod(0o600 | (mode & 0o222))  # who else reads it would take the rings away
            # For both, so that there is always a writer, and the reader never at an end.
            descriptor = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            hidden.rename(self._folder / name)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            hidden.unlink(missing_ok=True)
            raise
        self._path, self.descriptor = self._folder / name, descriptor

    def take_down(self) -> None:
        """Take it down, and the folder with it if it is the last."""
        path, self._path = self._path, None
        with self._closing:
            self._close()
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            with contextlib.suppress(OSError):  # others hang there
                self._folder.rmdir()

    def forget(self) -> None:
        """In a forked child: let go of the parent's."""
        self._path = None
        self._close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def strike(self) -> None:
        """Ring it oneself, so that whoever reads it looks up."""
        with self._closing:
            if self.descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.write(self.descriptor, b"\n")

    def read(self) -> bytes:
        """Return what was rung since."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.descriptor, 65_536)
        return b""


def can_hang() -> bool:
    """Say whether this system has FIFOs."""
    return hasattr(os, "mkfifo")


def _clear(folder: Path) -> None:
    """Take away the FIFOs that never came to hang, as their owners died while they made them; nobody rings those."""
    with contextlib.suppress(OSError):
        for path in list(folder.glob(".*")):
            with contextlib.suppress(OSError):
                found = path.lstat()
                if stat.S_ISFIFO(found.st_mode) and found.st_mtime < time.time() - _MADE_WITHIN:
                    path.unlink()


def ring(database: str, own: str | None, lines: list[bytes]) -> None:
    """Write the lines into every FIFO that hangs beside the database, but this process's own."""
    folder = database + BELLS_SUFFIX
    try:
        names = os.listdir(folder)  # noqa: PTH208 - plain names, and nothing else is asked of each
    except OSError:
        return  # nobody waits
    for name in names:
        if name != own and not name.startswith("."):
            _ring_one(os.path.join(folder, name), lines)  # noqa: PTH118 - likewise


def _ring_one(path: str, lines: list[bytes]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as exc:
        if exc.errno == errno.ENXIO:  # nobody reads it: its owner has died
            with contextlib.suppress(OSError):
                if stat.S_ISFIFO(os.lstat(path).st_mode):
                    Path(path).unlink()
        return
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            for line in lines:
                os.write(descriptor, line)
    except OSError:
        return  # full: its owner has much to read, and then looks anyway
    finally:
        os.close(descriptor)


def spell(rings: Mapping[str, int], *, notified: bool) -> list[bytes]:
    """Return the lines that say what was committed; names have no line breaks (N-1)."""
    lines = [f"{count} {queue}\n".encode() for queue, count in rings.items()]
    if notified:
        lines.append(b"n \n")
    return [line if len(line) <= LINE else ANYTHING for line in lines]
