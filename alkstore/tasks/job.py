"""A call of a task that was enqueued."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from alkstore.clock import Duration
from alkstore.errors import ResultError, ResultTimeoutError
from alkstore.limits import POLL_INTERVAL
from alkstore.records import Outcome, Result
from alkstore.store import Store

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskJob(Generic[R]):
    """The job of one call: two of the same job are equal. What is worth keeping elsewhere is its id."""

    id: int
    queue: str
    task: str
    _store: Store = field(repr=False, compare=False)

    def result(self, timeout: Duration | None = None, *, poll_interval: Duration = POLL_INTERVAL) -> R:
        """Return what the task returned, waiting for it for ``timeout`` seconds (``None``: for ever) (Z-17).

        It has been through JSON: a tuple comes back as a list. Raises ``ResultTimeoutError`` when the time is up; ``ResultError``
        where the job is dead, was cancelled, or is gone and has left nothing; ``ValidationError`` where it was
        enqueued without ``keep_result``; and what ``queue.wait_result`` does, which returns the whole record instead.
        """
        queue = self._store.queue(self.queue)
        found = queue.wait_result(self.id, timeout, poll_interval=poll_interval)
        if found is None and queue.get_job(self.id) is not None:
            raise ResultTimeoutError(f"{self._name} has not come to a result within {timeout} s")
        # What had no result a moment ago, and is no job now, may have come to one in between.
        found = found or queue.result(self.id)
        if found is None:
            raise ResultError(f"{self._name} is gone, and there is no result of it, or no longer")
        return self._value(found)

    @property
    def _name(self) -> str:
        return f"job {self.id} of the task {self.task!r}"

    def _value(self, found: Result) -> R:
        match found.outcome:
            case Outcome.SUCCEEDED:
                return cast(R, found.value)
            case Outcome.CANCELLED:
                raise ResultError(f"{self._name} was cancelled")
            case Outcome.FAILED:
                raise ResultError(f"{self._name} is dead: {found.error}")
