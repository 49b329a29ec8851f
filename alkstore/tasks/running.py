"""A worker's handler for tasks: it looks who is meant, and calls it."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from alkstore.errors import PayloadError
from alkstore.tasks.task import ARGUMENTS, NAME, Definition, read_call
from alkstore.worker.control import Unhandled
from alkstore.worker.job import RunningJob

if TYPE_CHECKING:
    from alkstore.tasks.registry import Tasks

running: Final[ContextVar[RunningJob | None]] = ContextVar("alkstore_running_job", default=None)
"""The job whose task runs here."""


class TaskHandler:
    """Runs whatever task a job names. Where it is pickled, what goes is where the tasks are to be found."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def __call__(self, job: RunningJob) -> object:
        """Call the task; ``Unhandled`` where it isn't known here, ``ValidationError`` where its arguments don't fit it."""
        definition, arguments = self._read(job)
        token = running.set(job)
        try:
            return definition.run(job, arguments)
        finally:
            running.reset(token)

    def timeout_of(self, job: RunningJob) -> float | None:
        """Return the task's own timeout, in seconds."""
        if not self._tasks.any_timeout:
            return None  # nobody looks into the payload for nothing
        try:
            definition, _ = self._read(job)
        except (PayloadError, Unhandled):
            return None  # as it will be told when it is called
        return definition.options.timeout

    def _read(self, job: RunningJob) -> tuple[Definition, Mapping[str, object]]:
        called = read_call(job.payload)
        if called is None:
            raise Unhandled(f'its payload is no task\'s, which is {{"{NAME}": name, "{ARGUMENTS}": {{...}}}}')
        name, arguments = called
        task = self._tasks.get(name)
        if task is None:
            raise Unhandled(f"there is no task {name!r} here")
        return task.definition, arguments
