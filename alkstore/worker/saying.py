"""What the worker logs of a job: a line that names it, and the same as fields, for formatters that write them out by name."""

from __future__ import annotations

import logging
from typing import Final

from alkstore.worker.job import RunningJob

_LOG: Final = logging.getLogger("alkstore.worker")


def say(
    level: int, text: str, job: RunningJob, worker_id: str, *more: object, error: BaseException | None = None
) -> None:
    """Log a line, where lines of that level are written; ``text`` has a place for the job first, and then for the rest."""
    if _LOG.isEnabledFor(level):
        name = f"job {job.id} of {job.queue!r} (attempt {job.attempt}, worker {worker_id!r})"
        fields = {
            "alkstore_job": job.id,
            "alkstore_queue": job.queue,
            "alkstore_attempt": job.attempt,
            "alkstore_worker": worker_id,
        }
        _LOG.log(level, text, name, *more, exc_info=error, extra=fields, stacklevel=3)
