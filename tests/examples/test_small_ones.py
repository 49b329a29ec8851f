"""The small examples do what they say, on both engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import alkstore
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

FOLDER: Final = Path(__file__).resolve().parents[2] / "examples"
WAIT: Final = 60


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the test's own: the examples know of no schemas."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made = server.create_database()
    yield made
    server.drop_database(made)


def run(name: str, *arguments: str) -> str:
    """Run one to its good end, and return what it printed."""
    command = [sys.executable, str(FOLDER / name), *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT, stdin=subprocess.DEVNULL)
    assert (0, "") == (told.returncode, told.stderr), told.stdout
    return told.stdout


def test_the_script_does_what_it_finds(url: str) -> None:
    """What an earlier run has left, too."""
    with alkstore.open(url) as store:
        store.queue("greetings").enqueue({"name": "alan"})
        assert "Hello, alan\nHello, ada\nHello, grace\nHello, edsger\n" == run("script.py", "--url", url)
        assert [] == store.queues()


def test_the_tasks_are_enqueued_and_run(url: str) -> None:
    """One that is no name is dead, and its mail was never enqueued."""
    assert "enqueued 1\nenqueued 2\nenqueued 3\n" == run("tasks_app.py", "enqueue", "--url", url, "ada", "grace", "7")
    told = run_worker(url)
    assert all(f"sending: Dear {name}, welcome!" in told for name in ("ada", "grace"))  # in whichever order
    assert "Summary(succeeded=4, retried=0, died=1, released=0, lost=0)" == told.splitlines()[-1]
    with alkstore.open(url) as store:
        (dead,) = store.queue("accounts").jobs()
        assert "'7' is no name" == dead.last_error
        mails = store.queue("emails")
        assert ["ada", "grace"] == sorted(job.payload["args"]["to"] for job in mails.jobs("pending"))
        lengths = [result.value for job_id in range(4, 8) if (result := mails.result(job_id)) is not None]
        assert [len("Dear ada, welcome!"), len("Dear grace, welcome!")] == sorted(lengths)


def run_worker(url: str) -> str:
    command = [sys.executable, str(FOLDER / "tasks_app.py"), "work", "--until-idle", "--url", url]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT, stdin=subprocess.DEVNULL)
    assert 0 == told.returncode, told.stderr
    assert "Traceback" not in told.stderr
    return told.stdout


def test_its_worker_stops_when_it_is_told_to(url: str) -> None:
    run("tasks_app.py", "enqueue", "--url", url, "ada")
    command = [sys.executable, str(FOLDER / "tasks_app.py"), "work", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            assert "sending: Dear ada, welcome!\n" == worker.stdout.readline()
            with alkstore.open(url) as store:
                # What is due tomorrow stays.
                wait_until(lambda: ["pending"] == [job.state for job in store.queue("emails").jobs()], WAIT, "the ack")
            worker.send_signal(signal.SIGTERM)
            told, _ = worker.communicate(timeout=WAIT)
        finally:
            worker.kill()
    assert 0 == worker.returncode
    assert "succeeded=2" in told


def test_the_command_runs_its_tasks_too(url: str) -> None:
    run("tasks_app.py", "enqueue", "--url", url, "ada")
    command = [sys.executable, "-m", "alkstore.cli", "worker", "tasks_app:tasks", "--until-idle", "--url", url]
    environ = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    told = subprocess.run(command, cwd=FOLDER, env=environ, capture_output=True, text=True, check=False, timeout=WAIT)
    assert 0 == told.returncode, told.stderr
    assert "sending: Dear ada, welcome!\n2 succeeded, 0 retried, 0 died, 0 released, 0 lost\n" == told.stdout


def test_effects_happen_exactly_once_although_a_worker_is_killed_in_the_middle(url: str) -> None:
    told = run("exactly_once.py", "--url", url)
    assert told.splitlines() == [
        "The first worker was killed, with 7 payments booked, which make 35.",
        "The second did the rest: 20 payments booked, which make 100.",
        "Exactly once.",
    ]
