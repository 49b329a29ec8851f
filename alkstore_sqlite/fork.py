"""What a fork does to SQLite, and how a store survives it (S-4).

SQLite can't be carried across a fork, and opening a new connection in the child, as its manual advises, is not
enough. Three things go wrong, each silently:

* **Closing.** An inherited connection that the child closes, or lets the garbage collector close, may checkpoint, truncate
  the log's index or roll back beneath the parent. So the child never does: it takes one more reference to each, which is
  never given back, not even while the interpreter ends.
* **Phantom locks.** SQLite counts its locks on a file once per process, in memory that the child inherits. The kernel's
  (POSIX) locks behind them are not inherited. So the child's *new* connections find the file "locked already" and lock nothing.
  The parent then closes its last connection, sees nobody else, and deletes the write-ahead log; what the child commits
  afterwards goes to a deleted file. (Measured: the row is gone, without an error.) So the child takes, before it
  does anything else, the two locks that the inherited counts stand for, through the descriptors that it inherited: a
  shared one on the database, which says that the log is in use, and one on the log's index, which says that the index
  is. They are SQLite's own locks, at the places that its file format fixes, and stay until the child ends.
* **Half-done work.** A thread that was inside SQLite at the fork doesn't exist in the child; what it locked stays locked.
  So a fork waits, for a bounded time, until every thread is out of SQLite; those that want in wait until the fork is over.
  An open transaction is no such thing, its thread may be anywhere; but the child inherits a count that says that the write lock is
  taken. Rolling the copy back clears the count. It touches nothing that the parent shares, because our
  connections write to the log only in COMMIT (``cache_spill`` is off), and the parent waits until it is done.

The parent waits for the child to have taken its locks (a pipe that the child closes): else the parent might close, or
end, between the fork and the lock. It usually takes a fraction of a millisecond.

What stays open: connections to the same file that other code of the process has (an application's own) are not
ours to hold still. Where they are idle at the fork, all is well: their locks are taken like ours, at the fork or when a
store is opened in the child; and where the parent has closed its own before that, the child's store refuses use. A
transaction that is open on one of them keeps the child from writing. Where a thread can't be got out of SQLite in time,
the child's store refuses use and says why, rather than risk the file. A child that closes descriptors which it doesn't
know, as daemons do, closes those that the locks hang on: it has to open its store after that, and its parent must not
have had one open at the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

_CALM_WITHIN: Final = 5.0
"""Seconds that a fork waits for threads to come out of SQLite."""

_ADOPTED_WITHIN: Final = 10.0
"""Seconds that the parent waits for its child to have taken its locks; only a stopped child takes that long."""

# Of SQLite's file format: the range of a database file that a reader of it locks, and the byte of the log's index
# by which a process says that it uses the index.
_SHARED_FIRST: Final = 0x40000002
_SHARED_SIZE: Final = 510
_INDEX_BYTE: Final = 128
_INDEX_STEP: Final = 32_768
"""Bytes by which the log's index grows."""


class Forkable(Protocol):
    """What is told of forks."""

    def freeze(self, deadline: float) -> bool:
        """Keep everybody out of SQLite, and say whether everybody was out by the deadline (monotonic)."""
        ...

    def thaw(self) -> None:
        """In the parent: go on."""
        ...

    def inherit(self, calm: bool) -> None:
        """In the child: start anew; ``calm`` says whether ``freeze`` succeeded."""
        ...


class _Forks:
    """What this process knows of its forks."""

    def __init__(self) -> None:
        self.known: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self.one_at_a_time = threading.RLock()
        self.frozen: dict[Forkable, bool] = {}
        self.pipe: tuple[int, int] | None = None
        self.unusable: set[tuple[int, int]] = set()
        self.inherited: set[tuple[int, int]] = set()
        """The files that were open when this process was forked, less those whose locks were taken since."""


_forks: Final = _Forks()


def register(forkable: Forkable) -> None:
    """Have it told of forks for as long as it lives."""
    with _forks.one_at_a_time:
        _forks.known.add(forkable)


