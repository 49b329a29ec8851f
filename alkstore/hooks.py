"""Hooks: what an application is told of its jobs as they go by (``docs/observing.md``).

``alkstore.open(url, hooks=[...])`` takes any number. They are told in that order, on the thread that did it, once it is committed
and never before: a hook looks on. Whatever one raises is logged and goes no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alkstore.worker.job import RunningJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueueing:
    """A call that is about to store jobs."""

    queue: str
    many: bool
    """Whether it is ``enqueue_many``: what a hook returns goes to all of its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """Jobs that were stored by one call, and committed."""

    queue: str
    job_ids: tuple[int, ...]
    """In the order of the call; one of ``enqueue``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A job that was claimed."""

    queue: str
    job_id: int
    attempt: int
    worker_id: str | None
    waited: timedelta
    """From when it was due to the claim; of one that is claimed after a claim that lapsed, from when it was due before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is known of a claim when it ends.

    A handle that was rebuilt from its token (Q-8), and a bare id in ``ack_batch``, may know neither attempt nor worker.
    """

    queue: str
    job_id: int
    attempt: int | None
    worker_id: str | None
    duration: timedelta | None
    """How long the handler took, or the block of ``with handle:`` or ``handle.transaction()``; ``None`` where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded(Settled):
    """A job that was acked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Settled):
    """A job whose attempt failed, and that will be tried again."""

    error: str | None
    delay: timedelta
    """After which it is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Settled):
    """A job that is dead: it was failed on purpose, or its last attempt was."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Settled):
    """A claim that turned out lost: it lapsed, or the job was settled or cancelled elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep that moved jobs to the dead table: expired, or lapsed with their budget spent."""

    queue: str
    moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed:
    """A method of a hook that raised."""

    hook: str
    """The hook's class."""
    method: str
    error: str


class Hooks:
    """What an application is told; every method does nothing, until a subclass says otherwise.

    They are called on whichever thread did it, and so from several at a time. What they take, the caller waits for: on a worker
    those that fetch and settle. An exception that one raises is logged by ``alkstore``, told to ``hook_failed``, and swallowed.

    In a transaction they are called after its commit, and not at all where it, or the savepoint, is rolled back. Over a joined
    connection that holds for SQLAlchemy's ``Session`` and for Django; nothing tells of the commits of other connections, and
    so, as with wakes (Z-14), nothing is told there, but for what is committed at once.
    """

    def enqueueing(self, event: Enqueueing) -> Mapping[str, str] | None:  # noqa: ARG002 - for subclasses
        """Return headers for the jobs that are about to be stored, for a trace's context say.

        The application's own win, then those of the hooks before this one. What isn't ``str`` to ``str``, and what would go
        over the limits of headers (O-2), is left out.
        """
        return None

    def enqueued(self, event: Enqueued) -> None:
        """Jobs were stored, and committed."""

    def claimed(self, event: Claimed) -> None:
        """A job was claimed, by ``claim_one``, ``claim_batch``, ``consume`` or a worker; it may still be released unbegun."""

    def running(self, job: RunningJob) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for subclasses
        """Return a block for a worker's handler to run in, on the handler's thread.

        The block sees what the handler raises, ``Retry``, ``Fail`` and ``Unhandled`` included, and can't change it.
        """
        return None

    def deputy(self, job: RunningJob) -> Hooks | None:  # noqa: ARG002 - for subclasses
        """Return what stands in for this hook in the process of a worker's where the handler runs (``processes=``).

        It is asked for within the block of ``running``, which stays in the worker's process, and is pickled. There its own
        ``running`` is around the handler, and its ``enqueueing`` is asked when that enqueues in ``job.store``. Nothing else is
        told it: what the handler does with jobs is told the hook itself, in the worker's process.
        """
        return None

    def succeeded(self, event: Succeeded) -> None:
        """A job was acked."""

    def retried(self, event: Retried) -> None:
        """A job's attempt failed, and it will be tried again."""

    def died(self, event: Died) -> None:
        """A job was failed on purpose, or its last attempt failed. Burials by claims and sweeps are not told one by one."""

    def lost(self, event: Lost) -> None:
        """A claim turned out lost; told once of each, when it is noticed."""

    def swept(self, event: Swept) -> None:
        """A sweep moved jobs to the dead table, a worker's own included."""

    def hook_failed(self, event: HookFailed) -> None:
        """A hook raised, this one or another; what ``hook_failed`` itself raises is only logged."""
