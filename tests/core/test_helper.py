"""The flag, and the thread on call."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable

import pytest

from alkstore.helper import Flag, Helper, Register
from contract_tests.interrupting import on_top_of
from tests.support.waiting import wait_until

WITHIN = 20.0


class Work:
    """Numbers that a helper takes from one deque to another."""

    def __init__(self, linger: float = 0.01) -> None:
        self.todo: deque[int] = deque()
        self.done: list[int] = []
        self.helper = Helper("alkstore-test", self._work, lambda: bool(self.todo), linger)

    def _work(self) -> None:
        while self.todo:
            number = self.todo.popleft()
            if number < 0:
                raise LookupError("work that fails")
            self.done.append(number)

    def ask(self, number: int) -> bool:
        """Add a number, and call."""
        self.todo.append(number)
        return self.helper.call()


def no_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_flag_lasts_until_it_is_taken() -> None:
    """Each change says whether it was one."""
    flag = Flag()
    assert (False, False, False) == (flag.is_set, flag.clear(), flag.wait(0))
    assert (True, False, True) == (flag.set(), flag.set(), flag.is_set)
    assert (True, False) == (flag.wait(0), flag.is_set)
    assert (True, True, False) == (flag.set(), flag.clear(), flag.clear())


def test_whatever_it_is_called_for_is_done() -> None:
    """Whether the thread runs, is about to go, or has gone."""
    work = Work(linger=0.001)
    for number in range(500):
        assert work.ask(number)
        if number % 3 == 0:
            assert work.helper.flush(WITHIN)
            assert number == work.done[-1]
    assert work.helper.flush(WITHIN)
    assert list(range(500)) == work.done


def test_where_there_is_no_thread_a_later_call_has_it_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a thread that never began, and what was asked for meanwhile is done, too."""
    work = Work()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        assert (False, False) == (work.ask(1), work.ask(2))
        assert not work.helper.flush(WITHIN)
    assert work.ask(3)
    assert work.helper.flush(WITHIN)
    assert [1, 2, 3] == work.done


def test_waiting_for_the_rest_calls_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what was asked when there was no thread."""
    work = Work()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_threads)
        assert not work.ask(1)
    assert work.helper.flush(WITHIN)
    assert [1] == work.done


def test_work_that_fails_keeps_nothing_else_from_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread goes on, and the failure is told as any thread's."""
    told: list[type[BaseException]] = []

    def tell(failure: threading.ExceptHookArgs) -> None:
        told.append(failure.exc_type)

    monkeypatch.setattr(threading, "excepthook", tell)
    work = Work()
    work.todo.extend([1, -1, 2, -1, 3])
    assert work.helper.call()
    wait_until(lambda: [1, 2, 3] == work.done, WITHIN, "the rest to be done")
    assert work.ask(4)
    assert work.helper.flush(WITHIN)
    assert [1, 2, 3, 4] == work.done
    wait_until(lambda: [LookupError] * 2 == told, WITHIN, "the failures to be told")


def test_it_may_be_called_on_top_of_its_being_called() -> None:
    """At any step; both are done, and in time."""
    work = Work(linger=0.001)

    def ask(number: int) -> Callable[[], object]:
        return lambda: work.ask(number)

    with on_top_of(None, ask(0)) as steps:
        work.ask(0)
    total = max(steps.taken, 1)
    asked = 1
    for _ in range(200):
        with on_top_of(random.randrange(total), ask(asked)):
            work.ask(asked + 1)
            work.helper.flush(WITHIN)
        asked += 2
        assert work.helper.flush(WITHIN)
        assert len(work.done) in (asked, asked - 1)  # it may have needed fewer steps
        asked = len(work.done)


def test_a_register_has_what_lives_while_others_come_and_go() -> None:
    """Gone through by one thread as another adds: each that lives all the while is there."""

    class Thing:
        pass

    register, kept, stop = Register[Thing](), [Thing() for _ in range(10)], threading.Event()
    for thing in kept:
        register.add(thing)

    def churn() -> None:
        while not stop.is_set():
            register.add(Thing())

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(2_000):
            assert set(kept) <= set(register.living())
    finally:
        stop.set()
        thread.join(30)
    assert set(kept) == set(register.living())
