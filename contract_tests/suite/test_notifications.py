"""``store.notify`` and ``store.listen``: every notification, in the order of the commits (W-1, W-2, N-3, N-4, T-2)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from alkstore import Notification, StoreClosedError, TransactionError, ValidationError
from alkstore.protocols import Listener, Store
from contract_tests.children import Child
from contract_tests.clauses import clause
from contract_tests.fixtures import OpenStore
from contract_tests.harness import Harness
from contract_tests.scale import rounds
from contract_tests.steps import Leave, leaving, promptly
from contract_tests.together import WAIT

END = "the end"


def heard(listener: Listener) -> list[str]:
    """Return the payloads up to ``END``."""
    payloads: list[str] = []
    while (found := listener.get(timeout=WAIT)) is not None and found.payload != END:
        assert not found.gap
        payloads.append(found.payload)
    assert found is not None, f"the end did not come; so far: {payloads}"
    return payloads


@clause("W-1")
def test_a_listener_gets_what_is_committed_after_it_began(store: Store) -> None:
    """Nothing is replayed for those who come later, and a listener hears its own store."""
    store.notify("c", "before")
    with store.listen("c") as listener:
        store.notify("c")
        store.notify("c", "é\U0001f600")
        store.notify("c", END)
        assert Notification(channel="c", payload="", gap=False) == listener.get(timeout=WAIT)
        assert ["é\U0001f600"] == heard(listener)
        assert None is listener.get(timeout=0)


@clause("W-1", "T-2", needs="transactions")
def test_equal_notifications_of_one_transaction_are_not_merged(store: Store) -> None:
    """Three are three; and they come in the order in which they were sent."""
    with store.listen("c") as listener:
        with store.transaction() as tx:
            for payload in ("x", "x", "x", "y", "x"):
                tx.notify("c", payload)
            assert None is listener.get(timeout=0.05)
        store.notify("c", END)
        assert ["x", "x", "x", "y", "x"] == heard(listener)


@clause("W-1", "T-2", needs="transactions")
def test_what_is_rolled_back_is_never_heard(store: Store) -> None:
    """A savepoint's likewise."""
    with store.listen("c") as listener:
        with leaving(), store.transaction() as tx:
            tx.notify("c", "rolled back")
            raise Leave
        with store.transaction() as tx:
            tx.notify("c", "kept")
            with leaving(), tx.transaction() as inner:
                inner.notify("c", "undone")
                raise Leave
            with tx.transaction() as inner:
                inner.notify("c", "kept too")
        store.notify("c", END)
        assert ["kept", "kept too"] == heard(listener)


@clause("W-1", "N-1", "N-3")
def test_channels_do_not_mix(store: Store) -> None:
    """Case counts, all 200 characters do, and a queue of the same name is something else."""
    long = "x" * 79
    names = ["Orders", "orders", long + "1", long + "2", 'quoted "name"', "a'b", "n " * 100, "ünï%s{}"]
    listeners = {name: store.listen(name) for name in names}
    for name in names:
        store.notify(name, name)
        store.queue(name).enqueue(1)
        store.notify(name, END)
    for name, listener in listeners.items():
        assert [name] == heard(listener)
        listener.close()


@clause("W-1")
def test_a_listener_of_many_channels_gets_them_in_one_order(store: Store) -> None:
    """Also when others listen to some of them."""
    with store.listen("a", "b", "c") as all_three, store.listen("b") as one:
        for turn in range(rounds(300)):
            store.notify("abc"[turn % 3], str(turn))
        for channel in "ab":
            store.notify(channel, END)
        assert [str(turn) for turn in range(rounds(300))] == heard(all_three)
        assert [str(turn) for turn in range(rounds(300)) if turn % 3 == 1] == heard(one)


@clause("W-1", needs="processes")
def test_a_notification_comes_from_any_process(harness: Harness, place: str, store: Store) -> None:
    """In its order, without loss."""
    count = rounds(500)
    with (
        store.listen("c") as listener,
        Child(harness, place, "notify", queue="q", channel="c", count=count, end=END) as child,
    ):
        assert [str(number) for number in range(count)] == heard(listener)
        child.finish()


