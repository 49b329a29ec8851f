"""`alkstore stats` and `alkstore top`."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

import alkstore
from alkstore.cli import stats as commands
from alkstore.cli.output import Output
from alkstore.cli.stats import Look, screen_of
from alkstore.protocols import Store
from alkstore.records import QueueStats
from tests.cli.runs import Cli, Terminal


@pytest.fixture
def busy(store: alkstore.Store) -> alkstore.Store:
    """Two queues with something in each state."""
    queue = store.queue("b")
    queue.enqueue_many(range(5))
    first, second = queue.claim_batch("w", 2)
    assert first.fail()
    assert second.id
    queue.enqueue(1, delay=3600)
    store.queue("a").enqueue(1)
    return store


def test_the_counts_are_those_of_the_library(busy: alkstore.Store, cli: Cli) -> None:
    rows = [line.split() for line in cli.done("stats").splitlines()]
    assert ["queue", "ready", "scheduled", "processing", "dead", "oldest", "ready"] == rows[0]
    assert [["a", "1", "0", "0", "0"], ["b", "3", "1", "1", "1"]] == [row[:5] for row in rows[1:]]
    assert ["b", "3", "1", "1", "1"] == cli.done("stats", "b").splitlines()[1].split()[:5]
    (found,) = cli.json("stats", "b")["queues"]
    assert 0 <= found.pop("oldest_ready_age") < 300
    assert {"queue": "b", "ready": 3, "scheduled": 1, "processing": 1, "dead": 1} == found


def test_a_queue_without_jobs_is_counted_where_it_is_named(busy: alkstore.Store, cli: Cli) -> None:
    (found,) = cli.json("stats", "nothing")["queues"]
    empty = {"queue": "nothing", "ready": 0, "scheduled": 0, "processing": 0, "dead": 0, "oldest_ready_age": None}
    assert empty == found


def test_nothing_is_cut_where_there_is_no_terminal(store: alkstore.Store, cli: Cli) -> None:
    store.queue("日" * 200).enqueue(1)
    assert "日" * 200 in cli.done("stats")
    assert "日" * 200 in cli.done("jobs", "list")


def test_no_colour_goes_into_a_pipe(busy: alkstore.Store, cli: Cli) -> None:
    for arguments in (["stats"], ["jobs", "list"], ["check"], ["top"]):
        out, _ = cli.start(*arguments).communicate(timeout=30)
        assert out
        assert b"\x1b" not in out


def test_top_looks_once_where_there_is_no_terminal(busy: alkstore.Store, cli: Cli) -> None:
    process = cli.start("top")
    out, _ = process.communicate(timeout=30)
    assert (0, 3) == (process.returncode, len(out.splitlines()))
    assert 2 == len(cli.json("top")["queues"])


def test_top_looks_as_often_as_it_is_told(busy: alkstore.Store, cli: Cli) -> None:
    looks = cli.lines("top", "--count", "3", "--interval", "0.05", "a")
    assert 3 == len(looks)
    assert looks[0]["at"] < looks[1]["at"] < looks[2]["at"]


def test_top_is_live_on_a_terminal(busy: alkstore.Store, cli: Cli) -> None:
    """It shows what changes, until Ctrl-C, and leaves the terminal as it was."""
    terminal = Terminal(cli, "top", "--interval", "0.1")
    terminal.read_until(b"queues: 2")
    assert b"\x1b[?1049h" in terminal.written
    busy.queue("c").enqueue(1)
    terminal.read_until(b"queues: 3")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert 130 == terminal.end()
    assert terminal.written.rindex(b"\x1b[?1049l") > terminal.written.rindex(b"\x1b[?1049h")
    assert b"\x1b[?25h" in terminal.written
    assert b"Traceback" not in terminal.written


def test_top_leaves_the_terminal_as_it_was_after_sigterm(busy: alkstore.Store, cli: Cli) -> None:
    terminal = Terminal(cli, "top")
    terminal.read_until(b"queues: 2")
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert 143 == terminal.end()
    assert b"\x1b[?1049l" in terminal.written


def test_top_is_plain_on_a_terminal_that_can_do_nothing(busy: alkstore.Store, cli: Cli) -> None:
    terminal = Terminal(cli, "top", "--count", "1", TERM="dumb")
    assert 0 == terminal.end()
    assert b"\x1b" not in terminal.written
    assert b"scheduled" in terminal.written


def test_top_as_json_on_a_terminal_is_a_document_a_line(busy: alkstore.Store, cli: Cli) -> None:
    terminal = Terminal(cli, "top", "--json", "--count", "2", "--interval", "0")
    assert 0 == terminal.end()
    assert [2, 2] == [len(json.loads(line)["queues"]) for line in terminal.written.splitlines()]


def look(count: int) -> Look:
    """Queues, the first the least busy."""
    queues = [
        (f"q{number}", QueueStats(ready=number, scheduled=0, processing=0, dead=0, oldest_ready_age=timedelta(1)))
        for number in range(count)
    ]
    return Look(datetime.now(UTC), queues, [])


def test_a_screen_has_the_busiest_and_says_how_many_more_there_are() -> None:
    console = Console(width=80, height=10, record=True, file=io.StringIO())
    console.print(screen_of(look(30), ["the server\nis \x1b[31maway"], 6))
    lines = console.export_text().splitlines()
    assert r"the server is \x1b[31maway" == lines[0].strip()
    assert ["q29", "q28", "q27", "q26", "q25"] == [found[1] for line in lines if (found := re.match(r"(q\d+) ", line))]
    assert "and 25 more" == lines[-1].strip()


def test_top_shows_an_outage_and_sits_it_out(sqlite_store: alkstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_store.queue("q").enqueue(1)
    answers = iter([alkstore.EngineUnavailableError("the server is away"), None])

    def take_a_look(store: Store, names: Sequence[str]) -> Look:
        answer = next(answers)
        if answer is not None:
            raise answer
        return whole(store, names)

    whole = commands.take_a_look
    monkeypatch.setattr(commands, "take_a_look", take_a_look)
    screen = io.StringIO()
    out = Output(as_json=False)
    out.console = Console(file=screen, force_terminal=True, width=80, height=10)
    commands.watch(out, sqlite_store, [], 0, 2)
    first, second = screen.getvalue().split("queues: 1")
    assert "the server is away" in first
    assert "the server is away" not in second
