"""The lock that a raising signal handler can't leave locked (see ``alkstore.monitor``)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from alkstore.monitor import Monitor
from contract_tests.interrupting import StruckError, struck_at

WAIT = 30


def use(monitor: Monitor) -> None:
    with monitor:
        monitor.wait_for(lambda: False, 0.001)
        monitor.notify_all()


def is_free(monitor: Monitor) -> bool:
    """Say whether another thread may enter."""

    def enter() -> bool:
        if not monitor.acquire(timeout=1):
            return False
        monitor.release()
        return True

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter).result(WAIT)


def test_it_is_free_again_wherever_a_handler_raises_and_what_that_raises_comes_out() -> None:
    with struck_at(None) as steps:
        use(monitor := Monitor())
    assert 5 < steps.taken
    for step in range(steps.taken):
        with struck_at(step), pytest.raises(StruckError):
            use(monitor)
            raise StruckError  # where it takes fewer steps this time
        assert is_free(monitor)


def test_who_waits_is_told_and_who_gives_up_says_so() -> None:
    monitor, there = Monitor(), list[int]()

    def wait() -> bool:
        with monitor:
            return monitor.wait_for(lambda: bool(there), WAIT)

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(wait) for _ in range(3)]
        with monitor:
            there.append(1)
            monitor.notify_all()
        assert all(each.result(WAIT) for each in waiting)
    with monitor:
        assert not monitor.wait(0.001)
        assert not monitor.wait_for(lambda: False, 0.001)


def test_it_excludes_and_its_own_thread_may_enter_again() -> None:
    monitor, entered = Monitor(), threading.Event()

    def enter() -> None:
        with monitor:
            entered.set()

    thread = threading.Thread(target=enter)
    with monitor, monitor:
        thread.start()
        assert not entered.wait(0.05)
    thread.join(WAIT)
    assert entered.is_set()
