"""`store.join` over Django's `connection` and `connections[alias]` (clauses T-3, T-5, T-6, S-5)."""
# Django has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from django.core.cache import cache
from django.db import IntegrityError, connection, connections
from django.db import transaction as _transaction
from django.db.transaction import TransactionManagementError
from django.test import Client as _Client
from django.test import TestCase, TransactionTestCase

import alkstore
from tests.integrations.django_project import database
from tests.integrations.places import Place, payloads
from tests.integrations.shop import urls
from tests.integrations.shop.models import Order

Client: Any = _Client
transaction: Any = _transaction  # untyped, so that its decorators would be taken for what they decorate


def create_tables(wrapper: Any) -> None:
    """Make the application's tables."""
    with wrapper.schema_editor() as editor:
        editor.create_model(Order)


@pytest.fixture
def default(place: Place, store: alkstore.Store) -> Iterator[Any]:
    """Django's `connections["default"]`, to the place of the test's store, with the application's tables made."""
    with database(place.django(ATOMIC_REQUESTS=True)) as wrapper:
        create_tables(wrapper)
        urls.stores.append(store)
        yield wrapper
        urls.stores.pop()


pytestmark = pytest.mark.usefixtures("default")


def orders() -> list[int]:
    """Return the ids of the orders, as Django's connection sees them."""
    return list(Order.objects.order_by("id").values_list("id", flat=True))


# --- transactions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["connection", "connections['default']"])
def test_an_order_and_its_job_are_committed_together(store: alkstore.Store, name: str) -> None:
    with transaction.atomic():
        Order.objects.create(id=7)
        store.join(connection if name == "connection" else connections["default"]).queue("q").enqueue(7)
        assert [] == payloads(store)
    assert ([7], [7]) == (orders(), payloads(store))


@pytest.mark.parametrize("name", ["connection", "connections['default']"])
def test_an_order_and_its_job_vanish_together(store: alkstore.Store, name: str) -> None:
    with pytest.raises(KeyError), transaction.atomic():
        Order.objects.create(id=7)
        store.join(connection if name == "connection" else connections["default"]).queue("q").enqueue(7)
        raise KeyError
    assert ([], []) == (orders(), payloads(store))


def test_a_job_that_comes_first_in_its_block_is_committed_with_it(store: alkstore.Store) -> None:
    with transaction.atomic():
        store.join(connection).queue("q").enqueue(7)
        assert [] == payloads(store)
    assert [7] == payloads(store)


def test_without_a_block_each_operation_is_committed_at_once(store: alkstore.Store) -> None:
    tx = store.join(connection)
    tx.queue("q").enqueue(1)
    assert [1] == payloads(store)
    tx.queue("q").enqueue_many([2, 3])
    assert [1, 2, 3] == payloads(store)
    handle = tx.queue("q").claim_one("w")
    assert handle is not None
    assert handle.ack()
    assert [2, 3] == payloads(store)
    with pytest.raises(alkstore.TransactionError), tx.transaction():
        pass


def test_what_is_joined_before_a_block_is_good_in_and_after_it(store: alkstore.Store) -> None:
    queue = store.join(connection).queue("q")
    with transaction.atomic():
        queue.enqueue(1)
    with transaction.atomic():
        queue.enqueue(2)
        transaction.set_rollback(True)
    queue.enqueue(3)
    assert [1, 3] == payloads(store)


def test_a_nested_block_is_rolled_back_with_its_job_alone(store: alkstore.Store) -> None:
    with transaction.atomic():
        queue = store.join(connection).queue("q")
        Order.objects.create(id=1)
        queue.enqueue(1)
        with pytest.raises(KeyError), transaction.atomic():
            Order.objects.create(id=2)
            queue.enqueue(2)
            raise KeyError
        with transaction.atomic():
            Order.objects.create(id=3)
            queue.enqueue(3)
    assert ([1, 3], [1, 3]) == (orders(), payloads(store))


def test_a_savepoint_of_the_store_undoes_the_order_made_inside(store: alkstore.Store) -> None:
    with transaction.atomic():
        tx = store.join(connection)
        with pytest.raises(KeyError), tx.transaction() as inner:
            Order.objects.create(id=1)
            inner.queue("q").enqueue(1)
            raise KeyError
        with tx.transaction() as inner, transaction.atomic():
            Order.objects.create(id=2)
            inner.queue("q").enqueue(2)
    assert ([2], [2]) == (orders(), payloads(store))


def test_a_block_that_is_set_to_roll_back_leaves_no_job(store: alkstore.Store) -> None:
    with transaction.atomic():
        Order.objects.create(id=7)
        store.join(connection).queue("q").enqueue(7)
        transaction.set_rollback(True)
    assert ([], []) == (orders(), payloads(store))


def test_with_autocommit_off_the_job_waits_for_djangos_commit(store: alkstore.Store) -> None:
    transaction.set_autocommit(False)
    queue = store.join(connection).queue("q")
    queue.enqueue(1)
    assert [] == payloads(store)
    transaction.commit()
    queue.enqueue(2)
    transaction.rollback()
    transaction.set_autocommit(True)
    queue.enqueue(3)
    assert [1, 3] == payloads(store)


