"""A worker in a thread of the test's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from alkstore import Worker

WAIT = 60


class Running:
    """A worker that runs in a thread, until the block is left."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Worker:
        self.done = self.pool.submit(self.worker.run)
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        try:
            self.summary = self.done.result(WAIT)
        finally:
            self.pool.shutdown()