def leak(thing: object) -> None:
    """Keep an object alive for ever: not even the end of the interpreter deallocates it.

    One reference more than there is an owner for. A module's global would not do: modules are cleared at the end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def adopt_locks(path: str) -> bool:
    """Take the locks that inherited connections to a database in WAL mode seem to have, and say whether that worked.

    It doesn't where there are no such connections. To be called in a forked child only, where SQLite can't have a stronger
    lock: those counts keep it from one.
    """
    if fcntl is None:  # no fork there either
        return False
    try:
        for name, length, start in ((path, _SHARED_SIZE, _SHARED_FIRST), (path + "-shm", 1, _INDEX_BYTE)):
            descriptor = _inherited(name)
            if descriptor is None:
                return False
            _lock_shared(descriptor, length, start)
        _forks.inherited.discard(_identity(Path(path).stat()))
    except OSError:
        return False
    return True


def _lock_shared(descriptor: int, length: int, start: int) -> None:
    """Take it; whoever has an exclusive one is closing the database, or in a checkpoint, for a moment."""
    assert fcntl is not None  # noqa: S101 - asked before
    deadline = time.monotonic() + _CALM_WITHIN
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.001)  # there is no signal to wait for: it is another process's lock
        else:
            return


def set_unusable(path: str) -> None:
    """Remember that nothing in this process can use the file safely."""
    _forks.unusable.add(_identity(Path(path).stat()))


def is_usable(path: str) -> bool:
    """Say whether the file, where there is one, can be used in this process; to be asked before it is opened.

    Connections to it that other code opened before a fork left their counts here: so the locks are taken, too. Only then,
    and once: a process has one lock on a file, and taking a shared one would weaken the exclusive one that a connection of
    the process's own may have just now, while it checkpoints. Where the parent has closed its connection meanwhile, and with it
    deleted the log and its index, SQLite would go on with those here, and what it commits would be in no file.
    """
    try:
        identity = _identity(Path(path).stat())
    except OSError:
        return True  # opening it will say what is wrong
    if identity in _forks.inherited and not adopt_locks(path) and _has_deleted_index(path):
        _forks.unusable.add(identity)
    return identity not in _forks.unusable


def _identity(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _inherited(path: str) -> int | None:
    """Return an open descriptor of the file, without opening anything of it."""
    wanted = _identity(Path(path).stat())
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            if _identity(os.fstat(descriptor)) == wanted:
                return descriptor
    return None


def _has_deleted_index(path: str) -> bool:
    """Say whether an index of the database's log is open here that is deleted."""
    device = Path(path).stat().st_dev
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            found = os.fstat(descriptor)
            if found.st_nlink or found.st_dev != device or not stat.S_ISREG(found.st_mode):
                continue
            was = _name_of(descriptor)
            if was == f"{path}-shm (deleted)" or (was is None and found.st_size and found.st_size % _INDEX_STEP == 0):
                return True
    return False


def _name_of(descriptor: int) -> str | None:
    """Return what an open file is called, where the system knows."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return None


def _descriptors() -> Iterable[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return [int(entry.name) for entry in Path(folder).iterdir()]
    return range(os.sysconf("SC_OPEN_MAX"))


def _before() -> None:
    _forks.one_at_a_time.acquire()
    deadline = time.monotonic() + _CALM_WITHIN
    for forkable in list(_forks.known):
        _forks.frozen[forkable] = False  # to be thawed even if an interrupt cuts the next line short
        _forks.frozen[forkable] = forkable.freeze(deadline)
    if _forks.frozen:
        _forks.pipe = os.pipe()


def _after_in_parent() -> None:
    pipe, _forks.pipe = _forks.pipe, None
    try:
        if pipe is not None:
            _wait_for_child(*pipe)
    finally:
        for forkable in _forks.frozen:
            forkable.thaw()
        _forks.frozen = {}
        _forks.one_at_a_time.release()


def _wait_for_child(reader: int, writer: int) -> None:
    os.close(writer)
    # Not select(), which fails for descriptors over 1,023. The child writes nothing: it closes its end, or dies.
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    waiting.poll(_ADOPTED_WITHIN * 1_000)
    os.close(reader)


def _after_in_child() -> None:
    pipe, _forks.pipe = _forks.pipe, None
    frozen, _forks.frozen = _forks.frozen, {}
    _forks.one_at_a_time = threading.RLock()
    _forks.inherited = set()
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            _forks.inherited.add(_identity(os.fstat(descriptor)))
    for forkable, calm in frozen.items():
        forkable.inherit(calm)
    if pipe is not None:
        for descriptor in pipe:
            os.close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
