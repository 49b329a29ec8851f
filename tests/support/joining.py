"""What the engines' own tests do on a joined connection, whatever its settings are."""

from __future__ import annotations

import alkstore
from contract_tests.harness import Connection


def work_through(store: alkstore.Store, connection: Connection) -> list[object]:
    """Use whatever reads rows, and return what it gives, but for ids and instants."""
    queue = store.join(connection).queue("sélect")
    first, second, third = queue.enqueue_many(
        [{"é": "\u0000"}, 2, alkstore.Item([3], headers={"h": "ü"}, priority=-1)], max_attempts=2
    )
    one, two = queue.claim_batch("wörker", 2)
    assert two.retry("nö")
    dead = queue.claim_batch("w", 1)[0]
    assert dead.fail("Ende ß")
    job = queue.get_job(first)
    assert job is not None
    rebuilt = queue.handle(one.id, one.token)
    found: list[object] = [
        (one.payload, one.attempt, one.queue, one.job.worker_id, dead.payload, rebuilt.payload, rebuilt.headers),
        [(each.state, each.payload, each.headers, each.last_error, each.codec) for each in queue.jobs()],
        (job.worker_id, job.queue, job.state),
        (queue.stats().processing, queue.stats().dead),
    ]
    assert one.heartbeat(5)
    assert one.ack()
    assert queue.cancel(second) != queue.cancel(third)
    assert 1 == queue.purge("dead")
    connection.commit()
    return found


def results_through(store: alkstore.Store, connection: Connection) -> list[object]:
    """Keep results, and return what is read of them, but for ids and instants."""
    queue = store.join(connection).queue("résults")
    acked, cancelled, failed, alive = queue.enqueue_many(range(4), keep_result=60)
    for handle in queue.claim_batch("wörker", 3):
        done = {acked: lambda: handle.ack(result={"é": "\u0000"}), failed: lambda: handle.fail("Ende ß")}  # noqa: B023
        assert done.get(handle.id, lambda: queue.cancel(cancelled))()
    found = [
        None
        if each is None
        else (each.queue, each.outcome, each.codec, each.raw, each.value, each.worker_id, each.error)
        for each in map(queue.result, (acked, cancelled, failed, alive))
    ]
    assert 2 == queue.purge("dead") + queue.purge("pending")
    connection.commit()
    return list[object](found)
