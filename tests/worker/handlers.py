"""Handlers that a worker's processes import."""

from __future__ import annotations

import os

from alkstore import RunningJob


def effect(job: RunningJob) -> None:
    with job.transaction() as tx:
        tx.queue("effects").enqueue([job.payload, os.getpid()])
