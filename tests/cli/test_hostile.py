"""What a terminal would obey, a browser run or rich take for markup is shown, wherever it comes from."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest

import alkstore
from alkstore.shell import printable
from tests.cli.runs import Cli, Terminal
from tests.integrations.places import Place

TITLE = "\x1b]0;pwn\x07"
"""Sets the title of a terminal's window."""

HOSTILE = f"<img src=x onerror=alert(1)>{TITLE}\x9b31m\x7f\u202egnp\u2028[bold red]x[/][link=file:///]y"

SPELT = r"<img src=x onerror=alert(1)>\x1b]0;pwn\x07\x9b31m\x7f\u202egnp\u2028[bold red]x[/][link=file:///]y"


def unseen(text: str) -> set[str]:
    """The characters that no output may hold, but for the line breaks and tabs that are the output's own."""
    return {found for found in text if unicodedata.category(found) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - {"\n", "\t"}


def rename(store: alkstore.Store, place: Place, table: str, column: str, job_id: int) -> None:
    """Write the hostile text where the front would not, or not without checking it."""
    mark, prefix = ("?", "alkstore_") if place.schema is None else ("%s", f"{place.schema}.")
    with store.transaction() as tx:
        tx.execute(f"UPDATE {prefix}{table} SET {column} = {mark} WHERE id = {mark}", (HOSTILE, job_id))


@pytest.fixture
def ids(store: alkstore.Store, place: Place) -> tuple[int, int, int]:
    """A processing job, a dead one, and one whose queue has the hostile name; hostile in all that they have."""
    queue = store.queue("q")
    first = queue.enqueue(HOSTILE, headers={HOSTILE: HOSTILE})
    handle = queue.claim_one("worker")
    assert handle is not None
    rename(store, place, "jobs", "worker_id", first)
    rename(store, place, "jobs", "last_error", first)
    second = store.queue("q", codec="raw").enqueue(HOSTILE.encode())
    doomed = queue.claim_one("worker")
    assert doomed is not None
    assert doomed.fail(HOSTILE)
    third = queue.enqueue(1)
    rename(store, place, "jobs", "queue", third)
    return first, second, third


COMMANDS: dict[str, list[str]] = {
    "check": ["check"],
    "stats": ["stats"],
    "stats of it": ["stats", HOSTILE],
    "top": ["top", "--count", "2", "--interval", "0"],
    "list": ["jobs", "list"],
    "list one queue": ["jobs", "list", "--queue", "q", "--limit", "1"],
    "list of it": ["jobs", "list", "--queue", HOSTILE],
    "show processing": ["jobs", "show", "FIRST"],
    "show dead": ["jobs", "show", "SECOND"],
    "show its queue": ["jobs", "show", "THIRD"],
    "cancel": ["jobs", "cancel", "THIRD"],
    "retry": ["jobs", "retry", "FIRST"],
    "retry all": ["jobs", "retry", "--all-dead", "--queue", HOSTILE],
    "retry it": ["jobs", "retry", HOSTILE],
    "purge": ["jobs", "purge", "--queue", HOSTILE, "--state", "dead"],
    "purge it": ["jobs", "purge", "--queue", "q", "--state", HOSTILE],
    "enqueue": ["enqueue", HOSTILE, "1"],
    "enqueue it": ["enqueue", "q", HOSTILE],
    "enqueue with it": ["enqueue", "q", "1", "--header", HOSTILE],
    "sweep": ["sweep"],
    "sweep it": ["sweep", HOSTILE],
    "listen": ["listen", HOSTILE],
    "notify": ["notify", HOSTILE],
    "migrate": ["migrate"],
    "no such command": [HOSTILE],
    "no such option": ["stats", f"--{HOSTILE}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_it_escaped(name: str, ids: tuple[int, int, int], cli: Cli) -> None:
    numbers: dict[str, str] = dict(zip(("FIRST", "SECOND", "THIRD"), map(str, ids), strict=True))
    arguments = [numbers.get(argument, argument) for argument in COMMANDS[name]]
    for told in (cli(*arguments, "--json"), cli(*arguments)):
        assert told.exit_code in {0, 1, 2}
        assert set() == unseen(told.stdout + told.stderr)
        assert len(told.stderr.splitlines()) <= 1, "an error is one line"


def test_lists_and_records_have_all_of_it(ids: tuple[int, int, int], cli: Cli) -> None:
    """Nothing is dropped: what is escaped can be read, markup included."""
    listed = cli("jobs", "list").stdout
    shown = [cli.done("jobs", "show", str(number)) for number in ids]
    assert listed.count(SPELT) >= 4  # of the one job the worker and the error, of the other the payload and the error
    assert f"worker              {SPELT}\n" in shown[0]
    assert f"last error          {SPELT}\n" in shown[0]
    assert f"header              {SPELT}={SPELT}\n" in shown[0]
    assert f"payload             {SPELT}\n" in shown[1]
    assert f"queue               {SPELT}\n" in shown[2]


def test_a_queue_whose_name_cannot_be_is_told_of_and_passed_over(ids: tuple[int, int, int], cli: Cli) -> None:
    for command in (["stats"], ["jobs", "list"], ["sweep"]):
        told = cli(*command)
        assert 1 == told.exit_code
        assert "passed over" in told.stderr
        assert r"\x1b]0;pwn\x07" in told.stderr
        assert re.search(r"^ *q\b|  q  ", told.stdout, re.MULTILINE), "the others are there"


def test_json_escapes_it_and_gives_it_back(ids: tuple[int, int, int], cli: Cli) -> None:
    """Neither a terminal nor a page that the document lands in gets to see anything of it raw."""
    for number, keys in zip(ids, (["payload", "worker_id", "last_error"], ["payload_text"], ["queue"]), strict=True):
        text = cli.done("jobs", "show", str(number), "--json")
        assert text.isascii()
        assert set("<>&\x7f\x1b") & set(text) == set()
        document: dict[str, Any] = json.loads(text)
        assert [HOSTILE] * len(keys) == [document[key] for key in keys]
    assert {HOSTILE: HOSTILE} == json.loads(cli.done("jobs", "show", str(ids[0]), "--json"))["headers"]


def test_a_line_break_cannot_pass_for_a_field(store: alkstore.Store, cli: Cli) -> None:
    number = store.queue("q").enqueue("x")
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    assert handle.fail("first\nstate               pending\r\nlast")
    lines = cli.done("jobs", "show", str(number)).splitlines()
    assert ["state               dead"] == [line for line in lines if line.startswith("state")]
    assert "                    state               pending\\r" in lines
    assert 2 == len(cli.done("jobs", "list").splitlines())


def test_a_terminal_gets_none_of_it(ids: tuple[int, int, int], cli: Cli) -> None:
    """On a real one: colours are rich's own, and nothing else is obeyed."""
    for arguments in (["jobs", "list"], ["jobs", "show", str(ids[0])], ["stats"], ["top", "--count", "1"]):
        terminal = Terminal(cli, *arguments)
        assert terminal.end() in {0, 1}
        written = terminal.written.decode()
        assert "\x1b]" not in written
        assert "\x07" not in written
        assert "\x9b" not in written
        assert "\u202e" not in written
        assert r"\x1b]0;pwn" in written or arguments[0] == "top"


def test_what_is_listened_to_is_escaped(store: alkstore.Store, cli: Cli) -> None:
    process = cli.start("listen", "c\u202e", "--count", "1")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stderr.readline() == b"listening to c\\u202e\n"
    store.notify("c\u202e", HOSTILE)
    out, _ = process.communicate(timeout=30)
    assert out.decode() == f"c\\u202e\t{SPELT}\n"
    assert 0 == process.returncode


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("plain, Ünïcödé 日本 🎉 \\ [b]", "plain, Ünïcödé 日本 🎉 \\ [b]"),
        ("\0\t\n\r\x1b\x7f\x80\x9f", r"\x00\t\n\r\x1b\x7f\x80\x9f"),
        ("\u200b\u200e\u202a\u202e\u2066\u2069\ufeff\xad", r"\u200b\u200e\u202a\u202e\u2066\u2069\ufeff\xad"),
        ("\ud800\udfff\U000e0041\ufffe", r"\ud800\udfff\U000e0041\ufffe"),
        ("no-break\xa0space", "no-break\xa0space"),
    ],
)
def test_what_is_not_plainly_visible_is_spelt_out(text: str, spelt: str) -> None:
    assert spelt == printable(text)


def test_an_error_of_the_database_is_one_line(sqlite_cli: Cli, sqlite_place: Place) -> None:
    sqlite_place.path.write_bytes(b"not a database at all\n" * 1000)
    told = sqlite_cli("stats")
    assert (1, "", 1) == (told.exit_code, told.stdout, told.stderr.count("\n"))
