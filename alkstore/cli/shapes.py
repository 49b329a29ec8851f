"""What records look like: as JSON, and shortened for a line."""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from alkstore.cli.output import dumps
from alkstore.errors import PayloadError
from alkstore.records import Health, Job, QueueStats, Result
from alkstore.schema import spell

Shape = dict[str, Any]

PREVIEW: Final = 80
"""How many characters of a payload or an error a list shows; ``jobs show`` and JSON have all of it."""


def job_shape(job: Job) -> Shape:
    """Return a job as JSON has it."""
    return {
        "id": job.id,
        "queue": job.queue,
        "state": job.state.value,
        "codec": job.codec,
        **payload_shape(job),
        "headers": dict(job.headers),
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "created_at": instant(job.created_at),
        "run_at": instant(job.run_at),
        "expires_at": instant(job.expires_at),
        "visibility_timeout": seconds(job.visibility_timeout),
        "worker_id": job.worker_id,
        "claim_expires_at": instant(job.claim_expires_at),
        "last_error": job.last_error,
        "died_at": instant(job.died_at),
        "keep_result": seconds(job.keep_result),
    }


def result_shape(result: Result) -> Shape:
    """Return as JSON what is left of a job that is gone; its result as ``payload_shape`` has a payload."""
    return {
        "id": result.job_id,
        "queue": result.queue,
        "state": None,
        "outcome": result.outcome.value,
        "codec": result.codec,
        **({} if result.raw is None else _shape("result", result.codec, result.raw, lambda: result.value)),
        "attempts": result.attempts,
        "worker_id": result.worker_id,
        "finished_at": instant(result.finished_at),
        "kept_until": instant(result.expires_at),
    }


def payload_shape(job: Job) -> Shape:
    """Return the payload under the one of three keys that says what it is.

    ``payload``: the value, of JSON. ``payload_text``: the bytes as text, where they are UTF-8. ``payload_base64``: any
    other bytes. Only JSON is decoded: another codec is anybody's code, which looking at a job must not run.
    """
    return _shape("payload", job.codec, job.raw, lambda: job.payload)


def _shape(name: str, codec: str | None, raw: bytes, decoded: Callable[[], object]) -> Shape:
    if codec == "json":
        try:
            value = decoded()
            dumps(value)
            return {name: value}
        except (PayloadError, ValueError, RecursionError):
            pass  # written by other hands: not JSON, or with what only Python takes for JSON
    try:
        return {f"{name}_text": raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode("ascii")}


def stats_shape(name: str, stats: QueueStats) -> Shape:
    """Return a queue's counts as JSON has them."""
    return {"queue": name, **asdict(stats), "oldest_ready_age": seconds(stats.oldest_ready_age)}


def health_shape(health: Health) -> Shape:
    """Return a store's health as JSON has it."""
    return {
        **asdict(health),
        "schema_version": spell(health.schema_version),
        "code_version": spell(health.code_version),
        "now": instant(health.now),
        "clock_skew": seconds(health.clock_skew),
        "oldest_snapshot_age": seconds(health.oldest_snapshot_age),
    }


def instant(value: datetime | None) -> str | None:
    """Return an instant in ISO 8601, in UTC."""
    return None if value is None else value.isoformat()


def seconds(value: timedelta | None) -> float | None:
    """Return a duration in seconds."""
    return None if value is None else value.total_seconds()


def bytes_text(codec: str | None, raw: bytes) -> str:
    """Return a whole payload, or a result, as text, or what it is where it isn't any."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"({codec}, {len(raw)} bytes, base64) {base64.b64encode(raw).decode('ascii')}"


def payload_preview(job: Job) -> str:
    """Return the beginning of the payload for a list."""
    beginning = job.raw[: 4 * (PREVIEW + 1)]  # no character has more bytes: megabytes aren't read for a line
    try:
        text = getincrementaldecoder("utf-8")().decode(beginning, final=len(beginning) == len(job.raw))
    except UnicodeDecodeError:
        return f"({job.codec}, {len(job.raw)} bytes)"
    return shortened(text)


def shortened(text: str) -> str:
    """Return the beginning of a text, with a mark where more follows."""
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "..."


def spell_duration(value: timedelta | None) -> str:
    """Return a duration as people say it, in its two largest units: ``3h 20m``."""
    if value is None:
        return "-"
    whole = int(value.total_seconds())
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    if minutes:
        return f"{minutes}m {whole % 60}s"
    return f"{value.total_seconds():.1f}s"


def spell_instant(value: datetime | None, to: Literal["seconds", "minutes"] = "seconds") -> str:
    """Return an instant in UTC, without its smaller parts."""
    return "-" if value is None else value.replace(tzinfo=None).isoformat(" ", to) + "Z"
