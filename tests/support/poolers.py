"""Poolers that lend sessions by the transaction: PgBouncer where it is installed, and one of the tests' own that always swaps."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

from tests.support.waiting import wait_until

WAIT: Final = 30.0

_SSL_REQUEST: Final = 80877103
_ASKS_FOR_READY: Final = b"QSF"
"""Messages of a client that the server answers with ReadyForQuery in the end: Query, Sync, FunctionCall."""


class Pooler(Protocol):
    """Something between clients and a server."""

    port: int

    def close(self) -> None:
        """End it."""
        ...


def through(url: str, port: int) -> str:
    """Return the URL by way of the pooler at the port."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()


# --- one that always swaps ------------------------------------------------------------------------------------------------


class _Stream:
    """One end of a connection, read by the message."""

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end = end
        self.received = b""

    def receive(self) -> None:
        """Take what has arrived; ``EOFError`` at its end."""
        data = self.end.recv(65_536)
        if not data:
            raise EOFError
        self.received += data

    def message(self) -> bytes | None:
        """Return the next message that has arrived whole."""
        if len(self.received) < 5:
            return None
        size = 1 + struct.unpack("!I", self.received[1:5])[0]
        if len(self.received) < size:
            return None
        found, self.received = self.received[:size], self.received[size:]
        return found


class SwappingPooler:
    """Gives each transaction of a client another session than the last, of as many as there are clients. A context manager.

    Each client logs in for itself, through to a session of its own; from then on any client may get that one. All have to be
    the same user's and to the same database.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._idle: list[_Stream] = []
        self._changed = threading.Condition()
        self._clients: set[socket.socket] = set()
        self._surplus = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.lent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it, and all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            ends = [*self._clients, *(session.end for session in self._idle)]
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._changed:
                self._clients.add(client)
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        client = _Stream(end)
        try:
            self._log_in(client)
            while True:
                while (first := client.message()) is None:
                    client.receive()
                if first[:1] == b"X":
                    return
                self._transact(client, first)
        except (EOFError, OSError):
            return
        finally:
            with self._changed:
                self._clients.discard(end)
                self._surplus += 1  # one session fewer is needed
                self._trim()
            end.close()

    def _log_in(self, client: _Stream) -> None:
        while True:
            while len(client.received) < 8:
                client.receive()
            size, code = struct.unpack("!II", client.received[:8])
            if code != _SSL_REQUEST:
                break
            client.received = client.received[8:]
            client.end.sendall(b"N")
        while len(client.received) < size:
            client.receive()
        session = _Stream(socket.create_connection(self._target))
        session.end.sendall(client.received[:size])
        client.received = client.received[size:]
        ready = False
        while not ready:
            for stream, other in self._readable(client, session):
                stream.receive()
                while (message := stream.message()) is not None:
                    other.end.sendall(message)
                    ready = ready or (stream is session and message[:1] == b"Z")
        self._give(session)

    def _transact(self, client: _Stream, first: bytes) -> None:
        """Lend the client a session until it is idle again."""
        session = self._take()
        try:
            awaited, unsynced, idle = 0, False, False
            message: bytes | None = first
            while message is not None or awaited or unsynced or not idle:
                if message is not None:
                    session.end.sendall(message)
                    asks = message[:1] in _ASKS_FOR_READY
                    if message[:1] != b"H":  # Flush, which changes nothing
                        awaited, unsynced, idle = awaited + asks, not asks, False
                    message = client.message()  # of those that came with it
                    continue
                for stream, _ in self._readable(client, session):
                    stream.receive()
                while (answer := session.message()) is not None:
                    client.end.sendall(answer)
                    if answer[:1] == b"Z":
                        awaited, idle = awaited - 1, answer[5:6] == b"I"
                message = client.message()
        except BaseException:
            session.end.close()  # whatever is open on it is rolled back
            with self._changed:
                self._surplus -= 1
            raise
        self._give(session)

    @staticmethod
    def _readable(client: _Stream, session: _Stream) -> list[tuple[_Stream, _Stream]]:
        pairs = {client.end: (client, session), session.end: (session, client)}
        return [pairs[end] for end in select.select(list(pairs), [], [])[0]]

    def _take(self) -> _Stream:
        with self._changed:
            self._changed.wait_for(lambda: self._idle)
            self.lent += 1
            return self._idle.pop(random.randrange(len(self._idle)))

    def _give(self, session: _Stream) -> None:
        with self._changed:
            self._idle.append(session)
            self._trim()
            self._changed.notify()

    def _trim(self) -> None:
        while self._surplus > 0 and self._idle:
            self._surplus -= 1
            session = self._idle.pop(0)
            with contextlib.suppress(OSError):
                session.end.sendall(b"X\0\0\0\4")
            session.end.close()


# --- PgBouncer --------------------------------------------------------------------------------------------------------


def pgbouncer() -> str | None:
    """Return where PgBouncer is installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class PgBouncer:
    """PgBouncer in transaction mode, before one database."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        database = parts.path[1:]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="alkstore-pgbouncer-"))
        (self._folder / "users.txt").write_text(f'"{parts.username}" "{parts.password}"\n')
        (self._folder / "pgbouncer.ini").write_text(
            f"[databases]\n"
            f"{database} = host={parts.hostname} port={parts.port} user={parts.username} password={parts.password}\n"
            f"[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {self._folder / 'users.txt'}\n"
            f"pool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = 30\n"
            f"logfile = {self._folder / 'log'}\n"
        )
        # It refuses to run as root.
        command = [str(pgbouncer()), "-q"]
        if os.geteuid() == 0:
            user = next(name for name in ("postgres", "nobody") if name in {each.pw_name for each in pwd.getpwall()})
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, user)
            command += ["-u", user]
        command.append(str(self._folder / "pgbouncer.ini"))
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers, WAIT, "PgBouncer to answer")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        assert self._process.poll() is None, (self._folder / "log").read_text()
        return False

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)


def pooler_for(url: str) -> Pooler:
    """Return PgBouncer before the database, where it is installed, else the one that swaps."""
    if pgbouncer() is not None:
        return PgBouncer(url)
    parts = urlsplit(url)
    return SwappingPooler(str(parts.hostname), int(parts.port or 5432))