def test_a_job_enqueued_on_commit_is_committed(store: alkstore.Store) -> None:
    queue = store.join(connection).queue("q")
    with transaction.atomic():
        transaction.on_commit(lambda: queue.enqueue(1))
    assert [1] == payloads(store)


def test_what_is_joined_follows_django_to_another_connection(store: alkstore.Store, default: Any) -> None:
    queue = store.join(connection).queue("q")
    queue.enqueue(1)
    before = default.connection
    default.close()
    queue.enqueue(2)
    assert default.connection is not before
    assert [1, 2] == payloads(store)


def test_while_a_joined_connection_is_entered_the_stores_own_calls_are_refused_in_a_block(
    store: alkstore.Store,
) -> None:
    """Clause T-5."""
    with transaction.atomic(), store.join(connection) as tx:
        tx.queue("q").enqueue(1)
        with pytest.raises(alkstore.TransactionError):
            store.queue("q").enqueue(2)
    assert [1] == payloads(store)


# --- claims ------------------------------------------------------------------------------------------------------


def test_a_jobs_effect_and_its_ack_are_committed_together(store: alkstore.Store) -> None:
    store.queue("q").enqueue(7)
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    with transaction.atomic():
        Order.objects.create(id=handle.payload)
        assert store.join(connection).bind(handle).ack()
        assert [7] == payloads(store)
    assert ([7], []) == (orders(), payloads(store))


def test_a_jobs_effect_and_its_ack_are_rolled_back_together(store: alkstore.Store) -> None:
    store.queue("q").enqueue(7)
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    with transaction.atomic():
        Order.objects.create(id=handle.payload)
        assert store.join(connection).bind(handle).ack()
        transaction.set_rollback(True)
    assert ([], [7]) == (orders(), payloads(store))
    assert handle.ack()


def test_claim_effect_and_ack_in_one_block(store: alkstore.Store) -> None:
    store.queue("q").enqueue_many([1, 2])
    tx = store.join(connection)
    for keep in (True, False):
        with transaction.atomic():
            for handle in tx.queue("q").claim_batch("w", 1):
                Order.objects.create(id=handle.payload)
                assert handle.ack()
            transaction.set_rollback(not keep)
    assert ([1], [2]) == (orders(), payloads(store))


# --- requests ----------------------------------------------------------------------------------------------------


def test_a_request_that_succeeds_leaves_order_and_job(store: alkstore.Store) -> None:
    assert 200 == Client().get("/succeed/7").status_code
    assert ([7], [7]) == (orders(), payloads(store))


def test_a_request_that_raises_leaves_neither_order_nor_job(store: alkstore.Store) -> None:
    assert 500 == Client(raise_request_exception=False).get("/fail/7").status_code
    assert ([], []) == (orders(), payloads(store))


def test_a_request_that_is_no_transaction_leaves_what_it_had_done(store: alkstore.Store) -> None:
    assert 500 == Client(raise_request_exception=False).get("/fail-on-its-own/7").status_code
    assert ([7], [7]) == (orders(), payloads(store))


# --- Django's tests ----------------------------------------------------------------------------------------------


def run(case: type[unittest.TestCase]) -> list[str]:
    """Run the methods of one of Django's test classes, and return what went wrong."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun > 0
    return [trace for _, trace in (*result.failures, *result.errors)]


def test_in_djangos_test_case_jobs_are_seen_inside_and_gone_afterwards(store: alkstore.Store) -> None:
    class Inside(TestCase):
        def test_a_job_is_seen_in_its_test(self) -> None:
            queue = store.join(connection).queue("q")
            assert [] == queue.jobs()
            Order.objects.create(id=1)
            queue.enqueue(1)
            assert [1] == [job.payload for job in queue.jobs()]
            handle = queue.claim_one("w")
            assert handle is not None
            assert handle.ack()

        def test_a_view_enqueues(self) -> None:
            queue = store.join(connection).queue("q")
            client: Any = self.client_class(raise_request_exception=False)
            assert [200, 500] == [client.get(path).status_code for path in ("/succeed/1", "/fail/2")]
            assert [1] == [job.payload for job in queue.jobs()]

    assert [] == run(Inside)
    assert ([], []) == (orders(), payloads(store))


def test_in_djangos_transaction_test_case_jobs_are_committed_and_stay(store: alkstore.Store) -> None:
    """Django empties the tables of its own models, and knows of no others."""

    class Inside(TransactionTestCase):
        def test_a_job_is_committed(self) -> None:
            with transaction.atomic():
                Order.objects.create(id=1)
                store.join(connection).queue("q").enqueue(1)
            assert ([1], [1]) == (orders(), payloads(store))

    assert [] == run(Inside)
    assert ([], [1]) == (orders(), payloads(store))


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["payload", "option", "one of many"])
def test_a_refused_enqueue_leaves_the_block_as_it_was(store: alkstore.Store, wrong: str) -> None:
    """What the application catches doesn't cost it its own rows."""
    with transaction.atomic():
        queue = store.join(connection).queue("q")
        Order.objects.create(id=1)
        if wrong == "payload":
            with pytest.raises(alkstore.PayloadError):
                queue.enqueue(object())
        elif wrong == "option":
            with pytest.raises(alkstore.ValidationError):
                queue.enqueue(1, delay=-1)
        else:
            with pytest.raises(alkstore.PayloadError):
                queue.enqueue_many([1, 2, object()])
        Order.objects.create(id=2)
        queue.enqueue("after")
    assert ([1, 2], ["after"]) == (orders(), payloads(store))


