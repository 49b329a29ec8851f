"""From the product's records and the back door's rows to the model's, so that the two can be compared with ``==``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from alkstore import Job, QueueStats
from contract_tests.harness import Row
from contract_tests.model import Fate, ModelJob, ModelStats

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def micros(instant: datetime) -> int:
    """Return an instant in the model's unit."""
    return (instant - EPOCH) // MICROSECOND


def span(length: timedelta) -> int:
    """Return a duration in the model's unit."""
    return length // MICROSECOND


def moment(instant: int) -> datetime:
    """Return an instant of the model as a ``datetime``."""
    return EPOCH + instant * MICROSECOND


def length(duration: int) -> timedelta:
    """Return a duration of the model as a ``timedelta``."""
    return duration * MICROSECOND


class JobView(NamedTuple):
    """All of a job that both sides can say."""

    id: int
    queue: str
    fate: Fate
    payload: object
    priority: int
    attempts: int
    max_attempts: int
    created_at: int
    run_at: int
    expires_at: int | None
    visibility_timeout: int
    worker: str | None
    deadline: int | None
    last_error: str | None
    died_at: int | None


class RowView(NamedTuple):
    """All of a stored row that both the back door and the model can say."""

    id: int
    queue: str
    dead: bool
    payload: object
    worker: str | None
    attempts: int
    created_at: int
    run_at: int
    expires_at: int | None
    last_error: str | None


def view(job: Job) -> JobView:
    """Return the product's record, for comparison."""
    return JobView(
        id=job.id,
        queue=job.queue,
        fate=Fate(str(job.state)),
        payload=job.payload,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        created_at=micros(job.created_at),
        run_at=micros(job.run_at),
        expires_at=_maybe(job.expires_at),
        visibility_timeout=span(job.visibility_timeout),
        worker=job.worker_id,
        deadline=_maybe(job.claim_expires_at),
        last_error=job.last_error,
        died_at=_maybe(job.died_at),
    )


def model_view(job: ModelJob) -> JobView:
    """Return the model's job, for comparison with ``view``."""
    return JobView(
        id=job.id,
        queue=job.queue,
        fate=job.fate,
        payload=job.payload,
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        created_at=job.created_at,
        run_at=job.run_at,
        expires_at=job.expires_at,
        visibility_timeout=job.visibility_timeout,
        worker=job.worker,
        deadline=job.deadline,
        last_error=job.last_error,
        died_at=job.died_at,
    )


def row_views(rows: Iterable[Row], queues: Iterable[str]) -> list[RowView]:
    """Return what the back door sees of some queues, by id: a job in two tables is there twice."""
    wanted = frozenset(queues)
    found = [
        RowView(
            id=row.id,
            queue=row.queue,
            dead=row.table == "dead",
            payload=json.loads(row.payload),
            worker=row.worker_id,
            attempts=row.attempts,
            created_at=micros(row.created_at),
            run_at=micros(row.run_at),
            expires_at=_maybe(row.expires_at),
            last_error=row.last_error,
        )
        for row in rows
        if row.queue in wanted
    ]
    return sorted(found, key=lambda row: (row.id, row.dead))


def model_rows(jobs: Iterable[ModelJob]) -> list[RowView]:
    """Return the rows that the model says there are, by id."""
    found = [
        RowView(
            id=job.id,
            queue=job.queue,
            dead=job.fate is Fate.DEAD,
            payload=job.payload,
            worker=job.worker,
            attempts=job.attempts,
            created_at=job.created_at,
            run_at=job.run_at,
            expires_at=job.expires_at,
            last_error=job.last_error,
        )
        for job in jobs
    ]
    return sorted(found, key=lambda row: (row.id, row.dead))


def stats_view(stats: QueueStats) -> ModelStats:
    """Return the product's counts, for comparison with the model's."""
    age = stats.oldest_ready_age
    return ModelStats(
        ready=stats.ready,
        scheduled=stats.scheduled,
        processing=stats.processing,
        dead=stats.dead,
        oldest_ready_age=None if age is None else span(age),
    )


def _maybe(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)
