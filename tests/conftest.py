"""What all tests have: the throw-away PostgreSQL server, and an environment that no shell has spoilt."""

from __future__ import annotations

import signal
from typing import Final

import pytest

pytest_plugins = ["tests.support.postgres_plugin"]

REPORTED: Final = "reported"
"""The property of a test (``record_property``) that is shown at the end, though it has passed."""


def pytest_configure() -> None:
    """Let Ctrl-C mean what it means at a terminal, in tests that send it to a process of theirs.

    What a shell starts in the background, as a CI may do with all of this, ignores it, and so would every child.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests have measured: nothing depends on it, and somebody may want to know."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == REPORTED:
                terminalreporter.write_line(f"{value}")


@pytest.fixture(autouse=True)
def _no_store_of_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let no test reach the store that a developer's shell names."""
    monkeypatch.delenv("ALKSTORE_URL", raising=False)
