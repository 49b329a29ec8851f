"""`alkstore worker`: an application's handlers, until it is told to stop."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from alkstore.store import Store
from tests.cli.runs import Cli
from tests.support.waiting import wait_until

WAIT = 60

JOBS = """
import alkstore


def send(job):
    print("to", job.payload, flush=True)
    if job.payload == "fails":
        raise ValueError("\\x1b]0;pwn\\x07<img src=x>\\n2030-01-31 08:00:00,000 INFO all is well")


handlers = {"emails": send}


def with_store(store):
    def forward(job):
        store.queue("emails").enqueue(job.payload)

    return {"inbox": forward, "emails": send}


tasks = alkstore.Tasks()


@tasks.task(queue="tasks")
def chain(n):
    print("task", n, flush=True)
    if n:
        chain.enqueue(n - 1)


def with_tasks(store):
    return tasks


number = 7


def nothing(store):
    return None
"""


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path) -> None:
    """The application's module, in the folder where the command runs."""
    (tmp_path / "shop_jobs.py").write_text(JOBS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_works_until_it_is_told_to_stop(cli: Cli, store: Store, number: signal.Signals) -> None:
    store.queue("emails").enqueue("ada")
    with cli.start("worker", "shop_jobs:handlers", "--json") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert b"to ada\n" == running.stdout.readline()
        wait_until(lambda: not store.queue("emails").jobs(), WAIT, "the ack")
        running.send_signal(number)
        assert 0 == running.wait(WAIT)
        assert {"succeeded": 1, "retried": 0, "died": 0, "released": 0, "lost": 0} == json.loads(running.stdout.read())
        assert b"has stopped" in running.stderr.read()


def test_a_function_is_given_the_store(cli: Cli, store: Store) -> None:
    """And until it is idle is until nothing is left, of what handlers enqueue too."""
    store.queue("inbox").enqueue("ada")
    with cli.start("worker", "shop_jobs:with_store", "--until-idle") as running:
        told, _ = running.communicate(timeout=WAIT)
    assert 0 == running.returncode
    assert "to ada\n2 succeeded, 0 retried, 0 died, 0 released, 0 lost\n" == told.decode()
    assert [] == store.queues()


@pytest.mark.parametrize("name", ["tasks", "with_tasks"])
def test_tasks_are_run_and_enqueue_others_in_the_store_of_the_command(cli: Cli, store: Store, name: str) -> None:
    store.queue("tasks").enqueue({"task": "shop_jobs.chain", "args": {"n": 2}})
    with cli.start("worker", f"shop_jobs:{name}", "--until-idle") as running:
        told, complaint = running.communicate(timeout=WAIT)
    assert 0 == running.returncode, complaint
    assert "task 2\ntask 1\ntask 0\n3 succeeded, 0 retried, 0 died, 0 released, 0 lost\n" == told.decode()


def test_its_log_obeys_nothing_of_the_data(cli: Cli, store: Store) -> None:
    store.queue("emails").enqueue("fails", max_attempts=1)
    with cli.start("worker", "shop_jobs:handlers", "--until-idle", "--verbose") as running:
        _, logged = running.communicate(timeout=WAIT)
    assert 0 == running.returncode
    assert b"is dead: ValueError: \\x1b]0;pwn\\x07<img src=x>" in logged
    assert b"\n  2030-01-31 08:00:00,000 INFO all is well" in logged
    assert b"\n2030-01-31" not in logged, "what follows a line break passes for no line of the log"
    assert b"\x1b" not in logged
    assert 1 == store.queue("emails").stats().dead


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("shop_jobs", "is not MODULE:NAME"),
        (":handlers", "is not MODULE:NAME"),
        ("no_such_module:handlers", "there is no module 'no_such_module'"),
        ("shop_jobs:missing", "has no 'missing'"),
        ("shop_jobs:number", "must be a mapping"),
        ("shop_jobs:nothing", "must give a mapping"),
    ],
)
def test_what_is_no_mapping_of_handlers_is_refused(cli: Cli, store: Store, reference: str, why: str) -> None:
    """On one line, and nothing is claimed."""
    store.queue("emails").enqueue("ada")
    with cli.start("worker", reference, "--until-idle") as running:
        told, complaint = running.communicate(timeout=WAIT)
    assert (2, b"") == (running.returncode, told)
    assert why in complaint.decode()
    assert 1 == complaint.count(b"\n")
    assert 1 == store.queue("emails").stats().ready


