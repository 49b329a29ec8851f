"""A worker that runs its handlers in processes: whatever they do to those, it lives, and what it holds is safe (J-3, J-4, J-10)."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import alkstore
from alkstore import Backoff, NotSupportedError, RunningJob, State, ValidationError, Worker
from alkstore.store import Store
from alkstore.worker.children import ChildHand, Crew
from contract_tests.scale import rounds, scale
from tests.integrations.places import Place
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until
from tests.worker import handlers
from tests.worker.conftest import options_of
from tests.worker.handlers import Diary
from tests.worker.programs import ProcessesProgram
from tests.worker.running import Running

WAIT = 60


def drain(store: Store, handler: Callable[[RunningJob], object], processes: int = 1, **options: Any) -> Any:
    """Run a worker on the queue `q` in processes until it is idle, and return its summary."""
    return Worker(store, {"q": handler}, processes=processes, **options).run(until_idle=True)


def children(parent: int | None = None) -> set[int]:
    """Return the processes that a process has, those included that have ended and weren't reaped."""
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
        found, _ = ps.communicate()
    pairs = [tuple(map(int, line.split())) for line in found.splitlines()]
    return {pid for pid, above in pairs if above == (parent or os.getpid()) and pid != ps.pid}


def is_alive(pid: int) -> bool:
    """Say whether a process is there, and not only waits to be reaped by whoever has it now."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.strip().startswith("Z")


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """What the handlers have noted."""
    return Diary(tmp_path / "diary")


@pytest.fixture(autouse=True)
def nobody_left(postgres_server: PostgresServer) -> Iterator[None]:
    """Fail a test that leaves a process behind."""
    before = children()
    yield
    left = children() - before
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


# --- what becomes of a job --------------------------------------------------------------------------------------------


def test_a_handler_in_a_process_is_given_the_job_as_in_a_thread(store: Store, diary: Diary) -> None:
    queue = store.queue("q")
    job_id = queue.enqueue({"a": [1, "\u00e9"]}, headers={"diary": str(diary.path)}, priority=7)
    assert 1 == drain(store, handlers.look).succeeded
    raw = repr('{"a":[1,"\u00e9"]}'.encode())
    headers = repr({"diary": str(diary.path)}).replace(" ", "")
    payload = "{'a':[1,'\u00e9']}"
    assert [[str(job_id), "'q'", "1", payload, raw, headers, "7", payload]] == diary.lines()
    assert [] == queue.jobs()


def test_many_jobs_share_the_processes(store: Store) -> None:
    """Each process does one at a time, and one after the other."""
    store.queue("q").enqueue_many(range(100))
    assert 100 == drain(store, handlers.effect, processes=3).succeeded
    assert list(range(100)) == sorted(job.payload for job in store.queue("effects").jobs())


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("error", "ValueError: nope"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("unprintable", "Unprintable: (unprintable: SystemExit)"),
        ("unstorable", "ValueError: a\ufffdb\ufffd"),
        ("curve", "by its curve"),
    ],
)
def test_a_handler_that_raises_has_failed_once_and_its_process_lives(store: Store, what: str, error: str) -> None:
    """Whatever it is, whether or not it could be sent (J-4)."""
    queue = store.queue("q", backoff=Backoff(base=100))
    queue.enqueue(what)
    summary = drain(store, handlers.deny)
    assert (0, 1) == (summary.succeeded, summary.retried)
    (job,) = queue.jobs()
    assert (State.PENDING, 1, error) == (job.state, job.attempts, job.last_error)
    assert 40 <= (job.run_at - job.created_at).total_seconds() <= 130


def test_a_handler_says_on_purpose_what_becomes_of_its_job(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    queue = store.queue("q")
    queue.enqueue_many(["retry", "fail", "unhandled", "huge"])
    with caplog.at_level(logging.DEBUG, logger="alkstore.worker"):
        drain(store, handlers.deny)
    jobs = {job.payload: job for job in queue.jobs()}
    assert (State.PENDING, "not yet", 1) == (jobs["retry"].state, jobs["retry"].last_error, jobs["retry"].attempts)
    assert 2_990 < (jobs["retry"].run_at - jobs["retry"].created_at).total_seconds() < 3_060
    assert (State.DEAD, "never") == (jobs["fail"].state, jobs["fail"].last_error)
    assert (State.PENDING, 0) == (jobs["unhandled"].state, jobs["unhandled"].attempts)
    assert "no handler here knows it: no task 'what'" in caplog.text
    assert 60_000 < len(str(jobs["huge"].last_error)) <= 65_536
    assert "in deny" in caplog.text  # where it was raised, for whoever looks for the reason


def test_what_a_handler_returns_in_a_process_is_the_jobs_result(store: Store) -> None:
    """Z-17: where the job keeps one; what can't be kept is a failed attempt, and a limit is the store's."""
    queue = store.queue("q", max_attempts=1)
    kept = queue.enqueue({"a": [1, None]}, keep_result=60)
    wrong = queue.enqueue("a set", keep_result=60)
    queue.enqueue("dropped")
    assert 2 == drain(store, handlers.returns).succeeded
    result = queue.result(kept)
    assert result is not None
    assert {"a": [1, None]} == result.value
    dead = queue.get_job(wrong)
    assert dead is not None
    assert str(dead.last_error).startswith("PayloadError: result")


def test_tasks_run_in_processes_with_their_results_and_their_timeouts(store: Store) -> None:
    tasks = handlers.tasks
    tasks.bind(store)
    sent, hung = handlers.double.enqueue(21), handlers.hang.enqueue()
    summary = tasks.worker(store, processes=2).run(until_idle=True)
    assert (1, 1) == (summary.succeeded, summary.died)
    assert 42 == sent.result(timeout=WAIT)
    dead = store.get_job(hung.id)
    assert dead is not None
    assert "TimeoutError" in str(dead.last_error)


def test_a_large_payload_goes_through(store: Store, diary: Diary) -> None:
    store.queue("q").enqueue("x" * (16 * 1024 * 1024 - 100), headers={"diary": str(diary.path)})
    assert 1 == drain(store, handlers.measure).succeeded
    assert [[str(16 * 1024 * 1024 - 100)] * 2] == diary.lines()


# --- effects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "attempts", "left"),
    [
        ("transaction", 1, 0),
        ("bound", 1, 0),
        ("rolled back", 0, 0),
        ("raises", 1, 0),
        ("dies after", 1, 0),
        ("dies within", 1, 0),
        ("fails", 0, 1),
        ("extends", 0, 0),
    ],
)
def test_effects_of_a_process_are_exactly_once(store: Store, what: str, attempts: int, left: int) -> None:
    """With the job or not at all; what the handler has settled is left alone, and what was rolled back isn't (J-10)."""
    queue = store.queue("q", backoff=Backoff(base=1, cap=1))
    queue.enqueue(what)
    running = Running(Worker(store, {"q": handlers.effect}, processes=1))
    with running:
        wait_until(lambda: left == len(queue.jobs(State.DEAD)) == len(queue.jobs()), WAIT, "the end")
    assert [what] * attempts == [job.payload for job in store.queue("effects").jobs()]
    assert 0 == running.summary.lost


