"""Names: what may be one, and that they are compared exactly and registered nowhere (N-1 to N-4, Z-15)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore import ValidationError
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness, Row
from contract_tests.scale import examples
from contract_tests.travel import Clock

ODD_NAMES = [
    "a",
    "0",
    " ",
    " padded ",
    "padded",
    "Emails",
    "emails",
    "EMAILS",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "cafe\N{COMBINING ACUTE ACCENT}",
    "cafe",
    "stra\N{LATIN SMALL LETTER SHARP S}e",
    "strasse",
    "per%cent",
    "under_score",
    "underXscore",
    "star*",
    "que?tion",
    "o'clock",
    'double"quote',
    "back\\slash",
    "semi;colon--",
    "$1 %s %(now)s :now ? {0}",
    "\N{NO-BREAK SPACE}",
    "\N{ZERO WIDTH SPACE}",
    "\N{PILE OF POO}",
    "\N{HEBREW LETTER ALEF}\N{LATIN SMALL LETTER A}",
    "\uffff",
    "null",
    "None",
    "x" * 200,
    "\N{PILE OF POO}" * 200,
]

BAD_NAMES = {
    "empty": "",
    "201 characters": "x" * 201,
    "NUL": "a\0b",
    "newline": "a\nb",
    "tab": "\t",
    "DEL": "a\x7f",
    "a C1 control": "a\x85b",
    "a lone high surrogate": "a\ud800b",
    "a lone low surrogate": "\udfff",
    "bytes": b"emails",
    "None": None,
    "an int": 7,
    "a list": ["emails"],
}

bad_names = pytest.mark.parametrize("name", [pytest.param(name, id=what) for what, name in BAD_NAMES.items()])
own_names = pytest.mark.parametrize("name", ["_", "_jobs", "__", "_" * 200])


class Word(StrEnum):
    """A name that is a ``str`` of another class."""

    EMAILS = "emails"

    def __str__(self) -> str:
        return "something else"


@clause("N-1", "Z-15")
def test_names_are_compared_exactly(store: Store, worker: str) -> None:
    """Case, accents, blanks, quotes and wildcards tell queues apart: each of many odd ones has just its own job."""
    for name in ODD_NAMES:
        store.queue(name).enqueue(name)

    assert ODD_NAMES == [cast(Any, store.queue(name).claim_one(worker)).payload for name in ODD_NAMES]
    assert [None] * len(ODD_NAMES) == [store.queue(name).claim_one(worker) for name in ODD_NAMES]


@clause("N-1", "Z-15", "Q-8")
def test_names_come_back_exactly_and_in_the_order_of_code_points(store: Store, worker: str) -> None:
    """Queue names and worker ids come back as they were given, and the list of queues goes by code point."""
    for name in ODD_NAMES:
        store.queue(name).enqueue(None)

    assert sorted(ODD_NAMES) == store.queues()
    for name in ODD_NAMES:
        queue = store.queue(name)
        assert name == queue.name
        handle = queue.claim_one(name)  # the same odd text as the worker's name
        assert handle is not None
        assert name == handle.queue
        job = store.get_job(handle.id)
        assert job is not None
        assert (name, name) == (job.queue, job.worker_id)


@clause("N-1")
@examples(100)
@given(
    name=st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=200).filter(
        lambda name: not name.startswith("_")
    )
)
def test_any_text_without_controls_and_surrogates_is_a_name(store: Store, name: str) -> None:
    """Whatever else a name holds, it comes back exactly, and is nobody else's."""
    queue = store.queue(name)
    job_id = queue.enqueue("here")

    handle = queue.claim_one(name)

    assert handle is not None
    assert (job_id, name, name) == (handle.id, handle.queue, handle.job.worker_id)
    assert handle.ack()


@clause("N-1")
@bad_names
def test_a_bad_queue_name_is_refused_when_the_handle_is_made(
    store: Store, peek: Callable[[], list[Row]], name: object
) -> None:
    """The refusal comes before there is a handle that could be used."""
    with pytest.raises(ValidationError):
        store.queue(cast(str, name))
    assert [] == peek()


@clause("N-1")
@bad_names
def test_a_bad_worker_id_is_refused_before_anything_is_claimed(queue: Queue, name: object) -> None:
    """A claim by a worker that has no name can't be made, one at a time or in a batch, even of nothing."""
    job_id = queue.enqueue("work")

    with pytest.raises(ValidationError):
        queue.claim_one(cast(str, name))
    with pytest.raises(ValidationError):
        queue.claim_batch(cast(str, name), 5)
    with pytest.raises(ValidationError):
        queue.claim_batch(cast(str, name), 0)

    job = queue.get_job(job_id)
    assert job is not None
    assert ("pending", 0, None) == (job.state, job.attempts, job.worker_id)


