"""Lines of waiters: whoever comes between two steps of it, no wake is lost (W-4)."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from alkstore.waiting import Waiter, Waiters
from contract_tests.interrupting import on_top_of
from contract_tests.scale import rounds

SOON = 20.0


def woken(*waiters: Waiter) -> list[bool]:
    return [waiter.woken.is_set for waiter in waiters]


def test_jobs_wake_the_longest_waiting_and_as_many_as_there_are() -> None:
    """Of that queue."""
    waiters = Waiters()
    first, second, third, other = (waiters.enter(name) for name in ("a", "a", "a", "b"))
    waiters.wake("a", 1)
    assert [True, False, False, False] == woken(first, second, third, other)
    waiters.wake("a", 5)
    assert [True, True, True, False] == woken(first, second, third, other)


def test_a_wake_that_was_not_used_is_handed_on() -> None:
    """Once, however often he leaves."""
    waiters = Waiters()
    first, second, third = (waiters.enter("a") for _ in range(3))
    waiters.wake("a", 1)
    waiters.leave(first, more=False)
    waiters.leave(first, more=False)
    assert [True, False] == woken(second, third)
    assert waiters.take(second)
    waiters.leave(second, more=False)
    assert [False] == woken(third)
    assert third.stirred  # he is the head by now


def test_a_stir_reaches_the_head_of_each_queue() -> None:
    """Queues whose names lie at the same place included."""
    waiters = Waiters()
    pairs = [(waiters.enter(str(number)), waiters.enter(str(number))) for number in range(300)]
    waiters.stir(None)
    assert [(True, False)] * 300 == [(head.stirred, next_one.stirred) for head, next_one in pairs]


def test_who_is_gone_without_a_word_stands_in_no_line() -> None:
    """As a signal's handler raised just where he was about to leave; and somebody else looks for whatever he was told."""
    waiters = Waiters()
    first, second = waiters.enter("a"), waiters.enter("a")
    waiters.wake("a", 1)
    assert [True, False] == woken(first, second)
    del first
    gc.collect()
    assert [second] == waiters._line("a")
    assert waiters.is_head(second)
    assert second.stirred


def leaving(waiters: Waiters, *leaver: Waiter) -> Callable[[], None]:
    def leave() -> None:
        for each in leaver:
            waiters.leave(each, more=False)

    return leave


@pytest.mark.parametrize("what", ["wake", "leave"])
@pytest.mark.parametrize("leavers", [(0,), (1,), (0, 1), (1, 0), (0, 1, 2)])
def test_no_wake_is_lost_to_those_who_leave_meanwhile(what: str, leavers: tuple[int, ...]) -> None:
    """At each step of waking, and of leaving: somebody who still stands in the line has it."""
    step = 0
    while True:
        waiters = Waiters()
        line = [waiters.enter("a") for _ in range(4)]
        if what == "leave":
            waiters.wake("a", 1)
        with on_top_of(step, leaving(waiters, *(line[number] for number in leavers))) as steps:
            if what == "wake":
                waiters.wake("a", 1)
            else:
                waiters.leave(line[0], more=False)
        if steps.taken <= step:
            break
        left = {*leavers, *([0] if what == "leave" else [])}
        assert 1 == sum(woken(*(waiter for number, waiter in enumerate(line) if number not in left))), step
        step += 1
    assert step > 20


@pytest.mark.parametrize("leavers", [(0,), (0, 1), (1, 0), (1,)])
def test_no_stir_is_lost_to_those_who_leave_meanwhile(leavers: tuple[int, ...]) -> None:
    """Whoever is the head in the end looks."""
    step = 0
    while True:
        waiters = Waiters()
        line = [waiters.enter("a") for _ in range(3)]
        with on_top_of(step, leaving(waiters, *(line[number] for number in leavers))) as steps:
            waiters.stir("a")
        if steps.taken <= step:
            break
        head = next(waiter for number, waiter in enumerate(line) if number not in leavers)
        assert head.stirred, step
        step += 1
    assert step > 20


@pytest.mark.parametrize("what", ["wake", "stir", "rouse", "close"])
def test_nothing_that_comes_on_the_way_into_sleep_is_slept_through(what: str) -> None:
    """At each step of it."""
    step = 0
    while True:
        waiters, over = Waiters(), [False]
        waiter = waiters.enter("a")

        def deed(waiters: Waiters = waiters, waiter: Waiter = waiter, over: list[bool] = over) -> None:
            if what == "rouse":
                over[0] = True
                waiters.rouse(waiter)
            elif what == "close":
                waiters.close()
            else:
                waiters.wake("a", 1) if what == "wake" else waiters.stir("a")

        start = time.monotonic()
        waker = threading.Timer(0.05, deed)  # where it sleeps already
        waker.start()
        with on_top_of(step, deed) as steps:
            waiters.sleep(waiter, start + SOON, lambda over=over: over[0], SOON)
        waker.cancel()
        assert time.monotonic() - start < SOON / 2, step
        if steps.taken <= step:
            break
        step += 1
    assert step > 10


def test_no_wake_is_lost_between_threads() -> None:
    """Of those who stand in the line, two leave while somebody wakes: the third has it in the end."""
    count = rounds(20_000)
    waiters = Waiters()
    lines = [[waiters.enter(str(number)) for _ in range(3)] for number in range(count)]
    together = threading.Barrier(3)

    def leave(which: int) -> None:
        for line in lines:
            together.wait(SOON)
            waiters.leave(line[which], more=False)

    threads = [threading.Thread(target=leave, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for number in range(count):
        together.wait(SOON)
        waiters.wake(str(number), 1)
    for thread in threads:
        thread.join(SOON)
    assert [True] * count == woken(*(line[2] for line in lines))
