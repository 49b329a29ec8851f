"""Options: checked, completed with defaults, and resolved into what a job is stamped with (clauses O-1 to O-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final, TypedDict, cast

from alkstore.clock import Duration, Micros, duration, instant, to_timedelta
from alkstore.codec import encode_headers
from alkstore.errors import ValidationError, shown
from alkstore.limits import (
    BACKOFF_BASE_MAX,
    BACKOFF_CAP_MAX,
    HEADER_BYTES,
    HEADER_ENTRIES,
    MAX_ATTEMPTS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
)
from alkstore.records import NewJob


def check_int(value: object, name: str, least: int, most: int) -> int:
    """Return an ``int`` within the bounds, or raise a ``ValidationError`` that names it; ``bool`` is refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValidationError(f"{name} must be from {least} to {most}, not {shown(value)}")
    return int(value)


def check_engine_options(given: Mapping[str, object], known: frozenset[str], engine: str) -> None:
    """Raise ``ValidationError`` for a keyword of ``alkstore.open`` that is neither its own nor the engine's (O-4).

    For engines: what is not ``open``'s own comes to them.
    """
    for key in given:
        if key in QueueFields.__annotations__:
            raise ValidationError(f"{key!r} is an option of store.queue, not of alkstore.open")
        if key not in known:
            raise ValidationError(
                f"{key!r} is neither an option of alkstore.open (clock, codecs, durability, hooks, lock_timeout, max_payload, "
                f"max_result, migrate, url) nor of the {engine} engine; those are {', '.join(sorted(known))}"
            )


@dataclass(frozen=True, slots=True)
class Backoff:
    """The retry curve's base and cap, in whole seconds (J-7).

    ``base`` is the top of the first attempt's delay (from 1), doubled with each further attempt up to ``cap`` (1 to
    3600). Raises ``ValidationError`` for anything else.
    """

    base: int = 5
    cap: int = 3600

    def __post_init__(self) -> None:
        # Kept as plain ints, whatever kind of int they are.
        object.__setattr__(self, "base", check_int(self.base, "backoff base", 1, BACKOFF_BASE_MAX))
        object.__setattr__(self, "cap", check_int(self.cap, "backoff cap", 1, BACKOFF_CAP_MAX))


