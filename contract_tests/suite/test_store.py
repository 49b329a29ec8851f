"""The store: opening, errors, passwords, and what it declares (S-1, S-2, S-5 to S-7, Z-11, Z-13, Z-16)."""

from __future__ import annotations

import copy
import dataclasses
import re
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import unquote

import pytest

import alkstore
from alkstore import (
    AlkstoreError,
    Capabilities,
    PayloadError,
    SchemaError,
    StoreClosedError,
    ValidationError,
)
from alkstore.protocols import Queue, Store
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness, Row
from contract_tests.scale import rounds
from contract_tests.travel import Clock

WAIT = 60.0
"""Seconds after which something that should have ended is taken to hang. Generous: it judges liveness, not speed."""


# --- S-1, S-2: opening -------------------------------------------------------------------------------------------


@clause("S-1", needs="durable")
def test_a_place_opens_again_as_a_store_of_the_same_jobs(open_store: OpenStore, queue_name: str, worker: str) -> None:
    """What was there when the store was closed is there when it is opened again."""
    with open_store() as store:
        job_id = store.queue(queue_name).enqueue({"to": "a@example.org"}, priority=3, headers={"trace": "1"})

    again = open_store()
    handle = again.queue(queue_name).claim_one(worker)

    assert handle is not None
    assert (job_id, {"to": "a@example.org"}, 3, {"trace": "1"}) == (
        handle.id,
        handle.payload,
        handle.priority,
        dict(handle.headers),
    )


@clause("S-1", "S-3")
def test_with_gives_the_store_itself_and_closes_it(open_store: OpenStore) -> None:
    """The block's name is the store, and the store is closed after the block."""
    store = open_store()
    with store as entered:
        assert entered is store
        assert [] == store.queues()
    with pytest.raises(StoreClosedError):
        store.queues()


@clause("S-2")
def test_migrate_false_refuses_an_absent_schema_and_names_the_command(open_store: OpenStore) -> None:
    """The error says how to mend it, and nothing was created meanwhile: it is refused again."""
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"python -m alkstore migrate"):
            open_store(migrate=False)


@clause("S-2", needs="processes")
def test_migrate_false_opens_a_current_schema(open_store: OpenStore, queue_name: str) -> None:
    """Once somebody has created it, a store that may not create anything works in full."""
    with open_store() as store:
        job_id = store.queue(queue_name).enqueue("hello")

    careful = open_store(migrate=False)

    job = careful.queue(queue_name).get_job(job_id)
    assert job is not None
    assert "hello" == job.payload


@clause("S-2", needs="processes")
def test_many_may_open_a_new_store_at_the_same_moment(harness: Harness) -> None:
    """Eight threads open one fresh place together, round after round, and all get a store that works."""
    openers = 8
    for _ in range(rounds(20)):
        place = harness.new_place()
        barrier = threading.Barrier(openers)

        def open_and_enqueue(number: int, place: str = place, barrier: threading.Barrier = barrier) -> int:
            barrier.wait(WAIT)
            with harness.open(place) as store:
                return store.queue("first").enqueue(number)

        with ThreadPoolExecutor(openers) as pool:
            ids = list(pool.map(open_and_enqueue, range(openers)))

        assert openers == len(set(ids))
        with harness.open(place, migrate=False) as store:
            assert openers == store.queue("first").stats().ready
        harness.drop_place(place)


@clause("S-2", "Z-13", "Q-8")
def test_a_freshly_opened_store_is_at_the_codes_version(store: Store, harness: Harness) -> None:
    """Both versions are a major and a minor number, and equal after opening."""
    health = store.health()

    assert health.code_version == health.schema_version
    assert (2, [int, int]) == (len(health.schema_version), [type(part) for part in health.schema_version])


# --- S-5: errors -------------------------------------------------------------------------------------------------


@clause("S-5")
def test_wrong_arguments_are_value_errors_too(store: Store, queue: Queue) -> None:
    """``ValidationError`` and ``PayloadError`` can be caught as what Python calls them."""
    with pytest.raises(ValueError, match="name") as bad_name:
        store.queue("")
    with pytest.raises(ValueError, match="payload") as bad_payload:
        queue.enqueue({1})

    assert isinstance(bad_name.value, ValidationError)
    assert isinstance(bad_payload.value, PayloadError)


@clause("S-5")
def test_every_error_has_one_root(store: Store) -> None:
    """Whoever catches ``AlkstoreError`` catches whatever the library raises on purpose."""
    names = [
        "ValidationError PayloadError StoreClosedError UnknownEngineError NotSupportedError SchemaError ClaimLostError",
        "TransactionError EngineUnavailableError OutcomeUnknownError EngineBusyError StorageFullError StoreCorruptError",
    ]
    for name in " ".join(names).split():
        assert issubclass(getattr(alkstore, name), AlkstoreError), name


# --- S-6: passwords ----------------------------------------------------------------------------------------------


@clause("S-6")
def test_no_repr_shows_the_places_password(store: Store, queue: Queue, worker: str, place: str) -> None:
    """Not the store's nor that of anything made from it; nor does an error or what health says."""
    queue.enqueue("work")
    handle = queue.claim_one(worker)
    assert handle is not None
    shown = [repr(thing) for thing in (store, queue, handle, handle.job, queue.options, store.capabilities)]
    shown.append(repr(store.health()))
    store.close()
    with pytest.raises(StoreClosedError) as closed:
        queue.stats()
    shown.append("".join(traceback.format_exception(closed.value)))
    shown.append(repr(store))

    assert place not in "\n".join(shown)
    written = re.match(r"[^:/]+://[^:/@]*:([^@/]+)@", place)  # a place needn't have one
    if written is not None:
        for password in {written[1], unquote(written[1])}:
            assert password not in "\n".join(shown)


