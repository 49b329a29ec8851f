"""The order in which jobs are handed out (Q-CLAIM-3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from alkstore.protocols import JobHandle, Queue, Store
from contract_tests.clauses import clause
from contract_tests.payloads import handed_out
from contract_tests.scale import examples
from contract_tests.steps import claimed
from contract_tests.travel import MICROSECOND, START, Clock

MINUTE = timedelta(minutes=1)


@clause("Q-CLAIM-3")
def test_a_lapsed_job_takes_its_place_among_the_others(queue: Queue, clock: Clock) -> None:
    """Priorities 1, 9, 5 and a lapsed job of 10 come as 10, 9, 5, 1 in the list itself."""
    queue.enqueue("ten", priority=10)
    assert ["ten"] == handed_out(queue)
    clock.advance(61)
    for priority, payload in [(1, "one"), (9, "nine"), (5, "five")]:
        queue.enqueue(payload, priority=priority)

    handles = queue.claim_batch("worker", 4)

    assert ["ten", "nine", "five", "one"] == [handle.payload for handle in handles]
    assert [10, 9, 5, 1] == [handle.priority for handle in handles]
    assert [2, 1, 1, 1] == [handle.attempt for handle in handles]


@clause("Q-CLAIM-3")
def test_the_greatest_priority_comes_first(queue: Queue) -> None:
    """Negative ones come last."""
    for priority in [0, -(2**31), 3, 2**31 - 1, -1, 1]:
        queue.enqueue(priority, priority=priority)

    assert [2**31 - 1, 3, 1, 0, -1, -(2**31)] == handed_out(queue)


@clause("Q-CLAIM-3")
def test_of_one_priority_the_longest_due_comes_first(queue: Queue, clock: Clock) -> None:
    """By ``run_at``, to the microsecond, whatever the order in which they were enqueued."""
    for ago in [2, 0, 3, 1]:
        queue.enqueue(ago, run_at=clock() - ago * MICROSECOND)

    assert [3, 2, 1, 0] == handed_out(queue)


@clause("Q-CLAIM-3")
def test_of_one_run_at_the_first_enqueued_comes_first(queue: Queue) -> None:
    """By id, and singly as in a batch."""
    queue.enqueue_many(range(20))

    assert list(range(20)) == [claimed(queue).payload for _ in range(5)] + handed_out(queue)


@clause("Q-CLAIM-3")
def test_a_job_scheduled_earlier_with_less_priority_waits(queue: Queue, clock: Clock) -> None:
    """Priority goes before time, and time before id."""
    queue.enqueue("old", run_at=clock() - MINUTE)
    queue.enqueue("soon", delay=5, priority=2)
    queue.enqueue("urgent", priority=1)

    assert ["urgent"] == handed_out(queue, 1)
    clock.advance(5)
    assert ["soon", "old"] == handed_out(queue)


@clause("Q-CLAIM-3", "J-4", "J-6")
def test_what_was_given_back_takes_its_place_again(queue: Queue, clock: Clock) -> None:
    """A released job has its old place, and a retried one that of its new ``run_at``."""
    queue.enqueue("first")
    clock.advance(1)
    queue.enqueue("second")
    clock.advance(1)
    queue.enqueue("third")
    first, second = queue.claim_batch("worker", 2)
    clock.advance(1)

    assert first.release()
    assert second.retry(delay=0)

    assert ["first", "third", "second"] == handed_out(queue)


@dataclass(frozen=True)
class Made:
    """A job to enqueue, and what happens to it before the claim."""

    priority: int
    due_in: int
    """Microseconds from now; negative is in the past."""
    fate: str


made = st.builds(
    Made,
    priority=st.one_of(st.integers(-2, 2), st.integers(-(2**31), 2**31 - 1)),
    due_in=st.one_of(st.integers(-3, 3), st.integers(-(10**12), 10**12)),
    fate=st.sampled_from(["left", "left", "left", "lapsed", "released", "retried", "held", "acked"]),
)


@clause("Q-CLAIM-3", "Q-CLAIM-4")
@examples(400)
@given(jobs=st.lists(made, max_size=25), first=st.integers(1, 30))
def test_any_mixture_comes_in_order(
    store: Store, clock: Clock, queue_names: Callable[[], str], jobs: list[Made], first: int
) -> None:
    """Priority descending, ``run_at`` ascending, id ascending: in a batch, in the next one, and through all fates.

    Some are claimed before the others are there, and lapse, come back, stay held or are acked by the time of the claim.
    """
    clock.set(START)
    queue = store.queue(queue_names(), visibility_timeout=60, max_attempts=9)
    begin = clock()
    now = begin + timedelta(seconds=61)  # when the claim in question is made
    expected: list[tuple[int, int, int]] = []
    waiting: list[tuple[int, int, int]] = []
    for number, job in enumerate(jobs):
        due = begin - timedelta(days=30)
        if job.fate == "left":
            due = now + job.due_in * MICROSECOND
        job_id = queue.enqueue(number, priority=job.priority, run_at=due)
        if job.fate != "left":
            # Only this one is claimable: whatever came before is scheduled for later, claimed, or left till the end.
            handle = _claim_only(queue, job_id)
            if job.fate == "held":
                assert handle.heartbeat(120)
            elif job.fate == "acked":
                assert handle.ack()
            elif job.fate == "released":
                assert handle.release()
            elif job.fate == "retried":
                assert handle.retry(delay=30)
                due = begin + timedelta(seconds=30)
        if job.fate not in {"held", "acked"}:
            place = (-job.priority, (due - begin) // MICROSECOND, job_id)
            (expected if due <= now else waiting).append(place)
    clock.set(now)

    batch = queue.claim_batch("worker", first)
    rest = queue.claim_batch("worker", 1_000)

    assert len(batch) == min(first, len(expected))
    assert [job_id for *_, job_id in sorted(expected)] == [handle.id for handle in batch + rest]
    clock.set(begin + timedelta(days=365))
    # By then those that were claimed just now have lapsed, too: what was waiting has to come in its order among them.
    latecomers = {job_id for *_, job_id in waiting}
    assert [job_id for *_, job_id in sorted(waiting)] == [
        handle.id for handle in queue.claim_batch("worker", 1_000) if handle.id in latecomers
    ]


def _claim_only(queue: Queue, job_id: int) -> JobHandle:
    """Claim this very job, giving back whatever comes before it."""
    handles = queue.claim_batch("worker", 1_000)
    found: list[JobHandle] = []
    for handle in handles:
        if handle.id == job_id:
            found.append(handle)
        else:
            assert handle.release()
    (wanted,) = found
    return wanted


@clause("Q-CLAIM-3", "Q-CLAIM-4")
@examples(100)
@given(data=st.data(), count=st.integers(1, 40))
def test_the_order_holds_while_jobs_come_and_become_due(
    store: Store, clock: Clock, queue_names: Callable[[], str], data: st.DataObject, count: int
) -> None:
    """Each single claim gives the first of those that are due at that moment, with jobs being added in between."""
    queue = store.queue(queue_names(), visibility_timeout=10**9)
    pending: set[tuple[int, int, int]] = set()
    for _ in range(count):
        for _ in range(data.draw(st.integers(0, 3), label="new jobs")):
            priority, wait = data.draw(st.tuples(st.integers(-1, 1), st.integers(0, 3)), label="priority, delay")
            job_id = queue.enqueue(None, priority=priority, delay=timedelta(microseconds=wait))
            pending.add((-priority, (clock() - START) // MICROSECOND + wait, job_id))
        clock.advance(data.draw(st.integers(0, 2), label="microseconds") * MICROSECOND)
        now = (clock() - START) // MICROSECOND
        due = min((place for place in pending if place[1] <= now), default=None)

        handle = queue.claim_one("worker")

        assert (due and due[2]) == (handle and handle.id)
        if due is not None:
            pending.remove(due)