def test_a_wrong_option_is_refused(cli: Cli, store: Store) -> None:
    store.queue("emails").enqueue("ada")
    for wrong in (["--concurrency", "0"], ["--grace", "soon"], ["--worker-id", "_mine"], ["--timeout", "0"]):
        with cli.start("worker", "shop_jobs:handlers", "--until-idle", *wrong) as running:
            _, complaint = running.communicate(timeout=WAIT)
        assert 2 == running.returncode, complaint
    assert 1 == store.queue("emails").stats().ready


def test_it_runs_importable_handlers_in_processes(cli: Cli, store: Store) -> None:
    store.queue("emails").enqueue_many(["ada", "bob"])
    with cli.start("worker", "shop_jobs:handlers", "--processes", "2", "--until-idle") as running:
        told, complaint = running.communicate(timeout=WAIT)
    assert 0 == running.returncode, complaint
    assert ["2 succeeded, 0 retried, 0 died, 0 released, 0 lost", "to ada", "to bob"] == sorted(
        told.decode().splitlines()
    )


def test_handlers_that_processes_cannot_import_are_refused(cli: Cli, store: Store) -> None:
    store.queue("inbox").enqueue("ada")
    for wrong in (["--processes", "2"], ["--processes", "2", "--concurrency", "2"], ["--processes", "0"]):
        with cli.start("worker", "shop_jobs:with_store", "--until-idle", *wrong) as running:
            _, complaint = running.communicate(timeout=WAIT)
        assert 2 == running.returncode, complaint
        assert b"process" in complaint
    assert 1 == store.queue("inbox").stats().ready


def test_metrics_are_served_while_it_works(cli: Cli, store: Store) -> None:
    """With what went by and how the queues are; and no longer than that."""
    store.queue("emails").enqueue_many(["ada", "fails"])
    with cli.start("worker", "shop_jobs:handlers", "--metrics-port", "0") as running:
        assert running.stderr is not None
        url = ""
        while not url:
            line = running.stderr.readline().decode()
            assert line
            url = line.partition("metrics are served on ")[2].strip()
        assert url.startswith("http://127.0.0.1:")
        wait_until(
            lambda: 'alkstore_outcomes_total{outcome="succeeded",queue="emails"} 1.0' in read(url), WAIT, "the ack"
        )
        assert 'alkstore_jobs{queue="emails",state="dead"} 0.0' in read(url)
        running.send_signal(signal.SIGTERM)
        assert 0 == running.wait(WAIT)
    with pytest.raises(URLError):
        read(url)


def read(url: str) -> str:
    with urlopen(url, timeout=WAIT) as answer:  # noqa: S310 - the worker's own
        return answer.read().decode()


def test_metrics_that_cannot_be_served_are_refused(cli: Cli, store: Store, tmp_path: Path) -> None:
    """A port that somebody has, and an extra that isn't installed: each on one line, and nothing is claimed."""
    store.queue("emails").enqueue("ada")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        complain = refused(cli, "--metrics-port", port)
    assert f"metrics can't be served on 127.0.0.1 port {port}: " in complain
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('gone', name='prometheus_client')")
    assert "pip install 'alkstore[prometheus]'" in refused(cli, "--metrics-port", "0")
    assert 1 == store.queue("emails").stats().ready


def refused(cli: Cli, *options: str) -> str:
    with cli.start("worker", "shop_jobs:handlers", "--until-idle", *options) as running:
        _, complaint = running.communicate(timeout=WAIT)
    assert 2 == running.returncode, complaint
    assert 1 == complaint.count(b"\n")
    return complaint.decode()
