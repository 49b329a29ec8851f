"""Jobs, listed by pages, looked at one by one, cancelled, retried and purged."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, LiteralString

import pytest
from click.testing import CliRunner

import alkstore
from alkstore.cli import jobs as commands
from alkstore.cli.app import app
from alkstore.protocols import Store
from tests.cli.runs import COMMAND, Cli, environ
from tests.integrations.places import Place


def bury(store: alkstore.Store, name: str, count: int, error: str = "boom") -> list[int]:
    """Make dead jobs, and return their ids."""
    queue = store.queue(name)
    ids = queue.enqueue_many(range(count))
    for handle in queue.claim_batch("w", count):
        assert handle.fail(error)
    return ids


# --- list ----------------------------------------------------------------------------------------------------------


def test_a_list_is_in_the_order_of_ids_across_queues(store: alkstore.Store, cli: Cli) -> None:
    ids = [store.queue(name).enqueue(name) for name in ("b", "a", "b", "c", "a")]
    assert ids == [job["id"] for job in cli.lines("jobs", "list")]
    assert [ids[1], ids[4]] == [job["id"] for job in cli.lines("jobs", "list", "--queue", "a")]
    assert [*ids[:3], ids[4]] == [job["id"] for job in cli.lines("jobs", "list", "--queue", "a", "--queue", "b")]


def test_a_list_ends_at_its_limit_and_says_how_to_go_on(store: alkstore.Store, cli: Cli) -> None:
    ids = store.queue("q").enqueue_many(range(5))
    told = cli("jobs", "list", "--limit", "2")
    assert (0, 3) == (told.exit_code, len(told.stdout.splitlines()))
    assert f"alkstore: there are more: --after {ids[1]}, or --all\n" == told.stderr
    assert ids[2:] == [job["id"] for job in cli.lines("jobs", "list", "--after", str(ids[1]), "--limit", "3")]
    assert ids == [job["id"] for job in cli.lines("jobs", "list", "--limit", "5")]
    assert ids[4:] == [job["id"] for job in cli.lines("jobs", "list", "--all", "--after", str(ids[3]))]


def test_all_reads_page_after_page(store: alkstore.Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PAGE", 10)
    ids = sorted([*store.queue("a").enqueue_many(range(25)), *store.queue("b").enqueue_many(range(35))])
    assert ids == [job["id"] for job in cli.lines("jobs", "list", "--all")]


def test_a_list_has_only_the_state_named(store: alkstore.Store, cli: Cli) -> None:
    dead = bury(store, "q", 2)
    waiting = store.queue("q").enqueue_many(range(2))
    working = store.queue("p").enqueue(1)
    assert store.queue("p").claim_one("w")
    for state, ids in (("dead", dead), ("pending", waiting), ("processing", [working])):
        assert ids == [job["id"] for job in cli.lines("jobs", "list", "--state", state)]


def test_a_line_has_what_matters(store: alkstore.Store, cli: Cli) -> None:
    bury(store, "mails", 1, "no such address")
    heading, line = cli.done("jobs", "list").splitlines()
    assert heading.split() == ["id", "state", "tries", "run", "at", "queue", "worker,", "error,", "payload"]
    fields = line.split()
    assert ["dead", "1/5", "mails", "no", "such", "address", "0"] == [fields[1], fields[2], *fields[5:]]


def test_megabytes_take_one_short_line(store: alkstore.Store, cli: Cli) -> None:
    store.queue("q").enqueue("日" * 1_000_000)
    store.queue("q", codec="raw").enqueue(b"\xff" * 1_000_000)
    lines = cli.done("jobs", "list").splitlines()
    assert lines[1].endswith("日日...")
    assert lines[2].endswith("(raw, 1000000 bytes)")
    assert max(map(len, lines)) < 200


def fill_with_dead(store: alkstore.Store, place: Place, count: int) -> None:
    """Write dead rows from the back door, which is the quick way to have very many."""
    series: LiteralString
    if place.schema is None:
        table = "alkstore_dead_jobs"
        series = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s"
    else:
        table = f"{place.schema}.dead_jobs"
        series = "SELECT n FROM generate_series(1, {count}) AS s(n)"
    payload = "CAST('{}' AS BLOB)" if place.schema is None else r"'\x7b7d'::bytea"
    with store.transaction() as tx:
        tx.execute(
            f"INSERT INTO {table} (id, queue, priority, run_at, attempts, max_attempts, created_at, died_at,"
            " visibility_timeout, backoff_base, backoff_cap, codec, headers, last_error, payload)"
            f" SELECT n, 'q', 0, 0, 5, 5, 0, 0, 60000000, 5, 3600, 'json', '{{}}', 'boom', {payload}"
            f" FROM ({series.format(count=count)}) AS t"
        )


MEASURED = """
import re, resource, sys
from pathlib import Path
from alkstore.cli.app import app
try:
    app(sys.argv[1:])
