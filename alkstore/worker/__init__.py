"""The worker: what runs handlers on the jobs of queues. See ``worker`` for how it begins and ends."""

from __future__ import annotations

from alkstore.worker.control import Fail, Retry, Unhandled
from alkstore.worker.job import RunningJob
from alkstore.worker.worker import Handler, Summary, Worker

__all__ = ["Fail", "Handler", "Retry", "RunningJob", "Summary", "Unhandled", "Worker"]
