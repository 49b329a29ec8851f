"""What machine the figures are from: what bears on them, and nothing that would tell one such machine from another."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from pathlib import Path

_WRITES = 50


def machine() -> dict[str, str]:
    """Return cores, memory, system, and what a write to the disk costs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(cores),
        "memory": f"{memory:.0f} GiB",
        "processor": _processor(),
        "system": platform.system(),
        "fdatasync": f"{1_000 * fdatasync():.2f} ms",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "CPython": platform.python_version(),
    }


def fdatasync() -> float:
    """Return the seconds that a small write takes until it is on the disk, where databases are made here."""
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.TemporaryFile() as file:
        times: list[float] = []
        for _ in range(_WRITES):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            sync(file.fileno())
            times.append(time.perf_counter() - begun)
    return sorted(times)[_WRITES // 2]


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
