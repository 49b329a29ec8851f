"""How much of the processor a PostgreSQL server has used, all of its processes together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICK: Final = 1.0 / os.sysconf("SC_CLK_TCK")


def server_seconds(postmaster: int | None) -> float | None:
    """Return the processor's seconds of a server so far; ``None`` where that can't be known here.

    What has ended is in the postmaster's own account of its children; what lives has its own, to the nanosecond where
    the kernel tells.
    """
    if postmaster is None or not Path("/proc/self/stat").exists():
        return None
    fields = _stat(postmaster)
    if fields is None:
        return None
    # utime, stime, and both of the children that were waited for (proc(5), counted from the state)
    total = sum(int(fields[index]) for index in (11, 12, 13, 14)) * _TICK
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            total += _child_seconds(int(entry.name), postmaster)
    return total


def _child_seconds(pid: int, postmaster: int) -> float:
    fields = _stat(pid)
    if fields is None or int(fields[1]) != postmaster:
        return 0.0
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return (int(fields[11]) + int(fields[12])) * _TICK


def _stat(pid: int) -> list[str] | None:
    """Return what follows the name in a process's ``stat``, which may hold any character; ``None`` once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
