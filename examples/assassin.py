"""Kill a worker when it can hurt most: while it holds a job (for ``index_files.py``)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from multiprocessing.context import SpawnProcess

import alkstore


def kill_in_the_middle_of_a_job(queue: alkstore.Queue, crew: Mapping[str, SpawnProcess]) -> str | None:
    """Kill one of the workers with SIGKILL, for certain while it holds a job, and return its name.

    Returns ``None``, everybody alive, where none was caught with a job. The workers aren't in on it: each in turn is
    stopped where it stands, and the database is asked whether a job is in that worker's hands.
    """
    for name, process in crew.items():
        if not _stop(process):
            continue
        # Asked twice, because what the worker had sent before it stopped may be under way to being committed.
        if _holds_a_job(queue, name) and (time.sleep(0.05) or _holds_a_job(queue, name)):
            process.kill()
            process.join()
            return name
        os.kill(_pid(process), signal.SIGCONT)
    return None


def _stop(process: SpawnProcess) -> bool:
    """Stop a worker in mid-step, and return when it stands still; ``False`` where it has ended."""
    if not process.is_alive():
        return False
    os.kill(_pid(process), signal.SIGSTOP)
    # WNOWAIT leaves its end, should it come to that, for `multiprocessing` to find.
    seen = os.waitid(os.P_PID, _pid(process), os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return seen is not None and seen.si_code == os.CLD_STOPPED


def _holds_a_job(queue: alkstore.Queue, name: str) -> bool:
    return any(job.worker_id == name for job in queue.jobs(alkstore.State.PROCESSING))


def _pid(process: SpawnProcess) -> int:
    pid = process.pid
    assert pid is not None, "only workers that were started are handed over"  # noqa: S101
    return pid
