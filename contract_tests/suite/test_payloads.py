"""Payloads come back as they were, or are refused (Q-ENQ-2)."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore import Item, PayloadError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Row
from contract_tests.payloads import came_back, shape
from contract_tests.scale import examples

LONGEST_INT = 10**4_300 - 1

PAYLOADS: dict[str, object] = {
    "the mixed one": {"bb": 1, "a": 1e16, "c": -0.0, "d": 2**63, "e": 10**30, "s": "a\u0000b", "f": 0.1},
    "None": None,
    "True": True,
    "False": False,
    "0": 0,
    "0.0": 0.0,
    "-0.0": -0.0,
    "1.0": 1.0,
    "1e16": 1e16,
    "1e300": 1e300,
    "the least float": 5e-324,
    "the greatest float": sys.float_info.max,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "2**53 + 1": 2**53 + 1,
    "4,300 digits": LONGEST_INT,
    "minus 4,300 digits": -LONGEST_INT,
    "an empty text": "",
    "NUL": "\0",
    "every control": "".join(map(chr, range(32))) + "\x7f",
    "a 4-byte character": "\N{PILE OF POO}",
    "line separators": "\u2028\u2029\x85",
    "non-characters": "\ufffe\uffff\U0010ffff",
    "a byte order mark": "\ufeff",
    "quotes": "'\"\\/",
    "a text that looks escaped": "\\u0000 \\n",
    "no keys": {},
    "an empty key": {"": 1},
    "keys in no order": {"z": 1, "a": 2, "\N{PILE OF POO}": 3, "\0": 4, "A": 5, "1": 6},
    "keys alike": {"1": 1, "1.0": 2, "true": 3, "null": 4},
    "no items": [],
    "nested": [[[]], {"a": [{"b": []}]}, [None, True, 1, 1.0, "1"]],
    "100 levels": json.loads("[" * 100 + "]" * 100),
    "a long text": "x" * 100_000,
    "what JSON calls constants": ["NaN", "Infinity", "null", "true"],
}


@clause("Q-ENQ-2")
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_payload_comes_back_equal_and_of_the_same_types(queue: Queue, payload: object) -> None:
    """And with its keys in the same order."""
    for back in came_back(queue, payload):
        assert shape(payload) == shape(back)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(), children, max_size=5),
    max_leaves=20,
)


@clause("Q-ENQ-2")
@examples(200)
@given(payload=json_values)
def test_any_payload_of_json_comes_back(queue: Queue, payload: object) -> None:
    """Equal, of the same types, keys in the same order."""
    for back in came_back(queue, payload):
        assert shape(payload) == shape(back)


@clause("Q-ENQ-2")
def test_a_tuple_comes_back_as_a_list(queue: Queue) -> None:
    """The one change that is documented, at any depth."""
    assert (["a", [1, []], {"k": [2]}],) * 2 == came_back(queue, ("a", (1, ()), {"k": (2,)}))


@clause("Q-ENQ-2")
def test_a_payload_is_as_it_was_when_enqueued(queue: Queue) -> None:
    """Changing the object afterwards changes no job, and each reading gives an object of its own."""
    payload: dict[str, list[int]] = {"numbers": [1]}
    job_id = queue.enqueue(payload)
    payload["numbers"].append(2)

    job = queue.get_job(job_id)

    assert job is not None
    cast(dict[str, list[int]], job.payload)["numbers"].append(3)
    assert {"numbers": [1]} == job.payload


class Colour(enum.Enum):
    """No type of JSON's."""

    RED = "red"


def _cycle() -> object:
    inner: list[object] = []
    inner.append({"again": inner})
    return inner


def _deep(levels: int) -> object:
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return value


# What is refused, and how the message spells the place inside the payload.
UNFIT: dict[str, tuple[object, str]] = {
    "a key of 1": ({1: "a"}, "payload"),
    "a key of None": ({"a": {None: 1}}, "payload['a']"),
    "a key of True": ([{True: 1}], "payload[0]"),
    "a key of a tuple": ({("a", "b"): 1}, "payload"),
    "NaN": (math.nan, "payload"),
    "NaN inside": ({"a": [1, math.nan]}, "payload['a'][1]"),
    "infinity": ([math.inf], "payload[0]"),
    "minus infinity": ({"x": {"y": -math.inf}}, "payload['x']['y']"),
    "a lone surrogate": ("\ud800", "payload"),
    "a lone surrogate inside": ({"a": ["fine", "not\udfff"]}, "payload['a'][1]"),
    "a lone surrogate in a key": ({"a": {"\ud800": 1}}, "payload['a']"),
    "a datetime": (datetime(2026, 12, 2, tzinfo=UTC), "payload"),
    "a datetime inside": ({"when": [date(2026, 12, 2)]}, "payload['when'][0]"),
    "a set": ({"a": {1}}, "payload['a']"),
    "a Decimal": ([0, Decimal("0.1")], "payload[1]"),
    "a UUID": ({"id": UUID(int=1)}, "payload['id']"),
    "bytes": (b"raw", "payload"),
    "bytes inside": ([b"raw"], "payload[0]"),
    "a complex number": ([1j], "payload[0]"),
    "an enum's member": ({"colour": Colour.RED}, "payload['colour']"),
    "an object": ((object(),), "payload[0]"),
    "a generator": ((n for n in [1]), "payload"),
    "4,301 digits": ({"n": [10**4_300]}, "payload['n'][0]"),
    "minus 4,301 digits": (-(10**4_300), "payload"),
    "a cycle": (_cycle(), "payload[0]['again']"),
    "a nesting too deep": (_deep(100_000), "payload[0]"),
}
unfit = pytest.mark.parametrize(("payload", "path"), UNFIT.values(), ids=UNFIT.keys())


