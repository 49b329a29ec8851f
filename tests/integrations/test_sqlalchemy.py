"""`store.join` over SQLAlchemy's `Connection`, `Session` and `scoped_session` (clauses T-3, T-5, S-5)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, PendingRollbackError, ProgrammingError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import alkstore
from tests.integrations.places import Place, payloads

MakeEngine: TypeAlias = Callable[..., sqlalchemy.Engine]


class Base(DeclarativeBase):
    """What the application's tables have in common."""


class Order(Base):
    """The application's own row."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="placed")


@pytest.fixture
def make_engine(place: Place, store: alkstore.Store) -> Iterator[MakeEngine]:
    """Return what makes SQLAlchemy's engines on the test's place; each is disposed of."""
    with ExitStack() as stack:

        def make(url: str | None = None, **options: Any) -> sqlalchemy.Engine:
            engine = sqlalchemy.create_engine(url or place.sqlalchemy_url, connect_args=place.connect_args, **options)
            stack.callback(engine.dispose)
            return engine

        yield make


@pytest.fixture
def engine(make_engine: MakeEngine) -> sqlalchemy.Engine:
    """SQLAlchemy's engine, with the application's tables made."""
    engine = make_engine()
    Base.metadata.create_all(engine)
    return engine


@pytest.fixture
def session(engine: sqlalchemy.Engine) -> Iterator[Session]:
    """A session on which nothing was done yet."""
    with Session(engine) as session:
        yield session


def orders(engine: sqlalchemy.Engine) -> list[int]:
    """Return the ids of the committed orders."""
    with Session(engine) as session:
        return list(session.scalars(sqlalchemy.select(Order.id).order_by(Order.id)))


# --- sessions ----------------------------------------------------------------------------------------------------


def test_an_object_and_its_job_are_committed_together(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    session.add(Order(id=7))
    store.join(session).queue("q").enqueue(7)
    assert ([], []) == (orders(engine), payloads(store))
    session.commit()
    assert ([7], [7]) == (orders(engine), payloads(store))


def test_an_object_and_its_job_vanish_together(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    session.add(Order(id=7))
    session.flush()
    store.join(session).queue("q").enqueue(7)
    session.rollback()
    assert ([], []) == (orders(engine), payloads(store))


def test_a_session_that_is_closed_without_a_commit_leaves_neither_object_nor_job(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    with Session(engine) as session:
        session.add(Order(id=7))
        session.flush()
        store.join(session).queue("q").enqueue(7)
    assert ([], []) == (orders(engine), payloads(store))


@pytest.mark.parametrize("flushed", ["before", "after", "before and after"])
def test_it_makes_no_difference_when_the_session_is_flushed(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session, flushed: str
) -> None:
    session.add(Order(id=7))
    if "before" in flushed:
        session.flush()
    store.join(session).queue("q").enqueue(7)
    session.add(Order(id=8))
    if "after" in flushed:
        session.flush()
    session.commit()
    assert ([7, 8], [7]) == (orders(engine), payloads(store))


def test_joining_flushes_nothing(store: alkstore.Store, session: Session) -> None:
    order = Order(id=7)
    session.add(order)
    store.join(session).queue("q").enqueue(7)
    assert order in session.new


def test_a_savepoint_of_the_session_is_rolled_back_with_its_job_alone(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    queue = store.join(session).queue("q")
    session.add(Order(id=1))
    queue.enqueue(1)
    with session.begin_nested() as nested:
        session.add(Order(id=2))
        queue.enqueue(2)
        nested.rollback()
    with session.begin_nested():
        session.add(Order(id=3))
        queue.enqueue(3)
    session.commit()
    assert ([1, 3], [1, 3]) == (orders(engine), payloads(store))


def test_a_savepoint_of_the_session_in_which_the_job_came_first_is_rolled_back_alone(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    """SQLAlchemy sets the savepoint when the session's connection is asked for, and not before."""
    session.add(Order(id=1))
    session.flush()
    tx = store.join(session)
    with session.begin_nested() as nested:
        tx.queue("q").enqueue(2)
        nested.rollback()
    tx.queue("q").enqueue(3)
    session.commit()
    assert ([1], [3]) == (orders(engine), payloads(store))