def test_a_block_that_needs_a_rollback_is_a_transaction_error(store: alkstore.Store) -> None:
    with transaction.atomic():
        tx = store.join(connection)
        tx.queue("q").enqueue(1)
        Order.objects.create(id=1)
        # Within the inner block no savepoint is set, so that what fails there costs the outer one too.
        with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
            Order.objects.create(id=1)
        with pytest.raises(TransactionManagementError):  # what Django's own would say
            orders()
        with pytest.raises(alkstore.TransactionError, match="atomic block"):
            tx.queue("q").enqueue(2)
        with pytest.raises(alkstore.TransactionError, match="atomic block"):
            store.join(connection)
    assert ([], []) == (orders(), payloads(store))
    tx.queue("q").enqueue(3)
    assert [3] == payloads(store)


def test_a_connection_closed_within_a_block_is_a_transaction_error(store: alkstore.Store, default: Any) -> None:
    with transaction.atomic():
        tx = store.join(connection)
        tx.queue("q").enqueue(1)
        default.close()
        with pytest.raises(alkstore.TransactionError):
            tx.queue("q").enqueue(2)
        # Django opens none in the block, and were it told that the block is fine.
        transaction.set_rollback(False)
        with pytest.raises(alkstore.TransactionError):
            store.join(connection)
        transaction.set_rollback(True)
    assert [] == payloads(store)
    tx.queue("q").enqueue(3)  # Django connects anew, once the block is left
    assert [3] == payloads(store)


def test_a_connection_of_another_thread_is_a_transaction_error(store: alkstore.Store, default: Any) -> None:
    refused: list[Exception] = []

    def work() -> None:
        try:
            store.join(default)
        except alkstore.TransactionError as exc:
            refused.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert 1 == len(refused)


def test_a_connection_in_an_event_loop_is_a_transaction_error(store: alkstore.Store, default: Any) -> None:
    async def work() -> None:
        with pytest.raises(alkstore.TransactionError):
            store.join(default)

    asyncio.run(work())


def test_a_cache_is_a_validation_error(store: alkstore.Store) -> None:
    """Django names its caches by a proxy of the same class as its connection."""
    with pytest.raises(alkstore.ValidationError, match="connection must be"):
        store.join(cache)


def test_what_has_all_connections_is_a_validation_error(store: alkstore.Store) -> None:
    with pytest.raises(alkstore.ValidationError, match="ConnectionHandler"):
        store.join(connections)


def test_a_connection_to_another_database_is_a_validation_error(
    place: Place, store: alkstore.Store, tmp_path: Path
) -> None:
    other = place.django(NAME="postgres" if place.engine == "postgresql" else str(tmp_path / "other.db"))
    with database(other), pytest.raises(alkstore.ValidationError, match="the store's own database"):
        store.join(connection)


def test_a_connection_in_another_engines_database_is_a_validation_error_naming_what_was_expected(
    place: Place, store: alkstore.Store, postgres_place: Place, sqlite_place: Place
) -> None:
    other, expected = sqlite_place, r"psycopg\.Connection"
    if place.engine == "sqlite":
        other, expected = postgres_place, r"sqlite3\.Connection"
    with database(other.django()), pytest.raises(alkstore.ValidationError, match=expected):
        store.join(connection)


def test_a_database_that_is_not_reached_is_unavailable(place: Place, store: alkstore.Store, tmp_path: Path) -> None:
    changes = {"NAME": str(tmp_path / "no directory" / "store.db")}
    if place.engine == "postgresql":
        changes = {"HOST": "127.0.0.1", "PORT": "1", "PASSWORD": "a-secret"}
    with database(place.django(**changes)), pytest.raises(alkstore.EngineUnavailableError) as caught:
        store.join(connection)
    assert "a-secret" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_blocks_commit_wakes_those_who_wait_and_its_rollback_does_not(store: alkstore.Store) -> None:
    """Z-14: Django tells of it, of what a nested block undid, too; nobody polls."""
    rung: list[object] = []
    with store.queue("q").consume("w", poll_interval=3_600) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        wakes = cast(Any, store).wakes
        ring = wakes.ring

        def note(rings: object, **how: Any) -> None:
            rung.append(rings)
            ring(rings, **how)

        wakes.ring = note
        with pytest.raises(KeyError), transaction.atomic():
            store.join(connection).queue("q").enqueue("rolled back")
            raise KeyError
        with transaction.atomic():
            with pytest.raises(KeyError), transaction.atomic():
                store.join(connection).queue("q").enqueue("undone")
                raise KeyError
            store.join(connection).queue("q").enqueue("work")
            assert [] == rung
        assert [{"q": 1}] == rung
        assert "work" == waiting.result(60).payload
