"""The thread that listens: how it begins, what may go wrong there, and that nobody waits for it (W-1 to W-4)."""

from __future__ import annotations

import errno
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from alkstore.errors import EngineUnavailableError
from alkstore.store import Store
from alkstore_postgres import notify
from contract_tests.interrupting import StruckError, struck_at
from tests.postgres.conftest import Opener
from tests.postgres.door import Door, ear_of
from tests.support.waiting import wait_until

WAIT = 60.0
NEVER = 3_600


class Heard:
    """What an ear has told."""

    def __init__(self) -> None:
        self._told = SimpleQueue[tuple[str | None, int]]()

    def __call__(self, queue: str | None, count: int) -> None:
        self._told.put((queue, count))

    def awaits(self, queue: str) -> None:
        """Wait until it has told of the queue; of anything else it may tell before."""
        while self._told.get(timeout=WAIT)[0] != queue:
            pass


def is_woken(store: Store, other: Store) -> bool:
    """Say whether who waits in the store is told of the other's commit; nobody polls."""
    with store.queue("q").consume("w", poll_interval=NEVER) as consumer, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, consumer)
        wait_until(lambda: store.wakes.waiters._line("q"), WAIT, "the consumer to stand in line")
        other.queue("q").enqueue(1)
        return waiting.result(WAIT).ack()


# --- beginning --------------------------------------------------------------------------------------------------------


def test_a_process_that_is_out_of_descriptors_for_a_moment_listens_again(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-3, W-4: whoever listens then is told so; whoever comes later is woken and listened for, by the same thread even."""
    store, other = open_store(), open_store()

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", fail)
        with pytest.raises(EngineUnavailableError):
            store.listen("c")
        assert False is store.queue("q").wait(0)
    assert is_woken(store, other)
    with store.listen("c") as listener:
        other.notify("c", "x")
        found = listener.get(WAIT)
        assert found is not None


def test_an_interrupt_at_any_step_of_its_beginning_keeps_nobody_from_being_told(
    store: Store, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4: Ctrl-C between any two; the next who comes is told of wakes, and there is one thread in the end."""
    monkeypatch.setattr(notify, "_LINGER", 0.05)
    monkeypatch.setattr(notify, "_PROBE_EVERY", 0.05)
    engine_ear, step, taken = ear_of(store), 0, 1
    before = set(threading.enumerate())
    while step < taken:
        ear, heard = notify.Ear(engine_ear._pool, engine_ear._statements), Heard()
        try:
            with struck_at(step) as steps:
                ear.attend(heard, store)
            taken = 0  # the step wasn't come to
        except StruckError:
            taken = steps.taken + 1
        ear.attend(heard, store)
        wait_until(lambda ear=ear: ear._hears({ear._channels.wakes}), WAIT, "a session")
        door.do("SELECT pg_notify(%s, %s)", ear._channels.wakes, ear._channels.wake("somebody", f"q{step}", 1))
        heard.awaits(f"q{step}")
        ear.leave(store)
        ear.close()
        step += 1
    assert step > 20
    # One that was struck before it had begun is still in the interpreter's list, and not alive.
    left = [each for each in threading.enumerate() if each.name == "alkstore-ear" and each not in before]
    wait_until(lambda: not any(each.is_alive() for each in left), WAIT, "the threads to end")
