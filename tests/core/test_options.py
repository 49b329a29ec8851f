"""Options and how they are resolved, without a database (O-1 to O-4, Z-9)."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, cast

import pytest

from alkstore import Backoff, Item, QueueOptions, ValidationError
from alkstore.codec import decode_headers
from alkstore.options import (
    JobOptions,
    QueueFields,
    Stamps,
    check_engine_options,
    merge_options,
    queue_options,
    resolve_enqueue,
)
from alkstore.protocols import Queue
from alkstore.records import NewJob

STAMPS = Stamps.of(QueueOptions(visibility_timeout=1.5, max_attempts=3, backoff=Backoff(2, 9), dead_letter_retention=7))
WHEN = datetime(2031, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
MICROS = (WHEN - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def resolved(**options: object) -> NewJob:
    return resolve_enqueue(STAMPS, "json", b"{}", options)


def test_stamps_are_the_options_in_the_engines_units() -> None:
    """Microseconds for durations, whole seconds for the curve."""
    assert Stamps(1_500_000, 3, 2, 9, 7_000_000) == STAMPS
    assert Stamps.of(QueueOptions()) == Stamps(60_000_000, 5, 5, 3_600, None)


def test_nothing_is_left_to_decide() -> None:
    """A job without options has every default."""
    assert NewJob("json", b"{}", "{}", 0, 3, 1_500_000, 2, 9, 7_000_000, 0, True, None) == resolved()


@pytest.mark.parametrize(
    ("options", "run_at", "is_offset"),
    [
        ({}, 0, True),
        ({"delay": 5}, 5_000_000, True),
        ({"delay": timedelta(microseconds=1)}, 1, True),
        ({"run_at": WHEN}, MICROS, False),
        ({"run_at": WHEN, "delay": 5}, 5_000_000, True),
        ({"run_at": WHEN, "delay": 0}, 0, True),
        ({"run_at": datetime(1970, 1, 1, tzinfo=UTC)}, 0, False),
        ({"run_at": None, "delay": None}, 0, True),
    ],
    ids=str,
)
def test_when_a_job_is_due_is_an_instant_or_an_offset(options: dict[str, object], run_at: int, is_offset: bool) -> None:
    """The delay wins, one of nothing too."""
    job = resolved(**options)
    assert (run_at, is_offset) == (job.run_at, job.run_at_is_offset)


def test_a_job_overrides_what_it_may() -> None:
    """Its budget, and nothing else of the handle's."""
    job = resolved(priority=-7, expires=60, max_attempts=9, headers={"a": "b"})

    assert (-7, 60_000_000, 9, {"a": "b"}) == (
        job.priority,
        job.expires_in,
        job.max_attempts,
        decode_headers(job.headers),
    )
    assert (1_500_000, 2, 9, 7_000_000) == (job.visibility_timeout, job.backoff_base, job.backoff_cap, job.retention)


@pytest.mark.parametrize(
    ("common", "own", "merged"),
    [
        ({}, {}, {}),
        ({"priority": 1}, {}, {"priority": 1}),
        ({"priority": 1}, {"priority": 2}, {"priority": 2}),
        ({"priority": 1}, {"priority": None}, {"priority": 1}),
        ({"priority": 1}, {"delay": 2}, {"priority": 1, "delay": 2}),
        ({"delay": 1}, {"run_at": WHEN}, {"run_at": WHEN}),
        ({"run_at": WHEN}, {"delay": 1}, {"run_at": WHEN, "delay": 1}),
        ({"delay": 1}, {"run_at": WHEN, "delay": 2}, {"run_at": WHEN, "delay": 2}),
    ],
    ids=str,
)
def test_an_items_options_go_over_the_common_ones(
    common: dict[str, object], own: dict[str, object], merged: dict[str, object]
) -> None:
    """``None`` is as if not given, and what says when replaces what said when."""
    before = dict(common)
    assert merged == merge_options(common, own)
    assert before == common


def test_a_wrong_value_is_refused_even_where_another_wins() -> None:
    """A mistake is never passed over in silence."""
    with pytest.raises(ValidationError, match="run_at"):
        resolved(delay=5, run_at="soon")
    with pytest.raises(ValidationError, match="delay"):
        resolved(delay="soon", run_at=WHEN)


def test_the_message_for_an_unknown_option_lists_the_known_ones() -> None:
    """For jobs and for handles."""
    with pytest.raises(ValidationError, match="'colour' is not a job option; those are delay, expires, headers"):
        resolved(colour="red")
    with pytest.raises(ValidationError, match="'colour' is not a queue option; those are backoff, dead_letter"):
        queue_options(None, {"colour": "red"})


def test_the_keywords_are_the_fields() -> None:
    """What ``store.queue`` takes as keywords is what ``QueueOptions`` has, with the same meaning."""
    assert set(QueueFields.__annotations__) == set(inspect.signature(QueueOptions).parameters)
    assert QueueOptions(max_attempts=3) == queue_options(None, {"max_attempts": 3})
    assert {"delay", "run_at", "priority", "expires", "max_attempts", "headers", "keep_result"} == set(
        JobOptions.__annotations__
    )
    assert "options" in inspect.signature(Queue.enqueue).parameters


def test_headers_of_subclasses_of_str_become_plain() -> None:
    """And the limit counts bytes of UTF-8 over keys and values."""

    class Loud(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "LOUD"

    assert {"a": "b"} == decode_headers(resolved(headers={Loud("a"): Loud("b")}).headers)
    with pytest.raises(ValidationError, match="8192 bytes of UTF-8, not 8193"):
        resolved(headers={"k": "v" * 8_192})


def test_an_item_shows_what_it_holds() -> None:
    """Its repr is what was written."""
    assert "Item({'a': 1}, priority=3)" == repr(Item({"a": 1}, priority=3))
    assert "Item(None)" == repr(Item(None))
    with pytest.raises(AttributeError):
        cast(Any, Item(1)).colour = "red"


class Level(IntEnum):
    """An application's own numbers."""

    HIGH = 9


def test_stamps_are_plain_ints_whatever_was_given() -> None:
    """So that nothing but plain values goes to an engine."""
    options = QueueOptions(max_attempts=Level.HIGH, backoff=Backoff(base=Level.HIGH, cap=Level.HIGH))
    job = resolve_enqueue(Stamps.of(options), "raw", b"", {"priority": Level.HIGH, "max_attempts": Level.HIGH})
    stamps = (job.max_attempts, job.backoff_base, job.backoff_cap, job.priority, options.max_attempts)
    assert [int] * 5 == [type(value) for value in stamps]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "durabilty",
            "'durabilty' is neither an option of alkstore.open .*durability.* nor of the odd engine; those are a",
        ),
        ("visibility_timeout", "an option of store.queue"),
    ],
)
def test_a_keyword_that_nobody_knows_is_refused_with_those_that_are(key: str, said: str) -> None:
    """Those of ``open`` too, and one that belongs to a queue is sent there (O-4)."""
    check_engine_options({"a": 1}, frozenset({"a"}), "odd")
    with pytest.raises(ValidationError, match=said):
        check_engine_options({key: 1}, frozenset({"a"}), "odd")