@clause("W-1")
def test_threads_that_notify_lose_nothing(store: Store) -> None:
    """Each thread's own come in its order."""
    size, each = 6, rounds(200)
    with store.listen("c") as listener, ThreadPoolExecutor(size) as threads:

        def send(number: int) -> None:
            for turn in range(each):
                store.notify("c", f"{number} {turn}")

        list(threads.map(send, range(size)))
        store.notify("c", END)
        came = [tuple(map(int, payload.split())) for payload in heard(listener)]
    for number in range(size):
        assert [(number, turn) for turn in range(each)] == [pair for pair in came if pair[0] == number]


@clause("W-1", "W-2")
def test_listeners_that_come_and_go_lose_nothing(store: Store, open_store: OpenStore) -> None:
    """Several at a time on the same few channels: each hears what was sent since it began, whoever has just left."""
    size, channels, sender = 6, 3, open_store()

    def churn(number: int) -> None:
        channel = f"c{number % channels}"
        for turn in range(rounds(2_000)):
            sent = f"{number} {turn}"
            with store.listen(channel) as listener:
                sender.notify(channel, sent)
                while (found := listener.get(timeout=WAIT)) is not None and found.payload != sent:
                    assert not found.gap
                assert found is not None, f"{sent} was lost"

    with ThreadPoolExecutor(size) as threads:
        list(threads.map(churn, range(size)))


@clause("N-4", "W-1")
def test_stores_in_other_places_are_not_heard(harness: Harness, store: Store) -> None:
    """Whatever channels they share by name."""
    place = harness.new_place()
    try:
        other = harness.open(place)
        with store.listen("c") as here, other.listen("c") as there:
            store.notify("c", "here")
            other.notify("c", "there")
            store.notify("c", END)
            other.notify("c", END)
            assert (["here"], ["there"]) == (heard(here), heard(there))
        other.close()
    finally:
        harness.drop_place(place)


@clause("W-1", "Z-1")
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (7, "payload must be a str"),
        (b"x", "payload must be a str"),
        ("x" * 7_001, "7000 bytes"),
        ("é" * 3_501, "7000 bytes"),
        ("\ud800", "surrogate"),
        ("a\0b", "NUL"),
    ],
    ids=["int", "bytes", "too long", "too many bytes", "surrogate", "NUL"],
)
def test_a_payload_that_cannot_be_sent_is_refused(payload: object, expected: str, store: Store) -> None:
    """Before anything is sent, and on every engine alike."""
    with store.listen("c") as listener:
        with pytest.raises(ValidationError, match=expected):
            store.notify("c", cast(Any, payload))
        for bad in ("", "_own", "a\nb", 7):
            with pytest.raises(ValidationError, match="channel name"):
                store.notify(cast(Any, bad), "x")
        store.notify("c", "é" * 3_500)
        store.notify("c", END)
        assert ["é" * 3_500] == heard(listener)


@clause("W-2", "Z-1")
def test_a_listener_needs_channels(store: Store) -> None:
    """One at least, and names that can be."""
    with pytest.raises(ValidationError, match="one channel"):
        store.listen()
    with pytest.raises(ValidationError, match="channel name"):
        store.listen("fine", "_own")
    with store.listen("c") as listener, pytest.raises(ValidationError, match="timeout"):
        listener.get(timeout=-1)


@clause("W-2")
def test_a_timeout_gives_none_and_iterating_goes_on_until_closed(store: Store) -> None:
    """From another thread, while this one waits: promptly."""

    def end() -> float:
        listener = store.listen("c")
        assert None is listener.get(timeout=0.01)
        store.notify("c", "one")
        store.notify("c", "two")
        came: list[str] = []
        ended = threading.Event()

        def iterate() -> None:
            came.extend(found.payload for found in listener)
            ended.set()

        thread = threading.Thread(target=iterate)
        thread.start()
        while len(came) < 2 and not ended.wait(0.001):
            pass
        start = time.monotonic()
        listener.close()
        thread.join(WAIT)
        took = time.monotonic() - start
        assert ["one", "two"] == came
        assert None is listener.get(timeout=WAIT)
        listener.close()
        return took

    promptly(end)


