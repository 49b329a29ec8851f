"""A throw-away cluster made from PostgreSQL binaries on this machine."""

from __future__ import annotations

import os
import pwd
import secrets
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.support.postgres_base import Running, StopMode, Supervisor

_ACCOUNTS_TRIED = 3


class ThrowawayCluster:
    """A cluster in a directory of its own, on 127.0.0.1 and a Unix socket, gone with the test session.

    Run as root, the server gets the user id of an unprivileged account that exists already (PostgreSQL
    refuses to run as root, and initdb wants its user id to have a name). The directory and what is in it are
    all that is ever created or changed.
    """

    def __init__(self, bindir: Path, *, copy: bool, parents: list[str] | None = None) -> None:
        self._password = secrets.token_urlsafe(18)
        self._supervisor = Supervisor(
            {
                "bindir": str(bindir),
                "copy": copy,
                "password": self._password,
                "parents": parents or temporary_directories(),
                "accounts": unprivileged_accounts() if os.geteuid() == 0 else [],
            },
            site_packages=False,
        )
        self.directory = Path(self._supervisor.state["root"])
        self._port = int(self._supervisor.state["port"])

    def running(self, source: str) -> Running:
        """The cluster as the tests see it: a URL over TCP with a real password, another over the socket."""
        folder = quote(str(self.directory), safe="")
        return Running(
            url=f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/postgres",
            socket_url=f"postgresql://postgres@/postgres?host={folder}&port={self._port}",
            source=source,
            control=self,
            directory=self.directory,
        )

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, None when it was stopped."""
        return self._supervisor.state.get("pid")

    @property
    def supervisor_pid(self) -> int:
        """Process id of the process that removes the cluster when the session ends."""
        return self._supervisor.pid

    def start(self) -> None:
        """Start the server on the same port, and return when it accepts connections."""
        self._supervisor.ask({"do": "start"})

    def stop(self, mode: StopMode) -> None:
        """Stop the server and return when it has ended."""
        self._supervisor.ask({"do": "stop", "mode": mode})

    def close(self) -> None:
        """Stop the server and remove the directory."""
        self._supervisor.close()


def temporary_directories() -> list[str]:
    """Where the throw-away directory may lie, best first.

    More than one, because TMPDIR may be closed to the account that the server runs as, too long for a
    socket's path, or mounted noexec.
    """
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]
    return list(dict.fromkeys(place for place in places if Path(place).is_dir()))


def unprivileged_accounts(entries: list[pwd.struct_passwd] | None = None) -> list[tuple[int, int]]:
    """User and group ids of existing accounts for the server to run as, best first.

    `nobody` owns nothing, so it comes first; `postgres` may own a real cluster, which tests had better not be
    able to reach. Several are returned, as a user namespace may have no room for a given id.
    """
    known = {entry.pw_name: entry for entry in (pwd.getpwall() if entries is None else entries)}
    preferred = [known[name] for name in ("nobody", "postgres", "daemon") if name in known]
    others = sorted(known.values(), key=lambda entry: (entry.pw_uid >= 1000, entry.pw_uid))
    pairs = [(entry.pw_uid, entry.pw_gid) for entry in (*preferred, *others) if entry.pw_uid and entry.pw_gid]
    return list(dict.fromkeys(pairs))[:_ACCOUNTS_TRIED]
