"""The main job does what it says: every file exactly once, whatever its name, and although a worker is killed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

import psycopg
import pytest

from tests.support.waiting import wait_until

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "index_files.py"
RIGHT = "Checked against a direct walk: every file exactly once, every hash and count right."


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=300,
    )


def figures(output: str) -> dict[str, int]:
    """The table at the end of the output."""
    lines = output.splitlines()
    (rule,) = (number for number, line in enumerate(lines) if re.fullmatch(r"[- ]*-[- ]*", line))
    headings = re.split(r" {2,}", lines[rule - 1].strip())
    return dict(zip(headings, map(int, lines[rule + 1].split()), strict=True))


@pytest.fixture
def odd_files(tmp_path: Path) -> Path:
    """A directory of some hundred files, some of them such as no program expects; 305 are regular ones."""
    folder = tmp_path / "odd files"
    for number in range(300):
        path = folder / f"{number % 7}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"line\n" * number)
    (folder / "empty").touch()
    (folder / "no newline at the end").write_bytes(b"a\nb")
    (folder / "two\nlines 'and' \"quotes\" %s ? \x1b[31m").write_text("x")
    (folder / os.fsdecode(b"not \xff UTF-8")).write_text("y")
    (folder / "secret").write_text("z")
    (folder / "secret").chmod(0)
    (folder / "link").symlink_to("empty")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "round and round").symlink_to(folder)
    os.mkfifo(folder / "fifo")
    return folder


def leftovers(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'alkstore%'").fetchall()
    return [name for (name,) in found]


def check_run(told: subprocess.CompletedProcess[str]) -> None:
    assert told.stderr == ""
    assert RIGHT in told.stdout
    assert told.returncode == 0
    assert "killed in the middle of a job" in told.stdout
    table = figures(told.stdout)
    assert (table["files"], table["processed"]) == (305, 305)
    assert table["reclaimed"] == 1
    assert table["attempts"] == 306
    assert "\x1b" not in told.stdout, "no escapes where there is no terminal"


def test_a_killed_worker_costs_nothing_on_sqlite(odd_files: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    check_run(run(odd_files, TMPDIR=str(temporary)))
    assert list(temporary.iterdir()) == []


def test_a_killed_worker_costs_nothing_on_postgresql(odd_files: Path, postgres_url: str) -> None:
    check_run(run(odd_files, "--url", postgres_url))
    assert leftovers(postgres_url) == []


def test_a_given_sqlite_file_is_left_without_a_trace_of_the_run(odd_files: Path, tmp_path: Path) -> None:
    """Nothing stays but the library's own, empty tables."""
    import sqlite3

    file = tmp_path / "given.db"
    check_run(run(odd_files, "--url", f"sqlite:///{file}"))
    connection = sqlite3.connect(file)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        jobs = connection.execute("SELECT count(*) FROM alkstore_jobs").fetchone()
    finally:
        connection.close()
    assert [name for name in names if name.startswith("results")] == []
    assert jobs == (0,)


@pytest.mark.parametrize("count", [0, 1])
def test_next_to_nothing_to_do_is_done_too(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    for number in range(count):
        (folder / str(number)).write_text("text")
    told = run(folder)
    assert (told.stderr, told.returncode) == ("", 0)
    assert (figures(told.stdout)["files"], figures(told.stdout)["processed"]) == (count, count)


@pytest.mark.parametrize("name", ["a file", "nothing at all"])
def test_what_is_no_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").touch()
    told = run(tmp_path / name)
    assert told.returncode == 2
    assert "is not a directory" in told.stderr


def test_a_store_that_processes_cannot_share_is_refused(tmp_path: Path) -> None:
    told = run(tmp_path, "--url", "sqlite:///:memory:")
    assert told.returncode == 1
    assert "can't be shared by processes" in told.stderr


def test_a_database_that_is_not_there_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    told = run(tmp_path, "--url", "postgresql://user:hush@127.0.0.1:1/nowhere")
    assert told.returncode == 1
    assert "EngineUnavailableError" in told.stderr
    assert "Traceback" not in told.stderr
    assert "hush" not in told.stderr


# --- stopped on the way --------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The whole job on the standard library, in a process group of its own, its workers at work."""
    process = subprocess.Popen(
        [sys.executable, "-u", SCRIPT],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        # The second line that is printed is the progress at its tenth, or later.
        assert process.stdout is not None
        read_until(process.stdout, rb"\n +[1-9]\d?%")
        yield process
    finally:
        if group_is_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_until(stream: IO[bytes], pattern: bytes) -> None:
    seen = b""
    while not re.search(pattern, seen):
        line = stream.readline()
        assert line, f"ended after {seen!r}"
        seen += line


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(
    running: subprocess.Popen[bytes], tmp_path: Path, signum: signal.Signals
) -> None:
    """Ctrl-C reaches all processes of the terminal, the others only the one that was started."""
    if signum is signal.SIGINT:
        os.killpg(running.pid, signum)
    else:
        running.send_signal(signum)
    _, complaints = running.communicate(timeout=60)
    assert running.returncode == 128 + signum
    assert b"Traceback" not in complaints
    wait_until(lambda: not group_is_alive(running.pid), 30, "the workers to end")
    assert list(tmp_path.iterdir()) == []


def test_no_worker_outlives_a_parent_that_is_killed(running: subprocess.Popen[bytes]) -> None:
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: not group_is_alive(running.pid), 30, "the workers to end")


# --- the check itself ----------------------------------------------------------------------------------------------


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
    spec = importlib.util.spec_from_file_location("index_files", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "index_files", module)
    spec.loader.exec_module(module)
    return module


def test_the_check_finds_whatever_is_wrong(example: ModuleType, tmp_path: Path) -> None:
    for name in ("right", "missing", "twice", "wrong"):
        (tmp_path / name).write_text(name)
    listed = example.walk(tmp_path)
    right = {name: [example.examine(tmp_path / name)] for name in listed}
    assert list(example.check(tmp_path, listed, right)) == []
    wrong = {
        "right": right["right"],
        "twice": right["twice"] * 2,
        "wrong": right["missing"],
        "unknown": right["right"],
    }
    assert sorted(example.check(tmp_path, listed, wrong)) == [
        "missing is in the results 0 times",
        "twice is in the results 2 times",
        "unknown is in the results and was never enqueued",
        "wrong has the wrong figures in the results",
    ]


def test_a_file_that_changes_during_the_run_is_not_held_against_it(example: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    listed = example.walk(tmp_path)
    rows = {"file": [example.examine(tmp_path / "file")]}
    (tmp_path / "file").write_text("afterwards")
    assert list(example.check(tmp_path, listed, rows)) == []


def test_the_figures_are_those_of_the_file(example: ModuleType, tmp_path: Path) -> None:
    data = b"one\ntwo\nthree" * 200_000
    (tmp_path / "file").write_bytes(data)
    facts = example.examine(tmp_path / "file")
    assert (hashlib.sha256(data).hexdigest(), data.count(b"\n"), len(data), None) == facts
    assert example.examine(tmp_path / "gone") == (None, None, None, "FileNotFoundError")
