"""A throw-away PostgreSQL server in a container, through the `docker` package."""

from __future__ import annotations

import gc
import importlib
import secrets
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from tests.support.postgres_base import Running, SourceUnavailable, StopMode, Supervisor, server_version
from tests.support.postgres_supervisor import free_port

DEFAULT_MAJOR = 18

_PORT_ATTEMPTS = 5
_PORT_TAKEN = ("port is already allocated", "address already in use")
_START_SECONDS = 60.0
_STOP_SECONDS = 60
_SIGNALS = {"fast": "SIGINT", "immediate": "SIGQUIT"}


class Container(Protocol):
    """What is used of docker's container object."""

    def start(self) -> None: ...
    def kill(self, signal: str) -> None: ...
    def wait(self, timeout: int) -> object: ...
    def remove(self, *, force: bool, v: bool) -> None: ...


class Collection(Protocol):
    """What is used of docker's collections of images and containers."""

    def list(self, *, name: str) -> Sequence[object]: ...
    def pull(self, name: str) -> object: ...
    def create(self, image: str, **options: Any) -> Container: ...


class Client(Protocol):
    """What is used of docker's client object."""

    @property
    def images(self) -> Collection: ...
    @property
    def containers(self) -> Collection: ...
    def ping(self) -> object: ...


class Reaper(Protocol):
    """The process that removes the container when the session is gone."""

    def close(self) -> None: ...


def connect() -> Client:
    """Docker's client for the daemon that the environment names.

    Raises SourceUnavailable when the package is missing or no daemon answers.
    """
    try:
        docker: Any = importlib.import_module("docker")
    except ImportError as error:
        raise SourceUnavailable("the docker package isn't installed (pip install docker)") from error
    reason = ""
    # The package leaves a socket open that it couldn't connect. It is dropped here, with the exception that
    # holds it, so that the warning doesn't hit whatever test runs when the garbage is collected.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env()
            client.ping()
            return cast("Client", client)
        except Exception as error:  # noqa: BLE001 - errors of requests and of the transports come through
            reason = str(error)
        gc.collect()
    raise SourceUnavailable(f"no Docker daemon answers ({reason})")


def watch(name: str) -> Reaper:
    """Have the container of this name removed at the session's end, before it is created."""
    return Supervisor({"container": name}, site_packages=True)


class DockerCluster:
    """A container of the official image, its port published on 127.0.0.1 only."""

    def __init__(
        self,
        client: Client,
        major: int,
        *,
        reaper: Callable[[str], Reaper] = watch,
        version: Callable[[str, float], int] = server_version,
    ) -> None:
        self._version = version
        self._password = secrets.token_urlsafe(18)
        name = f"alkstore-test-{secrets.token_hex(8)}"
        image = f"postgres:{major}"
        self._fetch(client, image)
        self._reaper = reaper(name)
        try:
            self._container, self._port = self._create(client, image, name)
            self._version(self.url, _START_SECONDS)
        except BaseException:
            self._reaper.close()
            raise

    @property
    def url(self) -> str:
        """Where the administrator's database is."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres"

    @property
    def pid(self) -> int | None:
        """Unknown: the daemon may well run on another machine."""
        return None

    def running(self, source: str) -> Running:
        """The server as the tests see it."""
        return Running(url=self.url, source=source, control=self)

    def start(self) -> None:
        """Start the container again, on the same port."""
        self._container.start()
        self._version(self.url, _START_SECONDS)

    def stop(self, mode: StopMode) -> None:
        """Stop the server in the container, which ends with it."""
        self._container.kill(_SIGNALS[mode])
        self._container.wait(timeout=_STOP_SECONDS)

    def close(self) -> None:
        """Remove the container and its volume."""
        self._reaper.close()

    @staticmethod
    def _fetch(client: Client, image: str) -> None:
        # Before anything else: a pull takes minutes, and the reaper's patience is a few seconds.
        try:
            if not client.images.list(name=image):
                client.images.pull(image)
        except Exception as error:
            raise SourceUnavailable(f"the image {image} can't be had ({error})") from error

    def _create(self, client: Client, image: str, name: str) -> tuple[Container, int]:
        complaint: Exception | None = None
        for _ in range(_PORT_ATTEMPTS):
            # Not a port of Docker's choice: that one changes whenever the container starts again.
            port = free_port()
            container = client.containers.create(
                image,
                name=name,
                command=["postgres", "-c", "max_connections=200", "-c", "fsync=on", "-c", "timezone=UTC"],
                environment={
                    "POSTGRES_PASSWORD": self._password,
                    "POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C --auth-host=scram-sha-256",
                },
                ports={"5432/tcp": ("127.0.0.1", port)},
            )
            try:
                container.start()
            except Exception as error:
                container.remove(force=True, v=True)
                if not any(text in str(error) for text in _PORT_TAKEN):
                    raise SourceUnavailable(f"the container didn't start ({error})") from error
                complaint = error
            else:
                return container, port
        raise SourceUnavailable(f"no port could be published ({complaint})")
