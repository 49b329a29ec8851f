"""A TCP proxy in front of a server, for tests that need the network to fail at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

Fate = Literal["answered", "lost"]
"""What becomes of a message that the client has sent: the server gets it and answers (and the answer is thrown away), or
the server never sees it."""


@dataclass
class _Trap:
    """Springs at the first message of a client that the test is true of."""

    matches: Callable[[bytes], bool]
    fate: Fate
    sprung: threading.Event


class _Link:
    """One client's connection, and the server's that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.doomed = False

    def cut(self) -> None:
        """End both, at once and without a word."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class TcpProxy:
    """Passes connections to 127.0.0.1 on to a server, until told otherwise. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._trap: _Trap | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._turns_away = False
        self.turned_away: list[float] = []
        """When (monotonic) somebody was; see ``turn_away``."""
        self.port = 0
        self.accept()

    # --- what tests do to it -------------------------------------------------------------------------------------

    def accept(self) -> None:
        """Take connections, on the same port as before."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._spawn(self._serve, listener)

    def refuse(self) -> None:
        """Refuse new connections; those that are there go on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def turn_away(self, turns: bool = True) -> None:
        """End new connections as soon as they are made, and note when; or do so no more."""
        self._turns_away = turns

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def silence(self) -> None:
        """Pass nothing on any more, in either direction, and end nothing."""
        self._flowing.clear()

    def speak(self) -> None:
        """Pass on again, what was held up too."""
        self._flowing.set()

    def cut_at(self, matches: bytes | Callable[[bytes], bool], fate: Fate) -> threading.Event:
        """Cut the connection of the next client that sends what matches; return the event of having done so."""
        trap = _Trap(_test_for(matches), fate, threading.Event())
        with self._lock:
            self._trap = trap
        return trap.sprung

    @property
    def connections(self) -> int:
        """How many are open now."""
        with self._lock:
            return len(self._links)

    def close(self) -> None:
        """End everything, and return when it has ended."""
        self.refuse()
        self.speak()
        self.cut()
        for thread in list(self._threads):
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- how it works --------------------------------------------------------------------------------------------

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._turns_away:
                self.turned_away.append(time.monotonic())
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self._links.append(link)
            self._spawn(self._run, link)

    def _run(self, link: _Link) -> None:
        backwards = threading.Thread(target=self._answers, args=(link,), daemon=True)
        backwards.start()
        self._requests(link)
        link.cut()
        backwards.join()
        with self._lock:
            self._links.remove(link)
        link.client.close()
        link.server.close()

    def _requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(65536):
                self._flowing.wait()
                trap = self._sprung(data)
                if trap is not None:
                    link.doomed = True
                    if trap.fate == "lost":
                        link.cut()
                        trap.sprung.set()
                        return
                link.server.sendall(data)
                if trap is not None:
                    # The answer means that the server has done it; _answers has thrown it away and ended both.
                    while link.client.recv(65536):
                        pass
                    trap.sprung.set()
                    return

    def _answers(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(65536):
                self._flowing.wait()
                if link.doomed:
                    break
                link.client.sendall(data)
        link.cut()

    def _sprung(self, data: bytes) -> _Trap | None:
        with self._lock:
            trap = self._trap
            if trap is None or not trap.matches(data):
                return None
            self._trap = None
            return trap


def _test_for(matches: bytes | Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    def holds(data: bytes) -> bool:
        return matches(data) if callable(matches) else matches in data

    return holds
