"""Without the driver, the engine says what to install (S-1)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import alkstore
from alkstore.errors import UnknownEngineError


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UnknownEngineError, match=r"pip install 'alkstore\[postgres\]'"):
        alkstore.open("postgresql://localhost/db")


def test_the_driver_is_not_imported_before_it_is_needed() -> None:
    """Nor by the package itself, nor by a store on another engine."""
    program = (
        "import sys, alkstore, alkstore_postgres\n"
        "alkstore.open('sqlite:///:memory:').close()\n"
        "assert 'psycopg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
