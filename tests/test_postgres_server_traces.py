"""What a throw-away PostgreSQL server leaves behind, however its session ends: nothing. And who shares it."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support import postgres_sources, postgres_supervisor
from tests.support.postgres_cluster import ThrowawayCluster
from tests.support.postgres_probes import alive, ask, open_ground
from tests.support.postgres_server import private_server
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parent.parent
AS_ROOT = os.geteuid() == 0
SEGMENTS = Path("/proc/sysvipc/shm")


@pytest.fixture
def ground() -> Iterator[Path]:
    """The only directory that the test's servers are made in."""
    with open_ground() as place:
        yield place


def segments() -> set[str]:
    """Identifiers of the System V shared memory segments on this machine."""
    return {line.split()[1] for line in SEGMENTS.read_text().splitlines()}


HOLDER = """
import json, os, sys
from tests.support.postgres_server import private_server
server = private_server({"ALKSTORE_TEST_POSTGRES": "wheel"})
told = {"directory": str(server.directory), "postmaster": server.pid, "url": server.url}
print(json.dumps(told), flush=True)
if "fork" in sys.argv and os.fork() == 0:
    # A child that outlives the session holds the session's end of the pipe open, until the test lets go.
    os.read(0, 1)
    os._exit(0)
sys.stdin.read()
"""


