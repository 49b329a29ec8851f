"""Tasks: functions whose calls are jobs. See ``registry`` for how they are made and run, ``task`` for how they are enqueued."""

from __future__ import annotations

from alkstore.tasks.job import TaskJob
from alkstore.tasks.options import TaskFields, TaskOptions
from alkstore.tasks.registry import Tasks
from alkstore.tasks.task import Enqueues, JobTask, Task

__all__ = ["Enqueues", "JobTask", "Task", "TaskFields", "TaskJob", "TaskOptions", "Tasks"]
