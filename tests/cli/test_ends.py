"""How commands end: exit codes, one line of what is wrong, pipes, and what is there without the extra."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.testing import CliRunner

import alkstore
from alkstore.cli.app import app
from tests.cli.runs import COMMAND, ROOT, Cli, environ
from tests.support.waiting import wait_until


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["jobs", "nonsense"], ["stats", "--nonsense"]])
def test_a_wrong_argument_is_one_line(arguments: list[str]) -> None:
    told = CliRunner().invoke(app, arguments)
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))
    assert told.stderr.startswith("alkstore: ")
    assert "nonsense" in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["top", "--count", "2", "--interval", "99999999999d"],
        ["jobs", "list", "--limit", "99999999999999999999"],
        ["worker", ".shop:handlers"],
    ],
)
def test_an_argument_beyond_all_measure_is_one_line(arguments: list[str], cli: Cli) -> None:
    told = cli(*arguments)
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))


@pytest.mark.parametrize("arguments", [[], ["jobs"]])
def test_without_a_command_there_is_help(arguments: list[str]) -> None:
    told = CliRunner().invoke(app, arguments)
    assert (2, "") == (told.exit_code, told.stdout)
    assert "Commands:" in told.stderr


def test_help_and_version_are_no_failures() -> None:
    assert 0 == CliRunner().invoke(app, ["--help"]).exit_code
    assert 0 == CliRunner().invoke(app, ["jobs", "list", "-h"]).exit_code


def test_an_engine_that_is_not_installed_is_named() -> None:
    told = CliRunner().invoke(app, ["stats", "--url", "nothing://x"])
    assert (1, 1) == (told.exit_code, len(told.stderr.splitlines()))
    assert "sqlite" in told.stderr


def test_a_reader_that_has_enough_ends_a_list_quietly(store: alkstore.Store, cli: Cli) -> None:
    store.queue("q").enqueue_many(range(5_000))
    for how in ([], ["--json"]):
        process = cli.start("jobs", "list", "--all", *how)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert 141 == process.wait(30)
        assert b"" == process.stderr.read()
        process.stderr.close()


def test_a_reader_that_is_gone_from_the_start_is_no_matter(sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    """What is written last is written as the process ends."""
    for arguments in (["stats"], ["check", "--json"], ["enqueue", "q", "1"], ["stats", "--help"]):
        process = subprocess.run(
            ["sh", "-c", f"{{ {' '.join((*COMMAND, *arguments))}; echo $? >&2; }} | true"],
            env=environ(ALKSTORE_URL=sqlite_cli.where[1]),
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stderr in {"141\n", "0\n"}, "and not a word more"
    assert 1 == sqlite_store.queue("q").stats().ready


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [(">&-", ["stats"], 0), (">&-", ["check", "--json"], 0), ("<&-", ["enqueue", "q"], 2), ("2>&-", ["nonsense"], 2)],
)
def test_a_stream_that_is_closed_from_the_start_is_no_matter(
    cli: Cli, store: alkstore.Store, closed: str, arguments: list[str], code: int
) -> None:
    """Nor does the database's file take its number."""
    process = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *COMMAND, *arguments, *([] if arguments == ["nonsense"] else cli.where)],
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert code == process.returncode, process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_a_failure(sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    for arguments in (["stats"], ["stats", "--json"]):
        with Path("/dev/full").open("wb") as full:
            process = sqlite_cli.start(*arguments, stdout=full)
            _, errors = process.communicate(timeout=30)
        assert (1, b"alkstore: No space left on device\n") == (process.returncode, errors)


def test_an_encoding_without_the_character_gets_an_escape(sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    sqlite_store.queue("日本").enqueue("é")
    for arguments in (["stats"], ["jobs", "list"]):
        process = sqlite_cli.start(*arguments, env=environ(PYTHONIOENCODING="ascii"))
        out, errors = process.communicate(timeout=30)
        assert (0, b"") == (process.returncode, errors)
        assert rb"\u65e5\u672c" in out


def unread(pipe: int) -> int:
    """Return how many bytes lie in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_ctrl_c_while_it_waits_for_the_payload_ends_it_quietly(sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    mine, theirs = os.pipe()
    process = sqlite_cli.start("enqueue", "q", stdin=mine)
    os.write(theirs, b"[1,")
    wait_until(lambda: unread(mine) == 0, 30, "the payload to be read")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    os.close(mine)
    os.close(theirs)
    assert (130, b"", b"") == (process.returncode, out, errors.strip())
    assert [] == sqlite_store.queues()


def without(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which the modules aren't installed."""
    (folder / "hidden").mkdir()
    refuse = "import sys\n" + "".join(f"sys.modules[{module!r}] = None\n" for module in modules)
    (folder / "hidden" / "sitecustomize.py").write_text(refuse)
    return environ(PYTHONPATH=os.pathsep.join((str(folder / "hidden"), str(ROOT))))


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [*COMMAND, "stats"], env=without(tmp_path, missing), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (2, "", 1) == (told.returncode, told.stdout, len(told.stderr.splitlines()))
    assert "pip install 'alkstore[cli]'" in told.stderr


def test_migrate_needs_no_extra(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "alkstore", "migrate", "--url", "sqlite:///jobs.db"],
        env=without(tmp_path, "click", "rich", "psycopg"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith("sqlite: the schema is at version ")


def test_both_command_lines_migrate_alike(tmp_path: Path) -> None:
    def run(*command: str) -> tuple[int, str, str]:
        told = subprocess.run(
            [sys.executable, "-m", *command], env=environ(), cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return told.returncode, told.stdout, told.stderr

    for url in ("sqlite:///a.db", "nothing://x", "no url", "sqlite:///no/such/folder/a.db", "sqlite:///a\x1bb.db"):
        assert run("alkstore", "migrate", "--url", url) == run("alkstore.cli", "migrate", "--url", url)


def test_the_core_never_imports_the_command_line() -> None:
    modules = "('click', 'rich', 'alkstore.cli')"
    script = (
        f"import alkstore, alkstore.shell, alkstore.__main__, sys; print([m for m in {modules} if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], env=environ(), capture_output=True, text=True, check=True)
    assert "[]\n" == told.stdout
    for path in (ROOT / "alkstore").rglob("*.py"):
        if path.relative_to(ROOT / "alkstore").parts[0] != "cli":
            assert "alkstore.cli" not in path.read_text(encoding="utf-8"), path.name