def test_a_transaction_that_outlives_the_visibility_timeout_keeps_its_claim(
    store: Store, open_store: Callable[..., Store], place: Place
) -> None:
    """The row is locked, and can't be extended: that isn't taken for a loss (J-10)."""
    store.queue("q", visibility_timeout=1).enqueue(2.5)
    summary = drain(store, handlers.slow_effect)
    assert (1, 0, 0) == (summary.succeeded, summary.retried, summary.lost)
    assert [1] == [job.payload for job in store.queue("effects").jobs()]


def test_codecs_and_a_clock_come_along(open_store: Callable[..., Store], diary: Diary) -> None:
    store = open_store(codecs=[handlers.Codec(), handlers.ProudCodec()], clock=handlers.clock)
    headers = {"diary": str(diary.path)}
    store.queue("q", codec="backwards").enqueue("abc", headers=headers)
    assert 1 == drain(store, handlers.note_payload).succeeded
    store.queue("q").enqueue(1, headers=headers)
    assert 1 == drain(store, handlers.ask_the_clock).succeeded
    assert [["abc"], ["2100"]] == diary.lines()


def test_what_cannot_come_along_is_an_error_only_where_it_is_wanted(
    open_store: Callable[..., Store], diary: Diary
) -> None:
    store = open_store(codecs=[handlers.ProudCodec()], clock=lambda: datetime(2100, 1, 1, tzinfo=UTC))
    queue, proud = store.queue("q"), store.queue("q", codec="proud")
    headers = {"diary": str(diary.path)}
    queue.enqueue("free", headers=headers)
    assert 1 == drain(store, handlers.note_payload).succeeded
    proud.enqueue("abc", headers=headers)
    drain(store, handlers.note_payload)
    (job,) = queue.jobs()
    assert "the codec 'proud' can't be had in a process of the worker's: TypeError: not me" in str(job.last_error)
    queue.cancel(job.id)
    queue.enqueue(1, headers=headers)
    drain(store, handlers.ask_the_clock)
    assert "the store's clock= can't be had in a process of the worker's" in str(queue.jobs()[0].last_error)
    assert [["free"]] == diary.lines()