@clause("N-1")
def test_a_name_of_a_subclass_of_str_is_its_plain_text(store: Store) -> None:
    """A member of a ``StrEnum`` names the queue of its value, whatever its own ``str()`` says."""
    store.queue(Word.EMAILS).enqueue("hello")

    assert ["emails"] == store.queues()
    handle = store.queue("emails").claim_one(Word.EMAILS)
    assert handle is not None
    assert "emails" == handle.job.worker_id


@clause("N-2")
@own_names
def test_names_with_a_leading_underscore_are_refused(store: Store, queue: Queue, name: str) -> None:
    """For queues and workers alike."""
    with pytest.raises(ValidationError):
        store.queue(name)
    with pytest.raises(ValidationError):
        queue.claim_one(name)


@clause("N-1", "N-2", "T-1", needs="transactions")
@pytest.mark.parametrize(
    "name", ["", "_jobs", "a\nb", "x" * 201, 7], ids=["empty", "underscore", "newline", "too long", "an int"]
)
def test_a_bad_name_is_refused_in_a_transaction_too(store: Store, name: Any) -> None:
    """And does the transaction no harm."""
    with store.transaction() as tx:
        with pytest.raises(ValidationError):
            tx.queue(name)
        with pytest.raises(ValidationError):
            tx.queue("emails").claim_one(name)
        tx.queue("emails").enqueue("hello")
    assert ["emails"] == store.queues()


@clause("N-2")
def test_an_underscore_elsewhere_is_fine(store: Store) -> None:
    """Only the first character counts."""
    assert "a_" == store.queue("a_").name
    assert " _a" == store.queue(" _a").name


@clause("N-3")
def test_making_a_handle_leaves_no_trace(store: Store, peek: Callable[[], list[Row]]) -> None:
    """A queue that nothing was put in isn't listed, and is empty when asked."""
    queue = store.queue("never-used", max_attempts=3)

    assert [] == store.queues()
    assert [] == peek()
    stats = queue.stats()
    assert (0, 0, 0, 0, None) == (
        stats.ready,
        stats.scheduled,
        stats.processing,
        stats.dead,
        stats.oldest_ready_age,
    )
    assert [] == store.queues()


@clause("N-3", "T-5", needs="transactions")
def test_making_a_handle_needs_no_database(store: Store) -> None:
    """It is allowed where any I/O outside of the open transaction would be refused."""
    with store.transaction():
        assert "emails" == store.queue("emails").name


@clause("N-3")
def test_handles_of_one_name_are_of_one_queue(store: Store, worker: str) -> None:
    """Jobs belong to the name and not to the handle they came through."""
    job_id = store.queue("emails", visibility_timeout=5).enqueue("hello")

    handle = store.queue("emails", visibility_timeout=500).claim_one(worker)

    assert handle is not None
    assert job_id == handle.id


@clause("N-4")
def test_stores_in_different_places_never_see_each_others_jobs(
    harness: Harness, store: Store, clock: Clock, worker: str
) -> None:
    """The same queue in another place is another queue, for every operation."""
    place = harness.new_place()
    other = harness.open(place, clock=clock)
    try:
        mine, theirs = store.queue("emails"), other.queue("emails")
        # The first jobs of both may well have the same id, so that only the place tells them apart.
        my_id, their_id = mine.enqueue("mine"), theirs.enqueue("theirs")
        dead = theirs.claim_one(worker)
        assert dead is not None
        assert dead.fail()
        second_id = theirs.enqueue("theirs too")

        for absent in {their_id, second_id} - {my_id}:
            assert mine.get_job(absent) is None
            assert store.get_job(absent) is None
            assert not mine.cancel(absent)
            assert not mine.retry_dead(absent)
        assert [my_id] == [job.id for job in mine.jobs()]
        assert 0 == mine.purge("dead")
        assert ["mine"] == [handle.payload for handle in mine.claim_batch(worker, 10)]
        assert 1 == mine.purge("processing")
        assert ["theirs too"] == [handle.payload for handle in theirs.claim_batch(worker, 10)]
        assert [(their_id, "dead"), (second_id, "live")] == sorted((row.id, row.table) for row in harness.peek(place))
    finally:
        other.close()
        harness.drop_place(place)


@clause("N-4", "S-1", needs="processes")
def test_two_stores_in_one_place_see_the_same_jobs(
    open_store: OpenStore, store: Store, worker: str, clock: Clock
) -> None:
    """It is the place that separates stores, and not the opening."""
    other = open_store(clock=clock)
    job_id = store.queue("emails").enqueue("hello")

    handle = other.queue("emails").claim_one(worker)

    assert handle is not None
    assert job_id == handle.id
    assert handle.ack()
    assert store.get_job(job_id) is None