def start_holder(*arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """A process in a session of its own that owns a server, and what it says about it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


ENDS = [
    "kill the process",
    "kill it but not its child",
    "kill the group",
    "interrupt the group",
    "end of input",
]


@pytest.mark.parametrize("end", ENDS)
def test_however_the_session_ends_no_server_and_no_directory_remain(end: str) -> None:
    """SIGKILL of the owner, SIGKILL or SIGINT of its process group, and an exit without closing."""
    process, told = start_holder(*(["fork"] if "child" in end else []))
    directory, postmaster = Path(told["directory"]), int(told["postmaster"])
    assert process.stdin is not None
    try:
        with psycopg.connect(told["url"]) as connection:
            backend = connection.info.backend_pid
            assert alive(postmaster)
            assert directory.is_dir()
            if end.startswith(("kill the process", "kill it")):
                os.kill(process.pid, signal.SIGKILL)
            elif end == "end of input":
                process.stdin.close()
            else:
                os.killpg(process.pid, signal.SIGKILL if end == "kill the group" else signal.SIGINT)
            process.wait(30)
            wait_until(lambda: not alive(postmaster), 30, "the postmaster to end")
            wait_until(lambda: not alive(backend), 30, "the backend to end")
            wait_until(lambda: not directory.exists(), 30, "the directory to be removed")
            connection.close()
    finally:
        if not process.stdin.closed:
            process.stdin.close()
        assert process.stdout is not None
        process.stdout.close()


def test_a_session_killed_while_its_server_is_being_made_leaves_nothing(ground: Path) -> None:
    """At any moment between the start of the session and the first answer."""
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(ground)},
            start_new_session=True,
        )
        wait_until(lambda: list(ground.iterdir()), 30, "the directory to be made")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        wait_until(lambda: not list(ground.iterdir()), 60, "the directory to be removed")


@pytest.mark.skipif(not SEGMENTS.exists(), reason="only Linux lists its shared memory in a file")
def test_a_server_that_was_killed_leaves_no_shared_memory(ground: Path) -> None:
    """Its segment has no owner any more to remove it, and outlives the directory unless the supervisor looks."""
    cluster = ThrowawayCluster(postgres_sources.wheel_bindir(), copy=True, parents=[str(ground)])
    named = (cluster.directory / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
    postmaster = cluster.pid
    assert postmaster is not None
    try:
        assert named in segments()
        assert "mmap" == ask(cluster.running("wheel").url, "SHOW dynamic_shared_memory_type")
        os.kill(postmaster, signal.SIGKILL)
        wait_until(lambda: not alive(postmaster), 10, "the postmaster to end")
    finally:
        cluster.close()
    assert [] == list(ground.iterdir())
    wait_until(lambda: named not in segments(), 10, "the segment to go with the last backend")


def ownership(paths: Iterator[Path]) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of every path."""
    found = {str(path): path.lstat() for path in paths}
    return {name: (stat.st_mode, stat.st_uid, stat.st_gid) for name, stat in found.items()}


def outside_the_throwaway_directory() -> Iterator[Path]:
    """What a careless provider would change: the wheel's files, and every directory above them and /tmp."""
    bindir = postgres_sources.wheel_bindir()
    yield from bindir.parent.rglob("*")
    yield from (bindir, *bindir.parents, Path("/tmp"), Path("/etc/passwd"), Path("/etc/group"), Path.home())


@pytest.mark.skipif(not AS_ROOT, reason="only root can drop to another user id")
def test_run_as_root_the_server_drops_to_an_unprivileged_user_and_changes_nothing_else() -> None:
    """The server has the id of an account that exists; modes, owners and accounts are untouched."""
    before = ownership(outside_the_throwaway_directory())
    accounts = Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()
    with private_server({"ALKSTORE_TEST_POSTGRES": "wheel"}) as server:
        assert server.directory is not None
        owner = server.directory.stat().st_uid
        assert owner == pwd.getpwuid(owner).pw_uid != 0
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert {str(owner)} == set(status["Uid"].split())
        assert "0" not in status["Gid"].split()
        assert "0" not in status["Groups"].split()
        # The server can't change the programs that it runs.
        programs = server.directory.joinpath(*postgres_supervisor.COPIED_BINDIR)
        assert {0} == {path.stat().st_uid for path in programs.rglob("*")}
        assert before == ownership(outside_the_throwaway_directory())
    assert before == ownership(outside_the_throwaway_directory())
    assert accounts == (Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes())


def run_pytest(folder: Path, text: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A test session of its own, on one file, with the plugin."""
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.postgres_plugin",
        "-p",
        "no:cacheprovider",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALKSTORE", "PYTEST"))}
    return subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(folder), *options, str(folder / "test_it.py")],
        cwd=REPOSITORY,
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_workers_of_one_session_share_one_server(tmp_path: Path, ground: Path) -> None:
    """With pytest-xdist the controller starts the server, and every worker has databases of its own in it."""
    pytest.importorskip("xdist", reason="pytest-xdist isn't installed, so there are no workers to share with")
    text = f"""
import os, pytest, psycopg
@pytest.mark.parametrize("n", range(4))
def test_it(n, postgres_server, postgres_url):
    assert not postgres_server.controllable
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (x int)")
    with open({str(tmp_path / "seen")!r}, "a") as seen:
        seen.write(f"{{os.environ['PYTEST_XDIST_WORKER']}} {{postgres_server.url}}\\n")
"""
    environ = {"ALKSTORE_TEST_POSTGRES": "wheel", "TMPDIR": str(ground)}
    done = run_pytest(tmp_path, text, "-n", "2", f"--basetemp={tmp_path / 'base'}", **environ)
    assert 0 == done.returncode, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert 4 == len(lines)
    assert {"gw0", "gw1"} == {worker for worker, _ in lines}
    assert 1 == len({url for _, url in lines})
    assert [] == list(ground.iterdir())


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_without_a_server_the_tests_fail_and_say_why(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Never a skip."""
    if options:
        pytest.importorskip("xdist", reason="pytest-xdist isn't installed, so there are no workers to try")
    text = "def test_it(postgres_url): pass\n"
    done = run_pytest(tmp_path, text, *options, ALKSTORE_TEST_POSTGRES="local:99")
    assert 1 == done.returncode
    assert "1 error" in done.stdout
    assert "ALKSTORE_TEST_POSTGRES=local:99 can't be had" in done.stdout


def test_started_by_hand_it_prints_a_url_and_ends_with_its_input(ground: Path) -> None:
    """`python -m tests.support.postgres_server` serves until the end of the input, and leaves nothing."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "ALKSTORE_TEST_POSTGRES": "wheel", "TMPDIR": str(ground)},
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert 1 == ask(url, "SELECT 1")
    assert 1 == len(list(ground.iterdir()))
    process.communicate()
    assert 0 == process.returncode
    assert [] == list(ground.iterdir())