# --- S-7: capabilities -------------------------------------------------------------------------------------------


@clause("S-7", "Z-16")
def test_capabilities_are_one_frozen_object(store: Store) -> None:
    """The same each time, of truth values, and nothing can be changed or added."""
    declared = store.capabilities

    assert isinstance(declared, Capabilities)
    assert declared == store.capabilities
    assert copy.copy(declared) == declared
    assert {bool} == {type(value) for value in dataclasses.asdict(declared).values()}
    for field in dataclasses.fields(declared):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(declared, field.name, True)
    assert "transactions" in {field.name for field in dataclasses.fields(declared)}


@clause("S-7")
def test_what_is_not_declared_is_refused_and_never_ignored(store: Store, queue_name: str) -> None:
    """An engine without transactions, or without SQL of the application's own in them, says so with an error."""
    declared = store.capabilities
    if not declared.transactions:
        with pytest.raises(alkstore.NotSupportedError), store.transaction():
            pass
    elif not declared.sql:
        with store.transaction() as tx, pytest.raises(alkstore.NotSupportedError):
            tx.execute("SELECT 1")
    else:
        with store.transaction() as tx:
            assert (1,) == tuple(tx.execute("SELECT 1").fetchone())


# --- Z-11: whose clock -------------------------------------------------------------------------------------------


@clause("Z-11", needs="processes")
def test_a_clock_rules_its_own_store_and_no_other(
    open_store: OpenStore, store: Store, clock: Clock, worker: str
) -> None:
    """A job that one store's clock calls due isn't due for a store that goes by the real time, and the other way round."""
    real = open_store()
    name = "emails"
    ahead = store.queue(name).enqueue("now, years ahead")
    assert real.queue(name).claim_one(worker) is None

    job = store.queue(name).get_job(ahead)
    assert job is not None
    assert (clock(), clock()) == (job.created_at, job.run_at)

    behind = real.queue(name).enqueue("really now")
    clock.set(datetime(2001, 2, 3, tzinfo=UTC))
    assert store.queue(name).claim_one(worker) is None
    handle = real.queue(name).claim_one(worker)
    assert handle is not None
    assert behind == handle.id


@clause("Z-11", "Q-8")
def test_without_a_clock_the_time_is_real(open_store: OpenStore, queue_name: str) -> None:
    """Now lies between two readings of this host's clock, give or take a server that keeps its own."""
    store = open_store()
    before = datetime.now(UTC)
    job = store.get_job(store.queue(queue_name).enqueue("now"))
    after = datetime.now(UTC)

    assert job is not None
    skew = store.health().clock_skew
    slack = timedelta(seconds=5)  # between two clocks, whose difference is read at another moment
    assert before + skew - slack <= job.created_at <= after + skew + slack
    assert timedelta(0) == job.created_at.utcoffset()


@clause("Z-11", "O-3", needs="transactions")
def test_time_goes_on_inside_a_transaction(open_store: OpenStore, queue_name: str, worker: str) -> None:
    """Each call has a now of its own, so that a long transaction doesn't claim or extend by the time of its beginning."""
    with open_store().transaction() as tx:
        queue = tx.queue(queue_name)
        handles = [queue.claim_one(worker) for _ in range(2) if queue.enqueue("work")]
        first, second = (handle for handle in handles if handle is not None)
        before = second.deadline
        assert second.heartbeat()

    assert first.job.created_at < first.deadline - first.job.visibility_timeout < second.job.created_at
    assert before < second.deadline


@clause("Z-11", "O-4")
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: datetime(2031, 1, 1), id="naive"),  # noqa: DTZ001 - that is the point
        pytest.param(lambda: 1_900_000_000, id="a number"),
        pytest.param(lambda: None, id="None"),
        pytest.param(lambda: datetime(1969, 12, 31, 23, tzinfo=UTC), id="before 1970"),
        pytest.param("2031-01-01", id="not callable"),
    ],
)
def test_a_clock_must_give_an_aware_datetime(open_store: OpenStore, wrong: object) -> None:
    """One that doesn't is refused at once, and not in the middle of something."""
    with pytest.raises(ValidationError, match="clock"):
        open_store(clock=cast(Any, wrong))


@clause("S-1", "O-4")
@pytest.mark.parametrize(
    "options",
    [
        {"migrate": "yes"},
        {"durability": "sometimes"},
        {"lock_timeout": -1},
        {"lock_timeout": "30"},
        {"codecs": "json"},
        {"codecs": [5]},
        {"max_payload": 0},
        {"max_payload": True},
        {"nonsense": 1},
    ],
    ids=str,
)
def test_wrong_options_of_open_are_refused_and_named(open_store: OpenStore, options: dict[str, Any]) -> None:
    """An unknown one, a wrong type, or a value out of range."""
    with pytest.raises(ValidationError, match=next(iter(options)).rstrip("s")):
        open_store(**options)


@clause("S-1", "Q-ENQ-1")
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_both_durabilities_open_and_say_so(open_store: OpenStore, durability: str, queue_name: str) -> None:
    """What differs is only what a power cut may take."""
    store = open_store(durability=durability)

    assert durability == store.health().durability
    assert store.get_job(store.queue(queue_name).enqueue("hello")) is not None


@clause("S-2", "N-3")
def test_opening_leaves_an_empty_place_empty(store: Store, peek: Callable[[], list[Row]]) -> None:
    """The schema is there, and no row."""
    assert [] == peek()
    assert [] == store.queues()