# --- what ends a process ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("kill", "the handler's process was ended by SIGKILL"),
        ("exit", "the handler's process ended with exit code 3"),
        ("segfault", "the handler's process was ended by SIGSEGV"),
    ],
)
def test_a_process_that_dies_is_a_failed_attempt_and_the_next_job_runs(store: Store, what: str, how: str) -> None:
    queue = store.queue("q")
    queue.enqueue_many([what, "good", what, "good"])
    summary = drain(store, handlers.perish)
    assert (2, 2) == (summary.succeeded, summary.retried)
    assert [(State.PENDING, 1, how)] * 2 == [(job.state, job.attempts, job.last_error) for job in queue.jobs()]


def test_a_timeout_kills_the_handler_and_what_it_has_started(store: Store, diary: Diary) -> None:
    """A busy loop, one that never lets go of the interpreter, and a program: the next job runs."""
    for kind in (handlers.busy, handlers.stuck, handlers.with_a_program):
        queue = store.queue("q", max_attempts=1)
        queue.enqueue({"diary": str(diary.path), "seconds": 600})
        queue.enqueue({"diary": str(diary.path), "seconds": 0})
        worker = Worker(store, processes=1)
        worker.add("q", kind, timeout=1.5)
        summary = worker.run(until_idle=True)
        assert (1, 1) == (summary.succeeded, summary.died) if kind is handlers.busy else summary.died == 2
        assert "TimeoutError: the handler ran for more than 1.5 s" == queue.jobs()[0].last_error
        pids = [int(pid) for _, pid in diary.said("begin")]
        wait_until(lambda of=pids: not any(map(is_alive, of)), 5, "their end")
        queue.purge(State.DEAD)


def test_what_a_handler_forks_is_no_reason_to_wait_for_it(store: Store) -> None:
    """It has none of the pipes, whose ends say who has died."""
    store.queue("q", max_attempts=1).enqueue(1)
    assert 1 == drain(store, handlers.fork).died
    assert "the handler's process ended with exit code 3" == store.queue("q").jobs()[0].last_error


def test_a_process_that_will_not_end_by_itself_is_killed(store: Store) -> None:
    """As for a thread that a handler has left behind: the worker ends."""
    store.queue("q").enqueue(1)
    assert 1 == drain(store, handlers.leave_a_thread).succeeded


def test_an_idle_process_that_was_killed_is_replaced_and_costs_no_attempt(store: Store, diary: Diary) -> None:
    queue = store.queue("q", max_attempts=1)
    before = children()
    with Running(Worker(store, {"q": handlers.busy}, processes=1)):
        for turn in range(1, 4):
            queue.enqueue({"diary": str(diary.path), "seconds": 0})
            wait_until(lambda done=turn: len(diary.said("end")) == done and not queue.jobs(), WAIT, "the job")
            (pid,) = {int(diary.said("end")[-1][1])}
            assert pid in children() - before
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda of=pid: not is_alive(of), WAIT, "its end")


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_busy_loop_in_a_process_starts_once(store: Store, diary: Diary) -> None:
    """For several visibility timeouts, with another worker that waits for the job."""
    store.queue("q", visibility_timeout=0.6).enqueue({"diary": str(diary.path), "seconds": 2})
    threads = Worker(store, {"q": handlers.busy}, poll_interval=0.1)
    with Running(Worker(store, {"q": handlers.busy}, processes=2)):
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        with Running(threads):
            wait_until(lambda: not store.queue("q").jobs(), WAIT, "the ack")
    assert [1, 1] == [len(diary.said("begin")), len(diary.said("end"))]