def ends_here(message: str, path: str) -> bool:
    """Whether the message names this place itself, and not only one inside of it, or one whose name begins alike."""
    return path in message and (path != "payload" or "payload[" not in message)


@clause("Q-ENQ-2")
@unfit
def test_what_would_not_come_back_is_refused_with_its_path(
    queue: Queue, peek: Callable[[], list[Row]], payload: object, path: str
) -> None:
    """By ``enqueue``, and by ``enqueue_many`` among what is fine; nothing is written."""
    with pytest.raises(PayloadError) as single:
        queue.enqueue(payload)
    with pytest.raises(PayloadError) as plain:
        queue.enqueue_many(["fine", payload])
    with pytest.raises(PayloadError) as item:
        queue.enqueue_many([Item("fine", priority=1), Item(payload, priority=2), "fine"])

    for raised in (single, plain, item):
        assert ends_here(str(raised.value), path), str(raised.value)
    assert [] == peek()


@clause("Q-ENQ-2", "T-1", needs="transactions")
@unfit
def test_a_refused_payload_does_no_harm_to_an_open_transaction(
    store: Store, queue_name: str, payload: object, path: str
) -> None:
    """What was done before and what is done after are committed together."""
    with store.transaction() as tx:
        queue = tx.queue(queue_name)
        queue.enqueue("before")
        with pytest.raises(PayloadError):
            queue.enqueue(payload)
        with pytest.raises(PayloadError):
            queue.enqueue_many(["fine", payload])
        queue.enqueue("after")

    assert ["before", "after"] == [job.payload for job in store.queue(queue_name).jobs()]


@clause("Q-ENQ-2", "T-5", needs="transactions")
def test_a_payload_is_refused_before_any_io(store: Store, queue: Queue) -> None:
    """Where the database would be asked, the open transaction would be what the call is refused for."""
    with store.transaction():
        with pytest.raises(PayloadError):
            queue.enqueue(object())
        with pytest.raises(PayloadError):
            queue.enqueue_many(["fine", object()])


@clause("Q-ENQ-2")
def test_a_payload_over_the_limit_is_refused(open_store: OpenStore, queue_name: str) -> None:
    """The limit counts the encoded bytes, and is the store's own."""
    queue = open_store(max_payload=10).queue(queue_name)

    for fitting in ["12345678", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 4, [1, 2, 3, 4]]:
        assert (fitting, fitting) == came_back(queue, fitting)
    for over in ["123456789", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 5, [1, 2, 3, 4, 5]]:
        with pytest.raises(PayloadError, match="limit"):
            queue.enqueue(over)
        with pytest.raises(PayloadError, match="limit"):
            queue.enqueue_many([1, over])
    assert [] == queue.jobs()


@clause("Q-ENQ-2")
def test_a_payload_may_have_16_mib(store: Store, queue_name: str, worker: str) -> None:
    """By default, and to the very byte."""
    queue = store.queue(queue_name, codec="raw")
    full = bytes(16 * 1024 * 1024)
    queue.enqueue(full)

    with pytest.raises(PayloadError, match="limit"):
        queue.enqueue(full + b"\0")
    handle = queue.claim_one(worker)
    assert handle is not None
    assert full == handle.raw
    assert handle.ack()


@clause("Q-ENQ-2")
@examples(100)
@given(payload=st.binary())
def test_raw_bytes_are_stored_as_they_are(store: Store, payload: bytes) -> None:
    """Whatever is in them, from ``bytes`` to ``bytes``."""
    queue = store.queue("raw", codec="raw")
    job_id = queue.enqueue(payload)
    handle = queue.claim_one("reader")

    assert handle is not None
    assert (job_id, payload, payload, "raw") == (handle.id, handle.payload, handle.raw, handle.job.codec)
    assert bytes is type(handle.payload)
    assert handle.ack()


@clause("Q-ENQ-2")
@pytest.mark.parametrize(
    "payload", ["text", bytearray(b"x"), memoryview(b"x"), None, {"a": 1}, [1]], ids=lambda value: type(value).__name__
)
def test_the_raw_codec_takes_nothing_but_bytes(store: Store, peek: Callable[[], list[Row]], payload: object) -> None:
    """A text would have to be guessed an encoding for."""
    with pytest.raises(PayloadError):
        store.queue("raw", codec="raw").enqueue(payload)
    assert [] == peek()


@clause("Q-ENQ-2")
def test_the_encoded_bytes_are_stored_exactly_with_the_codecs_name(store: Store, peek: Callable[[], list[Row]]) -> None:
    """The back door sees the same bytes that ``raw`` gives."""
    every_byte = bytes(range(256))
    ids = [
        store.queue("a").enqueue({"b": [1, 2.5], "a": "\N{PILE OF POO}\0"}),
        store.queue("a", codec="raw").enqueue(every_byte),
        store.queue("a", codec="raw").enqueue(b""),
    ]

    rows = peek()

    assert ids == [row.id for row in rows]
    assert ["json", "raw", "raw"] == [row.codec for row in rows]
    assert every_byte == rows[1].payload
    assert b"" == rows[2].payload
    assert {"b": [1, 2.5], "a": "\N{PILE OF POO}\0"} == json.loads(rows[0].payload)
    assert [row.payload for row in rows] == [job.raw for job in store.queue("a").jobs()]