@clause("W-1", "W-2")
def test_threads_that_share_a_listener_share_what_it_gets(store: Store) -> None:
    """Each notification is one thread's, and each thread's come in their order; half are there before they read."""
    size, count = 6, 20
    together = threading.Barrier(size)
    with store.listen("c") as listener, ThreadPoolExecutor(size) as threads:

        def read() -> list[int]:
            together.wait(WAIT)
            return [int(payload) for payload in heard(listener)]

        for _ in range(max(10, rounds(20))):
            for turn in range(count // 2):
                store.notify("c", str(turn))
            reading = [threads.submit(read) for _ in range(size)]
            for turn in range(count // 2, count):
                store.notify("c", str(turn))
            for _ in range(size):
                store.notify("c", END)
            came = [each.result(WAIT) for each in reading]
            assert list(range(count)) == sorted(number for each in came for number in each)
            assert all(each == sorted(each) for each in came)
        assert None is listener.get(timeout=0.01)


@clause("W-2")
def test_a_thread_that_waits_for_ever_holds_up_no_other(store: Store) -> None:
    """Neither one whose time is up, nor one for whom there is something."""
    with store.listen("c") as listener, ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(listener.get)

        def get() -> float:
            start = time.monotonic()
            assert None is listener.get(timeout=0.05)
            return time.monotonic() - start

        promptly(get)
        another = threads.submit(listener.get, WAIT)
        store.notify("c", "one")
        store.notify("c", "two")
        assert {"one", "two"} == {found.payload for found in (waiting.result(WAIT), another.result(WAIT)) if found}


@clause("W-2", "S-3")
def test_closing_the_store_ends_a_listener_that_waits(open_store: OpenStore) -> None:
    """With the error that says so, promptly."""

    def end() -> float:
        store = open_store()
        listener = store.listen("c")
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(listener.get)
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
            start = time.monotonic()
            store.close()
            with pytest.raises(StoreClosedError):
                waiting.result(WAIT)
            took = time.monotonic() - start
        for call in (lambda: listener.get(timeout=0), lambda: store.notify("c"), lambda: store.listen("c")):
            with pytest.raises(StoreClosedError):
                call()
        return took

    promptly(end)


@clause("W-1", "T-5", needs="transactions")
def test_notifying_outside_of_the_threads_transaction_is_refused(store: Store) -> None:
    """It would be sent although the transaction may be rolled back."""
    with store.transaction() as tx:
        with pytest.raises(TransactionError, match=r"tx\."):
            store.notify("c")
        with pytest.raises(TransactionError):
            store.listen("c")
        tx.notify("c")
    with pytest.raises(TransactionError):
        tx.notify("c")


@clause("W-3")
def test_a_listener_outlives_what_it_hears_by(
    harness: Harness, place: str, store: Store, open_store: OpenStore
) -> None:
    """Three times it is cut; what is missing of what was sent since is announced by a gap, and then all goes on."""
    other = open_store()
    with store.listen("c") as listener:
        for turn in range(3):
            harness.disturb(place)
            sent: list[str] = []
            came: list[str] = []
            gaps = 0
            end = time.monotonic() + WAIT
            while not came and time.monotonic() < end:
                sent.append(f"{turn} {len(sent)}")
                other.notify("c", sent[-1])
                while (found := listener.get(timeout=0.05)) is not None:
                    gaps += found.gap
                    if not found.gap:
                        came.append(found.payload)
            assert came == sent[len(sent) - len(came) :], "in order, and without a hole once it goes on"
            assert gaps == (1 if len(came) < len(sent) else gaps)
            assert gaps <= 1
            other.notify("c", END)
            assert [] == heard(listener)