def test_a_lost_claim_is_told_to_a_handler_in_a_process(store: Store, diary: Diary) -> None:
    queue = store.queue("q", visibility_timeout=1)
    job_id = queue.enqueue(str(diary.path))
    running = Running(Worker(store, {"q": handlers.await_loss}, processes=1))
    with running:
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        assert queue.cancel(job_id)
        wait_until(lambda: diary.said("lost"), WAIT, "the loss")
    assert (1, 0) == (running.summary.lost, running.summary.succeeded)


def test_that_the_worker_stops_is_told_to_a_handler_in_a_process(store: Store, diary: Diary) -> None:
    queue = store.queue("q")
    queue.enqueue(str(diary.path))
    with Running(Worker(store, {"q": handlers.await_stop}, processes=2, grace=10)):
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
    assert "to be gone on with" == queue.jobs()[0].last_error


def test_a_deadline_that_was_extended_is_told_to_a_handler_in_a_process(store: Store) -> None:
    store.queue("q", visibility_timeout=1).enqueue(1)
    assert 1 == drain(store, handlers.await_extension).succeeded


# --- its beginning ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_before_anything_is_claimed(store: Store) -> None:
    """A handler that other processes can't import too, with its queue and its name."""
    store.queue("q").enqueue(1)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: Worker(store, {"q": handlers.nothing}, processes=2, concurrency=2), "processes and concurrency"),
        (lambda: Worker(store, {"q": handlers.nothing}, processes=0), "processes"),
        (lambda: Worker(store, {"q": handlers.nothing}, processes=cast(Any, True)), "processes"),
        (lambda: Worker(store, {"q": lambda _: None}, processes=1).run(), "<lambda> of the queue 'q'.*importable"),
        (lambda: Worker(store, {"q": partial(print, threading.Lock())}, processes=1).run(), "queue 'q'.*importable"),
    ]
    for call, name in wrong:
        with pytest.raises(ValidationError, match=name):
            call()
    assert 1 == store.queue("q").stats().ready


def test_a_store_in_memory_cannot_have_processes() -> None:
    with alkstore.open("sqlite:///:memory:") as store, pytest.raises(NotSupportedError, match="processes"):
        Worker(store, {"q": handlers.nothing}, processes=1)


