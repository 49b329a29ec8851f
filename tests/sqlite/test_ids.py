"""An id that was once committed is never used again (Q-ENQ-1)."""

from __future__ import annotations

from pathlib import Path

import alkstore
from tests.sqlite.conftest import Opener
from tests.sqlite.support import back_door


def test_an_id_is_not_reused_after_delete_vacuum_and_reopen(
    path: Path, store: alkstore.Store, open_store: Opener
) -> None:
    ids = [store.queue("q").enqueue(1), *store.queue("q").enqueue_many(range(10))]
    for job_id in ids:
        assert store.queue("q").cancel(job_id)
    store.close()
    with back_door(path) as connection:
        connection.execute("VACUUM")
    assert max(ids) < open_store().queue("q").enqueue(1)


def test_a_revived_jobs_id_is_not_given_again(store: alkstore.Store) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    job = queue.claim_one("w")
    assert job is not None
    job.fail()
    assert queue.retry_dead(job.id)
    assert queue.cancel(job.id)
    assert job.id < queue.enqueue(2)


def test_ids_of_many_grow_in_order_whatever_triggers_an_application_adds(path: Path, store: alkstore.Store) -> None:
    with back_door(path) as connection:
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, job)")
        connection.execute("INSERT INTO log VALUES (5000, 0)")
        connection.execute(
            "CREATE TRIGGER logged AFTER INSERT ON alkstore_jobs BEGIN INSERT INTO log (job) VALUES (NEW.id); END"
        )
    queue = store.queue("q")
    ids = queue.enqueue_many(range(2_500))
    assert [*range(1, 2_501)] == ids
    for job_id, number in ((1, 0), (1_000, 999), (2_500, 2_499)):
        record = queue.get_job(job_id)
        assert record is not None
        assert number == record.payload


def test_two_stores_never_give_one_id(open_store: Opener) -> None:
    first, second = open_store().queue("q"), open_store().queue("q")
    ids = [*first.enqueue_many(range(5)), second.enqueue(1), *first.enqueue_many(range(5)), *second.enqueue_many([1])]
    assert [*range(1, 13)] == ids
