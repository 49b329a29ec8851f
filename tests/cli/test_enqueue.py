"""`alkstore enqueue` and `alkstore sweep`."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

import alkstore
from alkstore.options import JobOptions, QueueFields
from tests.cli.runs import COMMAND, Cli, environ


def test_a_job_is_enqueued_and_its_id_printed(store: alkstore.Store, cli: Cli) -> None:
    number = int(cli.done("enqueue", "mails", '{"to": "ada", "é": [1e16, 18446744073709551616, null]}'))
    job = store.get_job(number)
    assert job is not None
    assert ("mails", "json", {"to": "ada", "é": [1e16, 2**64, None]}) == (job.queue, job.codec, job.payload)
    assert {"id": number + 1, "queue": "mails"} == cli.json("enqueue", "mails", "1")


def test_what_is_not_given_is_as_in_the_library(store: alkstore.Store, cli: Cli) -> None:
    ours = store.queue("q").enqueue(1)
    theirs = int(cli.done("enqueue", "q", "1"))
    one, other = store.get_job(ours), store.get_job(theirs)
    assert one is not None
    assert other is not None
    for name in ("priority", "max_attempts", "visibility_timeout", "expires_at", "headers", "codec", "raw"):
        assert getattr(one, name) == getattr(other, name)


def test_every_option_is_stamped(store: alkstore.Store, cli: Cli) -> None:
    options = (
        "--priority -3 --expires 1d --max-attempts 1 --visibility-timeout 1.5m --retention 0 --header a=b=c --header d= "
        "--keep-result 1h"
    )
    number = int(cli.done("enqueue", "q", "1", *options.split(), "--run-at", "2030-01-31T09:00:00+01:00"))
    job = store.get_job(number)
    assert job is not None
    assert (-3, 1, timedelta(seconds=90)) == (job.priority, job.max_attempts, job.visibility_timeout)
    assert {"a": "b=c", "d": ""} == job.headers
    assert timedelta(hours=1) == job.keep_result
    assert datetime(2030, 1, 31, 8, tzinfo=UTC) == job.run_at
    assert job.expires_at is not None
    assert timedelta(days=1) == job.expires_at - job.created_at
    delayed = store.get_job(int(cli.done("enqueue", "q", "1", "--delay", "2h")))
    assert delayed is not None
    assert timedelta(hours=2) == delayed.run_at - delayed.created_at
    assert 2 == cli("enqueue", "q", "1", "--run-at", "2030-01-31T09:00:00").exit_code, "without a time zone"


def test_backoff_and_retention_are_stamped(store: alkstore.Store, cli: Cli) -> None:
    cli.done("enqueue", "q", "1", "--backoff-base", "3600", "--retention", "0s")
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    assert handle.retry()
    job = store.get_job(handle.id)
    assert job is not None
    assert timedelta(seconds=1_790) < job.run_at - store.health().now < timedelta(seconds=3_610)
    assert store.queue("q").cancel(handle.id)
    cli.done("enqueue", "q", "1", "--max-attempts", "1", "--retention", "0s")
    doomed = store.queue("q").claim_one("w")
    assert doomed is not None
    assert doomed.fail()
    cli.done("sweep", "q")
    assert store.get_job(doomed.id) is None


@pytest.mark.parametrize(
    ("arguments", "given", "payload"),
    [
        (["-"], b'{"a": 1}\n', {"a": 1}),
        ([], b"[1]", [1]),
        (["--text"], "é\n".encode(), "é\n"),
        (["--text", "[1]"], b"", "[1]"),
        (["--raw"], b"\xff\x00\n", b"\xff\x00\n"),
        (["--raw", "é\udcff"], b"", b"\xc3\xa9\xff"),
    ],
)
def test_a_payload_comes_from_the_argument_or_from_stdin(
    arguments: list[str], given: bytes, payload: object, store: alkstore.Store, cli: Cli
) -> None:
    job = store.get_job(int(cli.done("enqueue", "q", *arguments, given=given)))
    assert job is not None
    assert payload == job.payload


def test_many_lines_are_many_jobs_all_or_none(store: alkstore.Store, cli: Cli) -> None:
    lines = b"".join(b'{"n": %d}\n' % number for number in range(2_500))
    ids = [int(line) for line in cli.done("enqueue", "q", "--lines", "--priority", "1", given=lines).splitlines()]
    jobs = store.queue("q").jobs(limit=10_000)
    assert ids == [job.id for job in jobs]
    assert [{"n": number} for number in range(2_500)] == [job.payload for job in jobs]
    told = cli("enqueue", "q", "--lines", given=lines + b"{")
    assert (2, "") == (told.exit_code, told.stdout)
    assert "line 2501: payload is not JSON" in told.stderr
    assert 2_500 == store.queue("q").stats().ready
    assert ["a", ""] == [
        job.payload
        for document in cli.lines("enqueue", "texts", "--lines", "--text", given=b"a\n\n")
        if (job := store.get_job(document["id"])) is not None
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["q", "{"],
        ["q", "NaN"],
        ["q", '"\\ud800"'],
        ["q", "[" * 100_000],
        ["q", "9" * 5_000],
        ["q", "\udcff"],
        ["q", "\udcff", "--text"],
        ["q", "1", "--lines"],
        ["q", "1", "--header", "none"],
        ["q", "1", "--delay", "soon"],
        ["q", "1", "--run-at", "noon"],
        ["q", "1", "--priority", "2147483648"],
        ["q", "1", "--max-attempts", "0"],
        ["q", "1", "--visibility-timeout", "0"],
        ["q", "1", "--backoff-cap", "3601"],
        ["_q", "1"],
        ["", "1"],
        [],
    ],
    ids=lambda arguments: " ".join(arguments)[:20].encode("ascii", "backslashreplace").decode() or "nothing",
)
def test_a_wrong_argument_enqueues_nothing(arguments: list[str], sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    told = sqlite_cli("enqueue", *arguments)
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))
    assert [] == sqlite_store.queues()


def test_bytes_of_the_shell_arrive_as_they_are(store: alkstore.Store, cli: Cli) -> None:
    process = subprocess.run(
        [*map(os.fsencode, [*COMMAND, "enqueue", "q", "--raw", *cli.where]), b"\xff\xfe"],
        env=environ(),
        capture_output=True,
        check=True,
    )
    job = store.get_job(int(process.stdout))
    assert job is not None
    assert b"\xff\xfe" == job.payload


def test_a_sweep_buries_what_has_expired(store: alkstore.Store, cli: Cli) -> None:
    for name in ("a", "b"):
        store.queue(name).enqueue_many([1, 2], expires=timedelta(microseconds=1))
    store.queue("b").enqueue(3)
    assert "a: 2 moved to the dead\n2 in all\n" == cli.done("sweep", "a")
    assert {"queues": [{"queue": "a", "moved": 0}, {"queue": "b", "moved": 2}]} == cli.json("sweep")
    assert (2, 1) == (store.queue("b").stats().dead, store.queue("b").stats().ready)


def test_what_the_options_are_called_in_the_library_they_are_called_here(sqlite_cli: Cli) -> None:
    """None is missing."""
    told = sqlite_cli.done("enqueue", "--help")
    renamed = {"headers": "header", "dead_letter_retention": "retention", "backoff": "backoff-base"}
    for name in {*JobOptions.__annotations__, *QueueFields.__annotations__}:
        assert f"--{renamed.get(name, name).replace('_', '-')}" in told