def test_a_module_that_processes_cannot_import_ends_the_worker_and_says_why(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was claimed."""
    module = tmp_path / "sound_only_here.py"
    module.write_text("def handle(job): pass\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    handle = importlib.import_module("sound_only_here").handle
    module.write_text("raise LookupError('no such setting')\n")
    store.queue("q").enqueue(1)
    with pytest.raises(RuntimeError, match="LookupError: no such setting"):
        drain(store, handle, processes=3)
    assert 1 == store.queue("q").stats().ready


def test_processes_that_cannot_be_had_any_more_are_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With growing pauses, each said in the log; what was claimed for them is given back meanwhile."""
    boot: Callable[[ChildHand], None] = ChildHand._boot
    flags = "alkstore.worker.process._flags"
    broken = threading.Event()

    def booting(hand: ChildHand) -> None:
        if broken.is_set():
            with monkeypatch.context() as patch:
                patch.setattr(flags, lambda: ["-c", "raise SystemExit(7)"])
                boot(hand)
        else:
            boot(hand)

    monkeypatch.setattr(ChildHand, "_boot", booting)
    queue = store.queue("q")
    worker = Worker(store, {"q": handlers.perish}, processes=1)
    with caplog.at_level(logging.WARNING, logger="alkstore.worker"), Running(worker):
        queue.enqueue("good")
        wait_until(lambda: not queue.jobs(), WAIT, "the job")
        broken.set()
        queue.enqueue("exit", priority=1, max_attempts=1)
        wait_until(lambda: caplog.text.count("tried again in") >= 3, WAIT, "attempts")
        queue.enqueue_many(["good", "good"])
        time.sleep(0.3)
        assert 2 == queue.stats().ready
        broken.clear()
        wait_until(lambda: queue.stats().ready == queue.stats().processing == 0, WAIT, "the jobs")
    assert "a process for handlers ended with exit code 7 before it had found them" in caplog.text


def test_a_handler_may_be_in_the_script_itself(place: Place, tmp_path: Path) -> None:
    """What it guards isn't run by its processes; and handlers of its own are found there."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, os, alkstore\n"
        "def handle(job):\n"
        "    print('did', job.payload, __name__, flush=True)\n"
        "def main():\n"
        f"    with alkstore.open({place.url!r}, **{options_of(place)!r}) as store:\n"
        "        store.queue('q').enqueue('it')\n"
        "        print(alkstore.Worker(store, {'q': handle}, processes=2).run(until_idle=True).succeeded)\n"
        "if __name__ == '__main__' or len(sys.argv) > 1:\n"
        "    main()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=WAIT, check=False)
    assert (0, "did it __mp_main__\n1\n") == (done.returncode, done.stdout), done.stderr
    unguarded = subprocess.run([sys.executable, script, "x"], capture_output=True, text=True, timeout=WAIT, check=False)
    assert 1 == unguarded.returncode
    assert 'must stand under if __name__ == "__main__"' in unguarded.stderr


def test_a_program_without_a_file_cannot_have_handlers_of_its_own(place: Place) -> None:
    program = (
        f"import alkstore\nstore = alkstore.open({place.url!r}, **{options_of(place)!r})\n"
        "def handle(job): pass\nalkstore.Worker(store, {'q': handle}, processes=1).run(until_idle=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT, check=False)
    assert 1 == done.returncode
    assert "the handler handle of the queue 'q' can't be run in another process" in done.stderr


def test_no_password_is_to_be_seen_from_outside(store: Store, diary: Diary) -> None:
    """The URL goes by a pipe: it is in no command line, and in no environment but the one that there was."""
    with Running(Worker(store, {"q": handlers.await_loss}, processes=1)):
        job_id = store.queue("q", visibility_timeout=1).enqueue(str(diary.path))
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        for pid in children():
            shown = subprocess.run(
                ["ps", "eww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
            ).stdout
            assert store.engine.url.encode() not in shown
        store.queue("q").cancel(job_id)


# --- its end ----------------------------------------------------------------------------------------------------------


def test_signals_to_all_processes_of_a_service_stop_no_handler(store: Store, diary: Diary) -> None:
    """The worker decides; and programs that a handler starts heed them as ever."""
    store.queue("q").enqueue(str(diary.path))
    assert 1 == drain(store, handlers.signalled).succeeded
    assert [[str(-signal.SIGTERM)]] == diary.said("ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_what_runs_in_a_process_has_the_grace_period_and_its_claim_extended(
    place: Place, store: Store, diary: Diary, number: signal.Signals
) -> None:
    """The signal goes to the worker's whole process group, as Ctrl-C does; a second worker waits for the job: it starts once."""
    factor = max(scale(), 0.25)
    queue = store.queue("q", visibility_timeout=3 * factor)
    queue.enqueue({"diary": str(diary.path), "seconds": 8 * factor})
    with ProcessesProgram(place, "busy", processes=2, grace=max(10 * factor, 8 * factor + 5)) as program:
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        os.killpg(program.process.pid, number)
        with ProcessesProgram(place, "busy", poll_interval=0.1) as other:
            assert 0 == program.ended(), program.errors
            assert [["1", "0", "0", "0"]] == program.said("stopped")
            assert [] == queue.jobs()
            other.expect("ready")
            other.process.terminate()
            assert 0 == other.ended(), other.errors
    assert [1, 1] == [len(diary.said("begin")), len(diary.said("end"))]


def test_an_idle_worker_with_processes_exits_well_and_at_once(place: Place, store: Store, diary: Diary) -> None:
    store.queue("q").enqueue({"diary": str(diary.path), "seconds": 0})
    with ProcessesProgram(place, "busy", processes=2) as program:
        wait_until(lambda: diary.said("end") and not store.queue("q").jobs(), WAIT, "the ack")
        begun = time.monotonic()
        program.process.terminate()
        assert 0 == program.ended(), program.errors
        assert time.monotonic() - begun < 2
        assert [["1", "0", "0", "0"]] == program.said("stopped")


def test_a_stop_while_processes_begin_is_heeded_at_once(store: Store) -> None:
    """At any moment of their beginning; nothing is lost, and none stays behind."""
    store.queue("q").enqueue_many(range(10))
    for turn in range(rounds(40)):
        worker = Worker(store, {"q": handlers.slow_effect}, processes=3, grace=0)
        with Running(worker):
            wait_until(lambda of=worker: of._run is not None, WAIT, "its start")
            time.sleep(0.01 * (turn % 20))
    assert 0 == store.queue("q").stats().processing
    assert 10 == len({job.id for job in store.queue("q").jobs()}) + len(store.queue("effects").jobs())


@pytest.mark.parametrize("handler", ["busy", "stuck"])
def test_what_still_runs_in_a_process_after_the_grace_period_is_killed_and_retried(
    place: Place, store: Store, diary: Diary, handler: str
) -> None:
    """Its attempt counts."""
    queue = store.queue("q")
    queue.enqueue({"diary": str(diary.path), "seconds": 600})
    with ProcessesProgram(place, handler, grace=0.2) as program:
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        program.process.terminate()
        assert 0 == program.ended(), program.errors
        assert [["0", "1", "0", "0"]] == program.said("stopped")
    (job,) = queue.jobs()
    assert (State.PENDING, 1) == (job.state, job.attempts)
    assert "the worker was stopped before the handler had finished" == job.last_error
    assert not is_alive(int(diary.said("begin")[0][1]))


@pytest.mark.parametrize("handler", ["busy", "stuck", "with_a_program"])
@pytest.mark.parametrize("how", ["killed", "signalled twice"])
def test_no_process_outlives_its_worker(place: Place, store: Store, diary: Diary, how: str, handler: str) -> None:
    """Whatever the handler does, and what it has started ends, too. The job's claim lapses."""
    store.queue("q").enqueue({"diary": str(diary.path), "seconds": 600})
    with ProcessesProgram(place, handler, processes=2, grace=60) as program:
        wait_until(lambda: diary.said("begin"), WAIT, "the beginning")
        busy = {int(diary.said("begin")[0][1]), *children(program.process.pid)}
        if how == "killed":
            program.process.kill()
        else:
            program.process.terminate()
            time.sleep(0.3)
            program.process.terminate()
        assert program.process.wait(10) in {-signal.SIGKILL, 128 + signal.SIGTERM}
        try:
            wait_until(lambda: not any(map(is_alive, busy)), 5, "their end")
        finally:
            for pid in filter(is_alive, busy):
                os.kill(pid, signal.SIGKILL)
    assert State.PROCESSING is store.queue("q").jobs()[0].state


# --- it leaves nothing behind -----------------------------------------------------------------------------------------


def test_processes_threads_and_files_are_flat_over_many_runs(store: Store) -> None:
    """Each run ends what it began."""
    queue = store.queue("q")
    worker = Worker(store, {"q": handlers.nothing}, processes=2)
    worker.run(until_idle=True)
    files, threads = len(os.listdir("/dev/fd")), threading.active_count()  # noqa: PTH208 - a directory of the system's
    before = children()
    for _ in range(rounds(50)):
        queue.enqueue_many(range(20))
        assert 20 == worker.run(until_idle=True).succeeded
    wait_until(lambda: threading.active_count() <= threads + 1, WAIT, "the threads to end")
    assert len(os.listdir("/dev/fd")) <= files + 2  # noqa: PTH208 - see above
    assert not children() - before
    assert [] == store.queues()


def test_a_crew_names_its_handlers_by_reference(store: Store) -> None:
    """What goes over is the name, and not the code."""
    crew = Crew(store, {"q": handlers.nothing}, cast(Any, None), lambda _: None, threading.Event())
    assert b"tests.worker.handlers" in crew.brief