class QueueFields(TypedDict, total=False):
    """``QueueOptions``' fields as keywords of ``store.queue`` (O-1)."""

    visibility_timeout: Duration
    max_attempts: int
    backoff: Backoff
    dead_letter_retention: Duration | None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What a queue's handle stamps on the jobs that it enqueues (O-1).

    ``visibility_timeout``: how long a claim is valid, over 0. ``max_attempts``: how many claims a job may have, from
    1. ``backoff``: the retry curve. ``dead_letter_retention``: how long a dead job is kept, ``None`` for ever.
    Durations are a ``timedelta`` or a number of seconds, and read back as ``timedelta``. Raises ``ValidationError``
    naming the field.
    """

    visibility_timeout: Duration = 60
    max_attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    dead_letter_retention: Duration | None = None

    def __post_init__(self) -> None:
        lease = duration(self.visibility_timeout, "visibility_timeout", positive=True)
        object.__setattr__(self, "visibility_timeout", to_timedelta(lease))
        object.__setattr__(self, "max_attempts", check_int(self.max_attempts, "max_attempts", 1, MAX_ATTEMPTS_MAX))
        if not isinstance(cast(object, self.backoff), Backoff):
            raise ValidationError(f"backoff must be a Backoff, not {type(self.backoff).__name__}")
        if self.dead_letter_retention is not None:
            kept = duration(self.dead_letter_retention, "dead_letter_retention")
            object.__setattr__(self, "dead_letter_retention", to_timedelta(kept))


_QUEUE_FIELDS: Final = frozenset(f.name for f in fields(QueueOptions))


def queue_options(options: object, given: Mapping[str, object]) -> QueueOptions:
    """Return the options of a handle, from a ``QueueOptions`` or from the same fields as keywords, not both."""
    if options is not None:
        if given:
            raise ValidationError(f"give options or {min(given)!r} as a keyword, not both")
        if not isinstance(options, QueueOptions):
            raise ValidationError(f"options must be a QueueOptions, not {type(options).__name__}")
        return options
    _refuse_unknown(given, _QUEUE_FIELDS, "queue option")
    return QueueOptions(**cast(QueueFields, given))


class JobOptions(TypedDict, total=False):
    """What one job may say for itself, in ``enqueue`` and in ``Item`` (O-2); ``None`` is as if not given.

    ``delay``: how long until it is due. ``run_at``: the instant at which it is due, kept as given even where past;
    ``delay`` wins. ``priority``: a signed 32-bit integer, default 0, the greatest first. ``expires``: how long from
    now it may still be handed out, over 0. ``max_attempts``: instead of the handle's. ``headers``: ``str`` to
    ``str``, at most 32 entries and 8 KiB. ``keep_result``: how long what it comes to is kept, over 0; by default nothing
    is (Z-17).
    """

    delay: Duration | None
    run_at: datetime | None
    priority: int | None
    expires: Duration | None
    max_attempts: int | None
    headers: Mapping[str, str] | None
    keep_result: Duration | None


_JOB_OPTIONS: Final = frozenset(JobOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Stamps:
    """A handle's options in the engine's units, worked out once per handle rather than once per job."""

    visibility_timeout: Micros
    max_attempts: int
    backoff_base: int
    backoff_cap: int
    retention: Micros | None

    @classmethod
    def of(cls, options: QueueOptions) -> Stamps:
        """Work the stamps out of checked options."""
        kept = options.dead_letter_retention
        return cls(
            duration(options.visibility_timeout, "visibility_timeout"),
            options.max_attempts,
            options.backoff.base,
            options.backoff.cap,
            None if kept is None else duration(kept, "dead_letter_retention"),
        )


def resolve_enqueue(stamps: Stamps, codec: str, payload: bytes, options: Mapping[str, object]) -> NewJob:
    """Return the job to insert, with no default left to decide (O-3); raise ``ValidationError`` (O-4)."""
    if not options:  # the usual case, kept short: every microsecond here is one of each enqueue
        return NewJob(
            codec,
            payload,
            "{}",
            0,
            stamps.max_attempts,
            stamps.visibility_timeout,
            stamps.backoff_base,
            stamps.backoff_cap,
            stamps.retention,
            run_at=0,
            run_at_is_offset=True,
            expires_in=None,
        )
    _refuse_unknown(options, _JOB_OPTIONS, "job option")
    delay, run_at = options.get("delay"), options.get("run_at")
    priority, expires = options.get("priority"), options.get("expires")
    attempts, headers = options.get("max_attempts"), options.get("headers")
    kept = options.get("keep_result")
    # Both are checked even though one of them wins: a wrong value is never silently passed over.
    due_in = None if delay is None else duration(delay, "delay")
    due_at = None if run_at is None else instant(run_at, "run_at")
    offset = due_in is not None or due_at is None
    return NewJob(
        codec=codec,
        payload=payload,
        headers=_resolve_headers(headers),
        priority=0 if priority is None else check_int(priority, "priority", PRIORITY_MIN, PRIORITY_MAX),
        max_attempts=(
            stamps.max_attempts if attempts is None else check_int(attempts, "max_attempts", 1, MAX_ATTEMPTS_MAX)
        ),
        visibility_timeout=stamps.visibility_timeout,
        backoff_base=stamps.backoff_base,
        backoff_cap=stamps.backoff_cap,
        retention=stamps.retention,
        run_at=(due_in or 0) if offset else (due_at or 0),
        run_at_is_offset=offset,
        expires_in=None if expires is None else duration(expires, "expires", positive=True),
        keep_result=None if kept is None else duration(kept, "keep_result", positive=True),
    )


def merge_options(common: Mapping[str, object], own: Mapping[str, object]) -> Mapping[str, object]:
    """Return an item's options over those common to its ``enqueue_many``: keywords are defaults (Z-9)."""
    if not own:
        return common
    given = {key: value for key, value in own.items() if value is not None}
    merged = {**common, **given}
    # An item that says when it is due replaces the common word on it, whichever of the two ways either used.
    if "run_at" in given and "delay" not in given:
        merged.pop("delay", None)
    return merged


def _refuse_unknown(given: Mapping[str, object], known: frozenset[str], kind: str) -> None:
    for key in given:
        if key not in known:
            raise ValidationError(f"{key!r} is not a {kind}; those are {', '.join(sorted(known))}")


def _resolve_headers(headers: object) -> str:
    if headers is None:
        return "{}"
    if not isinstance(headers, Mapping):
        raise ValidationError(f"headers must be a mapping of str to str, not {type(headers).__name__}")
    plain: dict[str, str] = {}
    size = 0
    for key, value in cast(Mapping[object, object], headers).items():
        if not isinstance(key, str):
            raise ValidationError(f"headers must be a mapping of str to str, and has the key {shown(key)}")
        if not isinstance(value, str):
            raise ValidationError(f"headers[{shown(key)}] must be a str, not {type(value).__name__}")
        name, text = str.__str__(key), str.__str__(value)
        try:
            size += len(name.encode()) + len(text.encode())
        except UnicodeEncodeError:
            raise ValidationError(f"headers[{shown(key)}] must not contain lone surrogates") from None
        plain[name] = text
    if len(plain) > HEADER_ENTRIES:
        raise ValidationError(f"headers must have at most {HEADER_ENTRIES} entries, not {len(plain)}")
    if size > HEADER_BYTES:
        raise ValidationError(f"headers must have at most {HEADER_BYTES} bytes of UTF-8, not {size}")
    return encode_headers(plain)