def test_a_savepoint_of_the_store_undoes_what_the_session_has_flushed_inside(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    tx = store.join(session)
    with pytest.raises(KeyError), tx.transaction() as inner:
        session.add(Order(id=1))
        session.flush()
        inner.queue("q").enqueue(1)
        raise KeyError
    session.expunge_all()
    session.add(Order(id=2))
    tx.queue("q").enqueue(2)
    session.commit()
    assert ([2], [2]) == (orders(engine), payloads(store))


def test_what_is_joined_is_good_for_one_transaction_after_the_other(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    queue = store.join(session).queue("q")
    for number, keep in enumerate([True, False, True]):
        session.add(Order(id=number))
        queue.enqueue(number)
        if keep:
            session.commit()
        else:
            session.rollback()
    with session.begin():
        session.add(Order(id=3))
        queue.enqueue(3)
    assert ([0, 2, 3], [0, 2, 3]) == (orders(engine), payloads(store))


def test_what_is_joined_follows_the_session_to_another_connection(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    """After a commit the session's connection is the pool's again, and may be somebody else's next."""
    queue = store.join(session).queue("q")
    queue.enqueue(1)
    session.commit()
    with engine.connect() as other:
        queue.enqueue(2)
        assert other.connection.driver_connection is not session.connection().connection.driver_connection
        session.commit()
        other.rollback()
    assert [1, 2] == payloads(store)


def test_a_session_of_a_transaction_block_commits_object_and_job(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    with sessionmaker(engine).begin() as session:
        session.add(Order(id=7))
        store.join(session).queue("q").enqueue(7)
    assert ([7], [7]) == (orders(engine), payloads(store))


def test_a_session_within_a_connections_transaction_is_kept_and_undone_with_it(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """As test suites do it: the session's commit is a savepoint's, and the connection's transaction is rolled back."""
    with engine.connect() as connection, connection.begin() as outer:
        connection.execute(sqlalchemy.insert(Order).values(id=1))
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            session.add(Order(id=7))
            tx = store.join(session)
            tx.queue("q").enqueue(7)
            session.commit()
            assert [7] == [job.payload for job in tx.queue("q").jobs()]
        outer.rollback()
    assert ([], []) == (orders(engine), payloads(store))


def test_a_scoped_session_is_this_threads_session(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    registry = scoped_session(sessionmaker(engine))
    queue = store.join(registry).queue("q")
    for number in (1, 2):
        registry.add(Order(id=number))
        queue.enqueue(number)
        registry.commit()
        registry.remove()  # the next is another session
    registry.add(Order(id=3))
    queue.enqueue(3)
    registry.remove()
    assert ([1, 2], [1, 2]) == (orders(engine), payloads(store))


def test_a_scoped_session_is_joined_in_each_thread(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    registry = scoped_session(sessionmaker(engine))
    mine = store.join(registry)
    mine.queue("q").enqueue("mine")
    registry.rollback()
    refused: list[alkstore.AlkstoreError] = []

    def work() -> None:
        try:
            mine.queue("q").enqueue("not theirs")
        except alkstore.TransactionError as exc:
            refused.append(exc)
        store.join(registry).queue("q").enqueue("theirs")
        registry.commit()
        registry.remove()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    registry.remove()
    assert 1 == len(refused)
    assert ["theirs"] == payloads(store)


def test_while_a_joined_session_is_entered_the_stores_own_calls_are_refused(
    store: alkstore.Store, session: Session
) -> None:
    """Clause T-5: they would run outside of the transaction, or on SQLite wait for it."""
    with store.join(session) as tx:
        tx.queue("q").enqueue(1)
        with pytest.raises(alkstore.TransactionError):
            store.queue("q").enqueue(2)
    session.commit()
    store.queue("q").enqueue(3)
    assert [1, 3] == payloads(store)


# --- core connections --------------------------------------------------------------------------------------------


def test_a_connections_commit_commits_the_job(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sqlalchemy.insert(Order).values(id=7))
        store.join(connection).queue("q").enqueue(7)
        assert [] == payloads(store)
        connection.commit()
    assert ([7], [7]) == (orders(engine), payloads(store))


@pytest.mark.parametrize("how", ["rollback", "close"])
def test_without_a_commit_the_job_goes_with_the_connections_statements(
    store: alkstore.Store, engine: sqlalchemy.Engine, how: str
) -> None:
    connection = engine.connect()
    connection.execute(sqlalchemy.insert(Order).values(id=7))
    store.join(connection).queue("q").enqueue(7)
    if how == "rollback":
        connection.rollback()
    connection.close()
    assert ([], []) == (orders(engine), payloads(store))


def test_a_job_on_a_connection_with_no_statement_before_is_committed_by_its_commit(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """SQLAlchemy's commit does nothing where SQLAlchemy has begun nothing."""
    with engine.connect() as connection:
        queue = store.join(connection).queue("q")
        for number in (1, 2):
            queue.enqueue(number)
            assert connection.in_transaction()
            connection.commit()
        queue.enqueue(3)
        connection.rollback()
    assert [1, 2] == payloads(store)


def test_a_block_of_the_engine_commits_the_job(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        store.join(connection).queue("q").enqueue(7)
        connection.execute(sqlalchemy.insert(Order).values(id=7))
    assert ([7], [7]) == (orders(engine), payloads(store))


def test_a_block_of_the_engine_that_raises_leaves_no_job(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    with pytest.raises(KeyError), engine.begin() as connection:
        store.join(connection).queue("q").enqueue(7)
        connection.execute(sqlalchemy.insert(Order).values(id=7))
        raise KeyError
    assert ([], []) == (orders(engine), payloads(store))


def test_a_savepoint_of_the_connection_is_rolled_back_with_its_job_alone(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    with engine.begin() as connection:
        queue = store.join(connection).queue("q")
        queue.enqueue(1)
        with connection.begin_nested() as nested:
            queue.enqueue(2)
            nested.rollback()
        with connection.begin_nested():
            queue.enqueue(3)
    assert [1, 3] == payloads(store)


def test_in_autocommit_mode_each_operation_is_committed_at_once(
    store: alkstore.Store, make_engine: MakeEngine, engine: sqlalchemy.Engine
) -> None:
    with make_engine(isolation_level="AUTOCOMMIT").connect() as connection:
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
        connection.rollback()
    assert [2, 3] == payloads(store)


def test_a_connection_put_in_autocommit_mode_by_its_execution_options_commits_at_once(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        store.join(connection).queue("q").enqueue(1)
        connection.rollback()
    assert [1] == payloads(store)


def test_in_autocommit_mode_many_are_enqueued_whole_or_not_at_all(
    store: alkstore.Store, make_engine: MakeEngine
) -> None:
    with make_engine(isolation_level="AUTOCOMMIT").connect() as connection:
        queue = store.join(connection).queue("q")
        with pytest.raises(alkstore.PayloadError):
            queue.enqueue_many([1, 2, object()])
        assert 1_500 == len(queue.enqueue_many(range(1_500)))
    assert 1_500 == store.queue("q").stats().ready


def test_an_engine_that_begins_sqlites_transactions_by_an_event_works_as_any(
    sqlite_place: Place,
) -> None:
    """SQLAlchemy's own recipe for savepoints on SQLite: the driver begins nothing, an event of SQLAlchemy's does."""
    engine = sqlalchemy.create_engine(sqlite_place.sqlalchemy_url)

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    def begun(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    with alkstore.open(sqlite_place.url, **sqlite_place.options) as store:
        with Session(engine) as session:
            queue = store.join(session).queue("q")
            with session.begin_nested() as nested:
                queue.enqueue("undone with the savepoint")
                nested.rollback()
            queue.enqueue("kept")
            assert [] == payloads(store)
            session.commit()
            queue.enqueue("rolled back")
            session.rollback()
        assert ["kept"] == payloads(store)
    engine.dispose()


# --- claims ------------------------------------------------------------------------------------------------------


def test_a_jobs_effect_and_its_ack_are_committed_together(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    store.queue("q").enqueue(7)
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    session.add(Order(id=handle.payload))
    assert store.join(session).bind(handle).ack()
    assert ([], [7]) == (orders(engine), payloads(store))
    session.commit()
    assert ([7], []) == (orders(engine), payloads(store))


def test_a_jobs_effect_and_its_ack_are_rolled_back_together(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    store.queue("q").enqueue(7)
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    session.add(Order(id=7))
    session.flush()
    assert store.join(session).bind(handle).ack()
    session.rollback()
    assert ([], [7]) == (orders(engine), payloads(store))
    assert handle.ack()  # the claim is still this one's


def test_claim_effect_and_ack_in_one_transaction_of_the_session(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    store.queue("q").enqueue_many([1, 2])
    tx = store.join(session)
    for keep in (True, False):
        for handle in tx.queue("q").claim_batch("w", 1):
            session.add(Order(id=handle.payload))
            session.flush()
            assert handle.ack()
        if keep:
            session.commit()
        else:
            session.rollback()
    assert ([1], [2]) == (orders(engine), payloads(store))
    (left,) = store.queue("q").jobs()
    assert (alkstore.State.PENDING, 0) == (left.state, left.attempts)


def test_a_claim_committed_by_the_session_is_acked_in_its_next_transaction(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    store.queue("q").enqueue(7)
    tx = store.join(session)
    handle = tx.queue("q").claim_one("w")
    assert handle is not None
    session.commit()
    session.add(Order(id=7))
    assert handle.ack()
    session.commit()
    assert ([7], []) == (orders(engine), payloads(store))


# --- what can't be used ------------------------------------------------------------------------------------------


def test_a_closed_connection_is_a_transaction_error(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    connection = engine.connect()
    tx = store.join(connection)
    connection.close()
    with pytest.raises(alkstore.TransactionError, match="closed"):
        tx.queue("q").enqueue(1)
    with pytest.raises(alkstore.TransactionError, match="closed"):
        store.join(connection)
    assert [] == payloads(store)


def test_an_invalidated_connection_is_a_transaction_error_until_it_is_rolled_back(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    with engine.connect() as connection:
        queue = store.join(connection).queue("q")
        queue.enqueue(1)
        connection.invalidate()
        with pytest.raises(alkstore.TransactionError):
            queue.enqueue(2)
        with pytest.raises(alkstore.TransactionError):
            store.join(connection)
        connection.rollback()
        queue.enqueue(3)
        connection.commit()
    assert [3] == payloads(store)


def test_a_driver_connection_closed_underneath_is_an_error_of_ours(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """Clause S-5: nobody told SQLAlchemy."""
    with engine.connect() as connection:
        tx = store.join(connection)
        tx.queue("q").enqueue(1)
        driver: Any = connection.connection.driver_connection
        driver.close()
        with pytest.raises(alkstore.AlkstoreError):
            tx.queue("q").enqueue(2)
        with pytest.raises(alkstore.AlkstoreError):
            store.join(connection)
        connection.invalidate()
    assert [] == payloads(store)


def test_a_session_whose_flush_has_failed_is_a_transaction_error_until_it_is_rolled_back(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    session.add(Order(id=1))
    session.commit()
    tx = store.join(session)
    session.expunge_all()
    session.add(Order(id=1))
    with pytest.raises(IntegrityError):
        session.flush()
    with pytest.raises(PendingRollbackError):  # what SQLAlchemy's own would say
        session.connection()
    with pytest.raises(alkstore.TransactionError):
        tx.queue("q").enqueue(1)
    with pytest.raises(alkstore.TransactionError):
        store.join(session)
    session.rollback()
    tx.queue("q").enqueue(2)
    session.commit()
    assert [2] == payloads(store)


def test_a_transaction_that_the_server_has_aborted_is_a_transaction_error_until_it_is_rolled_back(
    postgres_place: Place,
) -> None:
    engine = sqlalchemy.create_engine(postgres_place.sqlalchemy_url)
    with alkstore.open(postgres_place.url, **postgres_place.options) as store:
        with Session(engine) as session:
            tx = store.join(session)
            with pytest.raises(ProgrammingError):
                session.execute(sqlalchemy.text("SELECT nothing_of_the_kind"))
            with pytest.raises(alkstore.TransactionError):
                tx.queue("q").enqueue(1)
            with pytest.raises(alkstore.TransactionError):
                store.join(session)
            session.rollback()
            tx.queue("q").enqueue(2)
            session.commit()
        assert [2] == payloads(store)
    engine.dispose()


def test_a_block_whose_transaction_has_ended_already_is_a_transaction_error(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """SQLAlchemy begins no other before the block is left."""
    with engine.begin() as connection:
        tx = store.join(connection)
        tx.queue("q").enqueue(1)
        connection.commit()
        with pytest.raises(alkstore.TransactionError):
            tx.queue("q").enqueue(2)
        with pytest.raises(alkstore.TransactionError):
            store.join(connection)
    with sessionmaker(engine).begin() as session:
        tx = store.join(session)
        tx.queue("q").enqueue(3)
        session.commit()
        with pytest.raises(alkstore.TransactionError):
            tx.queue("q").enqueue(4)
    assert [1, 3] == payloads(store)


def test_a_savepoints_block_that_was_rolled_back_already_is_a_transaction_error(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """What SQLAlchemy refuses for its own statements would land in the transaction around the savepoint."""
    with engine.begin() as connection:
        queue = store.join(connection).queue("q")
        queue.enqueue(1)
        with connection.begin_nested() as nested:
            queue.enqueue(2)
            nested.rollback()
            with pytest.raises(alkstore.TransactionError):
                queue.enqueue(3)
    with sessionmaker(engine).begin() as session:
        queue = store.join(session).queue("q")
        queue.enqueue(4)
        with session.begin_nested() as inner:
            queue.enqueue(5)
            inner.rollback()
            with pytest.raises(alkstore.TransactionError):
                queue.enqueue(6)
    assert [1, 4] == payloads(store)


def test_a_session_closed_for_good_is_a_transaction_error(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    session = Session(engine, close_resets_only=False)
    tx = store.join(session)
    session.close()
    with pytest.raises(alkstore.TransactionError):
        tx.queue("q").enqueue(1)
    with pytest.raises(alkstore.TransactionError):
        store.join(session)


def test_a_session_without_a_database_is_a_validation_error(store: alkstore.Store) -> None:
    with Session() as session, pytest.raises(alkstore.ValidationError, match="bound"):
        store.join(session)


def test_a_session_bound_by_its_classes_is_joined_by_the_connection_of_one(
    store: alkstore.Store, engine: sqlalchemy.Engine
) -> None:
    """Which of its databases is meant, the session can't know: its connection is joined in its place."""
    with Session(binds={Order: engine}) as session:
        with pytest.raises(alkstore.ValidationError, match=r"session\.connection"):
            store.join(session)
        session.add(Order(id=7))
        store.join(session.connection(bind_arguments={"mapper": Order})).queue("q").enqueue(7)
        session.commit()
    assert ([7], [7]) == (orders(engine), payloads(store))


def test_a_database_that_is_not_reached_is_unavailable(
    place: Place, store: alkstore.Store, make_engine: MakeEngine, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'no directory' / 'store.db'}"
    if place.engine == "postgresql":
        url = "postgresql+psycopg://somebody:a-secret@127.0.0.1:1/nothing"
    with Session(make_engine(url)) as session, pytest.raises(alkstore.EngineUnavailableError) as caught:
        store.join(session)
    assert "a-secret" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_pool_without_a_free_connection_is_busy(store: alkstore.Store, make_engine: MakeEngine) -> None:
    engine = make_engine(pool_size=1, max_overflow=0, pool_timeout=0.01)
    with Session(engine) as session, engine.connect() as taken:
        with pytest.raises(alkstore.EngineBusyError):
            store.join(session)
        taken.close()
        session.rollback()
        store.join(session).queue("q").enqueue(1)
        session.commit()
    assert [1] == payloads(store)


def test_a_session_bound_to_another_database_is_a_validation_error(
    place: Place, store: alkstore.Store, make_engine: MakeEngine, postgres_database: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    if place.engine == "postgresql":
        url = place.sqlalchemy_url.replace(postgres_database.rpartition("/")[2], "postgres")
    with Session(make_engine(url)) as session:
        with pytest.raises(alkstore.ValidationError, match="the store's own database"):
            store.join(session)
        assert 1 == session.scalar(sqlalchemy.text("SELECT 1"))


def test_a_session_that_changes_its_database_is_a_validation_error_from_then_on(
    store: alkstore.Store, engine: sqlalchemy.Engine, place: Place, make_engine: MakeEngine, tmp_path: Path
) -> None:
    other = make_engine(
        f"sqlite:///{tmp_path / 'other.db'}"
        if place.engine == "sqlite"
        else place.sqlalchemy_url.rpartition("/")[0] + "/postgres"
    )
    with Session(engine) as session:
        tx = store.join(session)
        tx.queue("q").enqueue(1)
        session.commit()
        session.bind = other
        with pytest.raises(alkstore.ValidationError, match="the store's own database"):
            tx.queue("q").enqueue(2)
    assert [1] == payloads(store)


def test_a_session_in_another_engines_database_is_a_validation_error_naming_what_was_expected(
    place: Place, store: alkstore.Store, postgres_database: str, tmp_path: Path
) -> None:
    url, expected = postgres_database.replace("postgresql:", "postgresql+psycopg:"), r"sqlite3\.Connection"
    if place.engine == "postgresql":
        url, expected = f"sqlite:///{tmp_path / 'other.db'}", r"psycopg\.Connection"
    other = sqlalchemy.create_engine(url)
    with Session(other) as session, pytest.raises(alkstore.ValidationError, match=expected):
        store.join(session)
    with other.connect() as connection, pytest.raises(alkstore.ValidationError, match=expected):
        store.join(connection)
    other.dispose()


class ForeignDriverConnection:
    """What a driver that no engine knows would have."""


def test_a_connection_of_another_driver_is_a_validation_error_naming_what_was_expected(
    place: Place, store: alkstore.Store, engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.connect() as connection:
        monkeypatch.setattr(type(connection.connection), "driver_connection", ForeignDriverConnection())
        with pytest.raises(alkstore.ValidationError) as caught:
            store.join(connection)
        monkeypatch.undo()
    expected = "sqlite3.Connection" if place.engine == "sqlite" else "psycopg.Connection"
    assert f"connection must be a {expected}" in str(caught.value)
    assert "ForeignDriverConnection" in str(caught.value)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sqlalchemy.ext.asyncio.engine", "AsyncConnection"),
        ("sqlalchemy.ext.asyncio.session", "AsyncSession"),
        ("sqlalchemy.ext.asyncio.scoping", "async_scoped_session"),
    ],
)
def test_what_is_asynchronous_is_a_validation_error_naming_what_was_expected(
    place: Place, store: alkstore.Store, module: str, name: str
) -> None:
    """Classes of the same names: SQLAlchemy's own can't be imported without greenlet."""
    kind = type(name, (), {"__module__": module})
    with pytest.raises(alkstore.ValidationError) as caught:
        store.join(kind())
    expected = "sqlite3.Connection" if place.engine == "sqlite" else "psycopg.Connection"
    assert f"connection must be a {expected}" in str(caught.value)
    assert f"{module}.{name}" in str(caught.value)


def test_an_engine_and_a_sessionmaker_are_validation_errors(store: alkstore.Store, engine: sqlalchemy.Engine) -> None:
    for wrong in (engine, sessionmaker(engine), Session):
        with pytest.raises(alkstore.ValidationError, match="connection must be"):
            store.join(wrong)


# --- imports -----------------------------------------------------------------------------------------------------

_JOIN_PLAINLY = """
import json, sys
import alkstore
url, options, connect = json.loads(sys.argv[1])
with alkstore.open(url, **options) as store:
    if url.startswith("sqlite:"):
        import sqlite3
        connection = sqlite3.connect(connect)
    else:
        import psycopg
        connection = psycopg.connect(connect)
    store.join(connection).queue("q").enqueue(1)
    connection.commit()
    connection.close()
    try:
        store.join(object())
    except alkstore.ValidationError:
        pass
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} & {"sqlalchemy", "django", "asgiref"})))
"""


def test_joining_a_drivers_own_connection_imports_neither_sqlalchemy_nor_django(
    place: Place, store: alkstore.Store
) -> None:
    connect = str(place.path) if place.engine == "sqlite" else place.url
    arguments = json.dumps([place.url, place.options, connect])
    done = subprocess.run(
        [sys.executable, "-c", _JOIN_PLAINLY, arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert [] == json.loads(done.stdout)
    assert [1] == payloads(store)


def test_the_stores_own_calls_are_refused_by_the_transaction_that_the_session_has_now(
    store: alkstore.Store, engine: sqlalchemy.Engine, session: Session
) -> None:
    """T-5: not by the connection that it had before a commit, which may be another thread's by then."""
    with store.join(session) as tx:
        tx.queue("q").enqueue(1)
        with pytest.raises(alkstore.TransactionError):
            store.queue("q").enqueue("outside")
        session.commit()
        store.queue("q").enqueue(2)
        with engine.connect() as first, engine.connect() as second:
            # Both of the pool's connections: the session gets a third, and one of these has a transaction open.
            first.execute(sqlalchemy.insert(Order).values(id=1))
            first.rollback()
            second.execute(sqlalchemy.select(Order.id))
            tx.queue("q").enqueue(3)
            with pytest.raises(alkstore.TransactionError):
                store.queue("q").enqueue("outside")
            session.commit()
            second.rollback()
            store.queue("q").enqueue(4)
    assert [1, 2, 3, 4] == payloads(store)


@pytest.fixture
def rung(store: alkstore.Store, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was rung in the store so far, with how many jobs were committed by then."""
    noted: list[object] = []
    wakes = cast(Any, store).wakes
    ring = wakes.ring

    def note(rings: object, **how: Any) -> None:
        noted.append((rings, len(payloads(store))))
        ring(rings, **how)

    monkeypatch.setattr(wakes, "ring", note)
    return noted


def test_the_sessions_commit_wakes_those_who_wait_and_its_rollback_does_not(
    store: alkstore.Store, session: Session, rung: list[object]
) -> None:
    """Z-14: SQLAlchemy tells of it; nobody polls."""
    with store.queue("q").consume("w", poll_interval=3_600) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        tx = store.join(session)
        tx.queue("q").enqueue("rolled back")
        session.rollback()
        tx.queue("q").enqueue("work")
        assert [] == rung
        session.commit()
        assert [({"q": 1}, 1)] == rung
        assert "work" == waiting.result(60).payload
        tx.queue("q").enqueue("more")
        session.commit()
        assert [({"q": 1}, 1), ({"q": 1}, 2)] == rung


def test_a_savepoint_of_the_session_wakes_nobody_before_the_commit(
    store: alkstore.Store, session: Session, rung: list[object]
) -> None:
    """SQLAlchemy tells of savepoints, too: kept, they are the commit's; rolled back, they take nobody's wake along."""
    queue = store.join(session).queue("q")
    session.add(Order(id=1))
    session.flush()
    with session.begin_nested(), session.begin_nested():
        queue.enqueue("kept")
    assert [] == rung
    session.commit()
    assert [({"q": 1}, 1)] == rung
    rung.clear()
    session.add(Order(id=2))
    session.flush()
    queue.enqueue("around")
    with session.begin_nested() as outer:
        with session.begin_nested():
            queue.enqueue_many(["undone with what is around it"] * 3)
        outer.rollback()
    with session.begin_nested() as undone:
        queue.enqueue_many(["undone"] * 5)
        undone.rollback()
    assert [] == rung
    session.commit()
    assert [({"q": 1}, 2)] == rung
    rung.clear()
    session.add(Order(id=3))
    session.flush()
    with session.begin_nested():
        queue.enqueue("rolled back at last")
    session.rollback()
    session.add(Order(id=4))
    session.commit()
    queue.enqueue("closed")
    session.close()
    session.add(Order(id=5))
    session.commit()
    assert [] == rung


def test_a_job_that_is_enqueued_while_the_session_flushes_wakes_at_the_commit(
    store: alkstore.Store, session: Session, rung: list[object]
) -> None:
    """Within a savepoint or not: what a flush begins for itself is neither."""

    @event.listens_for(session, "after_flush")
    def enqueue(session: Session, _: object) -> None:
        store.join(session).queue("q").enqueue(1)

    session.add(Order(id=1))
    session.flush()
    with session.begin_nested():
        session.add(Order(id=2))
        session.flush()
    assert [] == rung
    session.commit()
    assert [({"q": 1}, 2), ({"q": 1}, 2)] == rung


def test_a_savepoint_of_the_librarys_that_is_rolled_back_wakes_nobody(
    store: alkstore.Store, session: Session, rung: list[object]
) -> None:
    tx = store.join(session)
    session.add(Order(id=1))
    session.flush()
    with pytest.raises(ZeroDivisionError), tx.transaction() as inner:
        inner.queue("q").enqueue("undone")
        _ = 1 // 0
    session.commit()
    assert [] == rung


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only", "control_fully"])
def test_a_session_on_a_connection_whose_transaction_goes_on_wakes_nobody(
    store: alkstore.Store, engine: sqlalchemy.Engine, rung: list[object], mode: Any
) -> None:
    """Its commit may be a savepoint's release, or nothing at all: those who wait look for themselves, then."""
    with engine.connect() as connection, connection.begin() as around:
        connection.execute(sqlalchemy.insert(Order).values(id=1))
        with Session(connection, join_transaction_mode=mode) as session:
            store.join(session).queue("q").enqueue(1)
            session.commit()
        assert [] == rung
        if around.is_active:
            around.rollback()
    assert [] == rung
