"""What a task is decorated with, and what one call of it may say for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, TypedDict

from alkstore.clock import SECOND, Duration, duration
from alkstore.errors import ValidationError
from alkstore.names import check_name
from alkstore.options import Backoff, JobOptions, QueueOptions, Stamps, queue_options, resolve_enqueue
from alkstore.protocols import Transaction


class TaskFields(TypedDict, total=False):
    """What a task may be decorated with; ``None`` is as if not given.

    ``queue``: where its jobs go, ``default`` if nothing is said. ``name``: what they call it, by default its module and
    qualified name. ``visibility_timeout``, ``max_attempts``, ``backoff``, ``dead_letter_retention``: as for a queue's handle
    (O-1). ``priority``, ``expires``, ``keep_result``: as for ``enqueue`` (O-2, Z-17). ``timeout``: how long it may run,
    instead of the worker's own word on that.
    """

    queue: str | None
    name: str | None
    visibility_timeout: Duration | None
    max_attempts: int | None
    backoff: Backoff | None
    dead_letter_retention: Duration | None
    priority: int | None
    expires: Duration | None
    keep_result: Duration | None
    timeout: Duration | None


class TaskOptions(JobOptions, total=False):
    """What one call may say for itself: the options of ``enqueue``, and ``tx``, the transaction that it belongs to."""

    tx: Transaction | None


_FIELDS: Final = frozenset(TaskFields.__annotations__)
_OF_QUEUE: Final = frozenset(field.name for field in fields(QueueOptions))
_OF_JOB: Final = frozenset({"priority", "expires", "keep_result"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A task's options, checked."""

    queue: str
    stamps: QueueOptions
    job: Mapping[str, object]
    timeout: float | None
    """Seconds."""


def resolve(given: Mapping[str, object]) -> Resolved:
    """Check all of it; raise ``ValidationError`` naming the option (O-4)."""
    for key in given:
        if key not in _FIELDS:
            raise ValidationError(f"{key!r} is not a task option; those are {', '.join(sorted(_FIELDS))}")
    said = {key: value for key, value in given.items() if value is not None}
    job = {key: value for key, value in said.items() if key in _OF_JOB}
    stamps = queue_options(None, {key: value for key, value in said.items() if key in _OF_QUEUE})
    resolve_enqueue(Stamps.of(stamps), "json", b"", job)  # wrong now, and not at its first enqueue
    timeout = said.get("timeout")
    return Resolved(
        queue=check_name(said.get("queue", "default"), "queue name"),
        stamps=stamps,
        job=job,
        timeout=None if timeout is None else duration(timeout, "timeout", positive=True) / SECOND,
    )
