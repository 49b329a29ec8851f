"""Jobs on their way to a bulk insert, in chunks, kept on disk once they are many (clauses Q-ENQ-3, Z-9).

Everything is encoded and checked before anything is written or locked, so that a slow or failing iterable holds
nothing up and leaves nothing behind. A million jobs are then hundreds of megabytes of objects: past the first few
megabytes the chunks wait in an unnamed temporary file instead.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self, cast

from alkstore.errors import StorageFullError
from alkstore.limits import CHUNK_BYTES, CHUNK_JOBS
from alkstore.records import Alike, NewJob

_IN_MEMORY: Final = 4 * CHUNK_BYTES


class Spool:
    """Takes jobs one by one and gives them back in chunks, in order. A context manager: leaving drops what it holds."""

    def __init__(self, pattern: NewJob) -> None:
        self.pattern = pattern
        """What the jobs are like of which only the payload is given."""
        self._filling: list[NewJob | bytes] = []
        self._alike = True
        self._bytes = 0
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None
        self.chunks = 0
        """How many chunks there are, the one being filled included."""

    def add(self, job: NewJob) -> None:
        """Take a job."""
        self._add(job, len(job.payload))
        self._alike = False

    def add_alike(self, payload: bytes) -> None:
        """Take a job like the pattern."""
        self._add(payload, len(payload))

    def _add(self, job: NewJob | bytes, size: int) -> None:
        if len(self._filling) >= CHUNK_JOBS or self._bytes >= CHUNK_BYTES:
            self._put_away()
        if not self._filling:
            self.chunks += 1
        self._filling.append(job)
        self._bytes += size

    def _put_away(self) -> None:
        try:
            self._spill()
        except OSError as exc:
            raise StorageFullError(f"the jobs to enqueue are many, and no temporary file can hold them: {exc}") from exc
        self._filling, self._alike = [], True
        self._bytes = 0

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed on leaving
        pickle.dump((self._alike, self._filling), self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[Sequence[NewJob]]:
        """Give the chunks, in order; again from the start each time."""
        if self._file is not None:
            self._file.seek(0)
            for _ in range(self.chunks - 1):
                # Written by this very object, to a file that has no name: not input from anywhere.
                yield self._chunk(*pickle.load(self._file))  # noqa: S301
        if self._filling:
            yield self._chunk(self._alike, self._filling)

    def _chunk(self, alike: bool, jobs: list[NewJob | bytes]) -> Sequence[NewJob]:
        if alike:
            return Alike(self.pattern, cast("list[bytes]", jobs))
        return [self.pattern._replace(payload=job) if isinstance(job, bytes) else job for job in jobs]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