finally:
    # What resource says on Linux includes the process that this one was forked from.
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1] if status.exists() else (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # bytes, on macOS
    )
    print(peak, file=sys.stderr)
"""


def measure(cli: Cli, *arguments: str) -> tuple[int, int]:
    """Return how many lines a command writes, and how many KiB of memory it takes at its peak."""
    told = subprocess.run(
        [COMMAND[0], "-c", MEASURED, *arguments, *cli.where],
        env=environ(),
        capture_output=True,
        check=True,
        timeout=170,
    )
    return told.stdout.count(b"\n"), int(told.stderr.split()[-1])


def test_a_list_of_300_000_dead_jobs_takes_no_more_memory_than_a_short_one(
    store: alkstore.Store, place: Place, cli: Cli
) -> None:
    fill_with_dead(store, place, 300_000)
    few, little = measure(cli, "jobs", "list", "--state", "dead", "--all", "--after", "295000", "--json")
    many, much = measure(cli, "jobs", "list", "--state", "dead", "--all", "--json")
    assert (5_000, 300_000) == (few, many)
    assert much < little + 4_096


# --- show ----------------------------------------------------------------------------------------------------------


def test_a_job_is_found_in_whatever_queue(store: alkstore.Store, cli: Cli) -> None:
    number = store.queue("q", visibility_timeout=90).enqueue(
        {"to": "ada", "n": 2**70}, priority=3, headers={"trace": "é"}, expires=timedelta(days=1), max_attempts=2
    )
    assert store.queue("q").claim_one("worker-1")
    job: dict[str, Any] = cli.json("jobs", "show", str(number))
    found = store.get_job(number)
    assert found is not None
    assert found.claim_expires_at is not None
    assert {
        "id": number,
        "queue": "q",
        "state": "processing",
        "codec": "json",
        "payload": {"to": "ada", "n": 2**70},
        "headers": {"trace": "é"},
        "priority": 3,
        "attempts": 1,
        "max_attempts": 2,
        "visibility_timeout": 90.0,
        "worker_id": "worker-1",
        "claim_expires_at": found.claim_expires_at.isoformat(),
        "last_error": None,
        "died_at": None,
        "keep_result": None,
    } == {key: value for key, value in job.items() if key not in {"created_at", "run_at", "expires_at"}}
    text = cli.done("jobs", "show", str(number))
    assert 'payload             {"to":"ada","n":1180591620717411303424}\n' in text
    assert "worker              worker-1\n" in text


@pytest.mark.parametrize(
    ("codec", "raw", "key", "value"),
    [
        ("raw", b"plain \xc3\xa9", "payload_text", "plain é"),
        ("raw", b"\xff\x00", "payload_base64", base64.b64encode(b"\xff\x00").decode()),
        ("json", b"[1,", "payload_text", "[1,"),
        ("json", b"[NaN]", "payload_text", "[NaN]"),
        ("json", b"1e999", "payload_text", "1e999"),
        ("json", b"\xff", "payload_base64", "/w=="),
        ("json", b'"\\ud800"', "payload", "\ud800"),
        ("pickle", b"cos\nsystem\n", "payload_text", "cos\nsystem\n"),
    ],
)
def test_a_payload_says_what_it_is(
    codec: str, raw: bytes, key: str, value: object, store: alkstore.Store, place: Place, cli: Cli
) -> None:
    """Only JSON is decoded, and whatever lies in the table makes a document that any reader of JSON takes."""
    number = store.queue("q", codec="raw").enqueue(b"")
    mark, prefix = ("?", "alkstore_") if place.schema is None else ("%s", f"{place.schema}.")
    with store.transaction() as tx:
        tx.execute(f"UPDATE {prefix}jobs SET codec = {mark}, payload = {mark} WHERE id = {mark}", (codec, raw, number))
    job = cli.json("jobs", "show", str(number))
    assert {"codec": codec, key: value} == {name: job[name] for name in job if name.startswith(("codec", "payload"))}
    cli.done("jobs", "show", str(number))
    cli.done("jobs", "list")


def test_of_a_job_that_is_gone_its_result_is_shown(store: alkstore.Store, cli: Cli) -> None:
    """What it was acked with, or that it was cancelled; while it is there, how long it will be kept."""
    queue = store.queue("q")
    number = queue.enqueue("work", keep_result=90)
    assert 90.0 == cli.json("jobs", "show", str(number))["keep_result"]
    assert "keeps result        1m 30s\n" in cli.done("jobs", "show", str(number))
    handle = queue.claim_one("worker-1")
    assert handle is not None
    assert handle.ack(result={"text": "\x1b]0;title\x07"})
    result = store.result(number)
    assert result is not None
    assert result.expires_at is not None
    assert {
        "id": number,
        "queue": "q",
        "state": None,
        "outcome": "succeeded",
        "codec": "json",
        "result": {"text": "\x1b]0;title\x07"},
        "attempts": 1,
        "worker_id": "worker-1",
        "finished_at": result.finished_at.isoformat(),
        "kept_until": result.expires_at.isoformat(),
    } == cli.json("jobs", "show", str(number))
    text = cli.done("jobs", "show", str(number))
    assert "outcome             succeeded\n" in text
    assert "\x1b" not in text
    cancelled = queue.enqueue("work", keep_result=90)
    cli.done("jobs", "cancel", str(cancelled))
    shown = cli.json("jobs", "show", str(cancelled))
    assert ("cancelled", None, False) == (shown["outcome"], shown["codec"], "result" in shown)
    assert "result              -\n" in cli.done("jobs", "show", str(cancelled))


@pytest.mark.parametrize("command", ["show", "cancel", "retry"])
@pytest.mark.parametrize("number", [7, 2**63, -1])
def test_a_job_that_is_not_there_is_said_not_to_be(
    command: str, number: int, store: alkstore.Store, place: Place, cli: Cli
) -> None:
    arguments = ["jobs", command, *cli.where, "--", str(number)]
    told = CliRunner().invoke(app, arguments)
    assert (1, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))


# --- cancel and retry ----------------------------------------------------------------------------------------------


def test_one_job_is_cancelled_without_further_ado(store: alkstore.Store, cli: Cli) -> None:
    number = store.queue("q").enqueue(1)
    assert f"cancelled job {number}\n" == cli.done("jobs", "cancel", str(number))
    assert store.get_job(number) is None


def test_several_jobs_are_cancelled_only_with_yes(store: alkstore.Store, cli: Cli) -> None:
    ids = [str(number) for number in store.queue("q").enqueue_many(range(3))]
    told = cli("jobs", "cancel", *ids)
    assert (2, "", "alkstore: this cancels 3 jobs; say so with --yes\n") == (told.exit_code, told.stdout, told.stderr)
    assert 3 == store.queue("q").stats().ready
    cli.done("jobs", "cancel", *ids, "--yes")
    assert 0 == store.queue("q").stats().ready


def test_a_dead_job_is_not_cancelled_and_a_live_one_not_retried(store: alkstore.Store, cli: Cli) -> None:
    (dead,) = bury(store, "q", 1)
    live = store.queue("q").enqueue(1)
    told = cli("jobs", "cancel", str(dead))
    assert (1, f"alkstore: not cancelled: job {dead}: it was dead\n") == (told.exit_code, told.stderr)
    told = cli("jobs", "retry", str(live), "--json")
    assert (1, {"id": live, "retried": False}) == (told.exit_code, json.loads(told.stdout))


def test_one_dead_job_is_retried_without_further_ado(store: alkstore.Store, cli: Cli) -> None:
    (dead,) = bury(store, "q", 1)
    assert {"id": dead, "retried": True} == cli.json("jobs", "retry", str(dead))
    job = store.get_job(dead)
    assert job is not None
    assert (alkstore.State.PENDING, 0) == (job.state, job.attempts)


def test_all_dead_jobs_of_a_queue_are_retried_in_bounded_batches(
    store: alkstore.Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(store, "q", 25)
    bury(store, "other", 2)
    told = cli("jobs", "retry", "--all-dead", "--queue", "q")
    assert (2, "alkstore: this retries 25 dead jobs of the queue 'q'; say so with --yes\n") == (
        told.exit_code,
        told.stderr,
    )
    assert 25 == store.queue("q").stats().dead
    monkeypatch.setattr(commands, "PAGE", 10)
    batches: list[int] = []
    whole = commands._retry_page

    def counted(store: Store, name: str, ids: Sequence[int]) -> int:
        batches.append(len(ids))
        return whole(store, name, ids)

    monkeypatch.setattr(commands, "_retry_page", counted)
    assert {"queue": "q", "retried": 25} == cli.json("jobs", "retry", "--all-dead", "--queue", "q", "--yes")
    assert [10, 10, 5] == batches
    assert (25, 0, 2) == (
        store.queue("q").stats().ready,
        store.queue("q").stats().dead,
        store.queue("other").stats().dead,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["1", "--all-dead", "--queue", "q", "--yes"],
        ["--all-dead", "--yes"],
        ["--queue", "q", "--yes"],
        ["1", "--queue", "q"],
    ],
)
def test_retry_is_given_ids_or_a_queue(arguments: list[str], store: alkstore.Store, cli: Cli) -> None:
    bury(store, "q", 1)
    assert 2 == cli("jobs", "retry", *arguments).exit_code
    assert 1 == store.queue("q").stats().dead


# --- purge ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "processing", "dead"])
def test_a_purge_says_how_many_and_wants_a_yes(state: str, store: alkstore.Store, cli: Cli) -> None:
    bury(store, "q", 3)
    queue = store.queue("q")
    queue.enqueue_many(range(2))
    assert 2 == len(queue.claim_batch("w", 2))
    queue.enqueue(1)
    queue.enqueue(1, delay=60)
    queue.enqueue(1, delay=60)
    queue.enqueue(1, delay=60)
    counts = {"pending": 4, "processing": 2, "dead": 3}
    before = queue.stats()
    told = cli("jobs", "purge", "--queue", "q", "--state", state)
    assert (2, "") == (told.exit_code, told.stdout)
    assert f"alkstore: this deletes {counts[state]} {state} jobs of the queue 'q'; say so with --yes\n" == told.stderr
    after = queue.stats()
    assert (before.ready, before.processing, before.dead) == (after.ready, after.processing, after.dead)
    assert f"purged {counts[state]} jobs of the queue 'q'\n" == cli.done(
        "jobs", "purge", "--queue", "q", "--state", state, "--yes"
    )
    left = {found: len(queue.jobs(found)) for found in counts}
    assert {**counts, state: 0} == left


@pytest.mark.parametrize("arguments", [["--queue", "q", "--yes"], ["--state", "dead", "--yes"], ["--yes"]])
def test_a_purge_names_its_queue_and_state(arguments: list[str], store: alkstore.Store, cli: Cli) -> None:
    bury(store, "q", 1)
    told = cli("jobs", "purge", *arguments)
    assert (2, 1) == (told.exit_code, len(told.stderr.splitlines()))
    assert 1 == store.queue("q").stats().dead
