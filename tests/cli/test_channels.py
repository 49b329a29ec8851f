"""`alkstore listen` and `alkstore notify`."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

import alkstore
from tests.cli.runs import Cli, Terminal


def listening(cli: Cli, *arguments: str) -> subprocess.Popen[bytes]:
    """Start to listen, and return once it does."""
    process = cli.start("listen", *arguments)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"listening to ")
    return process


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_what_is_sent_is_printed_at_once(store: alkstore.Store, cli: Cli) -> None:
    process = listening(cli, "news", "olds")
    assert "" == cli.done("notify", "news", "first\nline")
    assert b"news\tfirst\\nline\n" == line_of(process)
    store.notify("others", "x")
    assert {"channel": "olds", "sent": True} == cli.json("notify", "olds")
    assert b"olds\t\n" == line_of(process)
    process.terminate()
    assert (b"", b"") == process.communicate(timeout=30)
    assert 143 == process.returncode


def test_as_json_it_is_a_document_a_line(store: alkstore.Store, cli: Cli) -> None:
    process = listening(cli, "c", "--json", "--count", "2")
    store.notify("c", "é\x1b")
    assert {"channel": "c", "payload": "é\x1b", "gap": False} == json.loads(line_of(process))
    store.notify("c")
    out, _ = process.communicate(timeout=30)
    assert {"channel": "c", "payload": "", "gap": False} == json.loads(out)
    assert 0 == process.returncode


def test_ctrl_c_ends_it_quietly(store: alkstore.Store, cli: Cli) -> None:
    process = listening(cli, "c")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (130, b"", b"") == (process.returncode, out, errors.strip())


def test_ctrl_c_at_a_terminal_ends_it_quietly(store: alkstore.Store, cli: Cli) -> None:
    terminal = Terminal(cli, "listen", "c")
    terminal.read_until(b"listening to c")
    store.notify("c", "\x1b]0;pwn\x07")
    terminal.read_until(rb"\x1b]0;pwn\x07")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert 130 == terminal.end()
    assert b"Traceback" not in terminal.written
    assert b"\x1b]" not in terminal.written


def test_a_reader_that_goes_away_ends_it_quietly(store: alkstore.Store, cli: Cli) -> None:
    process = listening(cli, "c")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    store.notify("c", "1")
    assert 141 == process.wait(30)
    assert b"" == process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["listen"], ["listen", ""], ["listen", "_c"], ["notify"], ["notify", "_c"]])
def test_a_channel_is_named(arguments: list[str], sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    told = sqlite_cli(*arguments)
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))


def test_a_payload_that_is_too_long_is_refused(sqlite_store: alkstore.Store, sqlite_cli: Cli) -> None:
    told = sqlite_cli("notify", "c", "x" * 7_001)
    assert (2, 1) == (told.exit_code, len(told.stderr.splitlines()))
