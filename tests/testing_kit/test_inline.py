"""Within `inline`, what is enqueued is run at once, after all that production would do to it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

import alkstore
from alkstore import PayloadError, ValidationError
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.testing import FrozenClock, drain, inline
from tests.integrations.places import Place


class Shop:
    """Tasks, and what they have done."""

    def __init__(self, store: Store) -> None:
        self.tasks = Tasks(store)
        self.seen: list[object] = []

        @self.tasks.task
        def note(what: object) -> None:
            self.seen.append(what)
            if what == "broken":
                raise ValueError("broken")
            if isinstance(what, int) and what > 0:
                note.enqueue(what - 1)
                self.seen.append(f"enqueued {what - 1}")

        self.note = note


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def store(open_store: Callable[..., Store], clock: FrozenClock) -> Store:
    return open_store(clock=clock)


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store)


def test_it_is_run_before_enqueue_returns_and_only_within_the_block(store: Store, shop: Shop) -> None:
    with inline(shop.tasks):
        shop.note.enqueue("a")
        assert ["a"] == shop.seen
        shop.note.enqueue_many([{"what": "b"}, {"what": "c"}])
        assert ["a", "b", "c"] == shop.seen
    assert [] == store.queue("default").jobs()
    shop.note.enqueue("d")
    assert ["a", "b", "c"] == shop.seen
    assert 1 == store.queue("default").stats().ready


def test_its_arguments_have_been_checked_and_through_json(shop: Shop) -> None:
    with inline(shop.tasks):
        shop.note.enqueue(("a", {"b": (1,)}))
        with pytest.raises(ValidationError):
            cast(Any, shop.note).enqueue()
        with pytest.raises(PayloadError):
            shop.note.enqueue(object())
    assert [["a", {"b": [1]}]] == shop.seen


def test_in_a_transaction_it_is_run_at_the_commit(store: Store, shop: Shop) -> None:
    with inline(shop.tasks):
        with store.transaction() as tx:
            shop.note.enqueue("a", tx=tx)
            with tx.transaction() as inner:
                shop.note.enqueue("b", tx=inner)
            with pytest.raises(ZeroDivisionError), tx.transaction() as inner:
                shop.note.enqueue("undone", tx=inner)
                raise ZeroDivisionError
            assert [] == shop.seen
        assert ["a", "b"] == shop.seen
        with pytest.raises(ZeroDivisionError), store.transaction() as tx:
            shop.note.enqueue("undone", tx=tx)
            raise ZeroDivisionError
    assert ["a", "b"] == shop.seen
    assert [] == store.queue("default").jobs()


def test_an_error_comes_out_of_enqueue_and_its_job_is_as_it_would_be(store: Store, shop: Shop) -> None:
    with inline(shop.tasks):
        with pytest.raises(ValueError, match="broken"):
            shop.note.enqueue("broken")
        with pytest.raises(ValueError, match="broken"), store.transaction() as tx:
            tx.queue("others").enqueue("kept")
            shop.note.enqueue("broken", tx=tx)
    assert ["ValueError: broken"] * 2 == [job.last_error for job in store.queue("default").jobs()]
    assert 1 == store.queue("others").stats().ready, "the transaction was committed before its task ran"
    with inline(shop.tasks, raise_errors=False):
        shop.note.enqueue("broken")


def test_what_is_due_later_is_not_run_before_its_time(shop: Shop, clock: FrozenClock) -> None:
    with inline(shop.tasks):
        shop.note.options(delay=60).enqueue("later")
        assert [] == shop.seen
        clock.tick(60)
        drain(shop.tasks)
        assert ["later"] == shop.seen


def test_what_a_task_enqueues_is_run_after_it(shop: Shop) -> None:
    with inline(shop.tasks):
        shop.note.enqueue(2)
    assert [2, "enqueued 1", 1, "enqueued 0", 0] == shop.seen


def test_threads_run_their_own(shop: Shop) -> None:
    """As those of a web server in a test do."""
    threads: dict[object, int] = {}

    @shop.tasks.task(queue="threads")
    def who(name: str) -> None:
        threads[name] = threading.get_ident()

    with inline(shop.tasks):
        other = threading.Thread(target=lambda: who.enqueue("other"))
        other.start()
        other.join()
        assert {"other"} == set(threads)
        assert threads["other"] != threading.get_ident()


def test_a_block_within_a_block_ends_by_itself(shop: Shop) -> None:
    with inline(shop.tasks):
        with inline(shop.tasks, raise_errors=False):
            shop.note.enqueue("broken")
        with pytest.raises(ValueError, match="broken"):
            shop.note.enqueue("broken")
    with pytest.raises(ValidationError), inline(cast(Any, 7)):
        pass


def test_over_a_joined_connection_it_is_run_once_that_is_known_to_be_committed(sqlite_place: Place) -> None:
    """A driver's own connection tells nobody: what it has committed is there for the next drain."""
    with alkstore.open(sqlite_place.url, **sqlite_place.options) as store:
        shop = Shop(store)
        connection = sqlite3.connect(sqlite_place.path, isolation_level=None)
        try:
            with inline(shop.tasks):
                shop.note.enqueue("auto-commit", tx=store.join(connection))
                assert ["auto-commit"] == shop.seen
                connection.execute("BEGIN IMMEDIATE")
                shop.note.enqueue("transaction", tx=store.join(connection))
                connection.execute("COMMIT")
                assert ["auto-commit"] == shop.seen
                drain(shop.tasks)
                assert ["auto-commit", "transaction"] == shop.seen
        finally:
            connection.close()


def test_over_a_sqlalchemy_session_it_is_run_at_its_commit(place: Place) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(place.sqlalchemy_url, connect_args=place.connect_args)
    with alkstore.open(place.url, **place.options) as store, Session(engine) as session:
        shop = Shop(store)
        with inline(shop.tasks):
            shop.note.enqueue("undone", tx=store.join(session))
            session.rollback()
            shop.note.enqueue("done", tx=store.join(session))
            assert [] == shop.seen
            session.commit()
            assert ["done"] == shop.seen
    engine.dispose()
