"""Codecs, and what JSON's own types are (Z-10, Q-ENQ-2)."""

from __future__ import annotations

import collections
import enum
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from alkstore import PayloadError, ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Row
from contract_tests.payloads import Failing, Pickled, Wordy, came_back, shape


@clause("Z-10", "Q-ENQ-2")
def test_a_job_is_decoded_by_the_codec_it_was_stored_with(open_store: OpenStore, worker: str) -> None:
    """Whatever codec the handle has that claims it."""
    store = open_store(codecs=[Pickled()])
    store.queue("mixed").enqueue({"json": 1})
    store.queue("mixed", codec="raw").enqueue(b"\xff")
    store.queue("mixed", codec="pickled").enqueue({1, 2})
    store.queue("mixed", codec=Pickled()).enqueue(datetime(2026, 12, 2, tzinfo=UTC))

    handles = store.queue("mixed", codec="raw").claim_batch(worker, 10)

    assert [{"json": 1}, b"\xff", {1, 2}, datetime(2026, 12, 2, tzinfo=UTC)] == [handle.payload for handle in handles]
    assert ["json", "raw", "pickled", "pickled"] == [handle.job.codec for handle in handles]


@clause("Z-10")
def test_a_codec_given_to_a_handle_is_known_to_its_store(store: Store, worker: str) -> None:
    """A job written through it can be read by any handle of the store."""
    store.queue("mixed", codec=Pickled()).enqueue({1})

    handle = store.queue("mixed").claim_one(worker)

    assert handle is not None
    assert {1} == handle.payload


@clause("Z-10", "Q-CLAIM-7", needs="processes")
def test_a_store_without_the_codec_has_the_bytes_all_the_same(open_store: OpenStore, worker: str) -> None:
    """Reading the payload is what fails there, and nothing else."""
    writer, reader = open_store(codecs=[Pickled()]), open_store()
    writer.queue("mixed", codec="pickled").enqueue({1})

    handle = reader.queue("mixed").claim_one(worker)

    assert handle is not None
    with pytest.raises(PayloadError, match="pickled"):
        _ = handle.payload
    assert {1} == pickle.loads(handle.raw)  # noqa: S301 - the test's own bytes
    assert handle.ack()


@clause("Z-10", "O-4")
@pytest.mark.parametrize("codec", ["unheard-of", "", 5, b"json", {"name": "json"}], ids=repr)
def test_an_unknown_codec_is_refused_when_the_handle_is_made(store: Store, codec: Any) -> None:
    """By a name that nobody claims, or an object that isn't a codec."""
    with pytest.raises(ValidationError):
        store.queue("a", codec=codec)


@clause("Q-ENQ-2", "S-5")
@pytest.mark.parametrize("codec", [Failing(), Wordy()], ids=["one that raises", "one that gives no bytes"])
def test_a_codec_that_cannot_encode_is_a_payload_error(
    store: Store, peek: Callable[[], list[Row]], codec: Failing
) -> None:
    """With what it raised as the cause."""
    with pytest.raises(PayloadError, match=codec.name) as raised:
        store.queue("a", codec=codec).enqueue(1)

    assert isinstance(raised.value.__cause__, RuntimeError | None)
    assert (type(codec) is Failing) == isinstance(raised.value.__cause__, RuntimeError)
    assert [] == peek()


class Text(str):
    """A text with more to it."""

    __slots__ = ()


class Whole(int):
    """An int with more to it."""


class Real(float):
    """A float with more to it."""


class Weekday(enum.IntEnum):
    """An int, as far as ``isinstance`` knows."""

    MONDAY = 1


class Word(enum.StrEnum):
    """A text, as far as ``isinstance`` knows."""

    HELLO = "hello"


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: int


@clause("Z-10", "Q-ENQ-2")
@pytest.mark.parametrize(
    "value", [Text("a"), Whole(1), Real(1.5), Weekday.MONDAY, Word.HELLO], ids=lambda value: type(value).__name__
)
def test_subclasses_of_jsons_scalars_are_refused(queue: Queue, value: object) -> None:
    """They would come back as something else; as keys, too."""
    with pytest.raises(PayloadError, match=r"payload\['a'\]\[0\]"):
        queue.enqueue({"a": [value]})
    with pytest.raises(PayloadError):
        queue.enqueue({value: 1})
    assert [] == queue.jobs()


@clause("Z-10", "Q-ENQ-2")
def test_subclasses_of_dict_list_and_tuple_come_back_plain(queue: Queue) -> None:
    """What they hold is theirs, and what they are isn't JSON's to keep."""

    class Row(list[int]):
        pass

    payload = {
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "default": collections.defaultdict(int, {"n": 1}),
        "counted": collections.Counter("aab"),
        "row": Row([1, 2]),
        "point": Point(3, 4),
    }
    for back in came_back(queue, payload):
        assert shape(
            {
                "ordered": {"b": 1, "a": 2},
                "default": {"n": 1},
                "counted": {"a": 2, "b": 1},
                "row": [1, 2],
                "point": [3, 4],
            }
        ) == shape(back)
