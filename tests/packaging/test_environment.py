"""`.ci/venv`, which makes the environment for every target of the Makefile, says what is wrong in plain words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "venv"


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / ".ci" / "venv", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A place with the script alone, its name not a plain one: nothing can be installed there, and nothing should."""
    folder = tmp_path / "a clone"
    (folder / ".ci").mkdir(parents=True)
    (folder / ".ci" / "venv").write_bytes(SCRIPT.read_bytes())
    (folder / ".ci" / "venv").chmod(0o755)
    (folder / "pyproject.toml").touch()
    return folder


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_python_that_is_not_there_is_named(clone: Path) -> None:
    told = run(clone, ".venv", PYTHON="python-of-dreams")
    assert (told.returncode, told.stderr) == (1, "error: PYTHON=python-of-dreams: there is no such program\n")


def test_a_python_that_is_too_old_is_named_with_its_version(clone: Path) -> None:
    old = program(clone / "old", '[ "$1" = --version ] && echo "Python 3.9.1" || exit 1')
    told = run(clone, ".venv", PYTHON=str(old))
    assert (told.returncode, told.stderr) == (1, f"error: PYTHON={old} is Python 3.9.1; 3.11 or newer is needed\n")


def test_where_no_python_will_do_that_is_said(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "cat", "cmp", "cp"):
        (tools / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    program(tools / "python3", "exit 1")
    told = run(clone, ".venv", PATH=str(tools), PYTHON="")
    assert told.returncode == 1
    assert told.stderr.startswith("error: Python 3.11 or newer is needed, and none was found")


def test_a_directory_that_is_something_else_is_not_emptied(clone: Path) -> None:
    (clone / "mine").mkdir()
    (clone / "mine" / "precious").touch()
    told = run(clone, "mine", PYTHON=sys.executable)
    assert (told.returncode, told.stderr) == (1, "error: mine exists and isn't a virtual environment\n")
    assert (clone / "mine" / "precious").exists()


def test_without_venv_and_pip_the_missing_package_is_named(clone: Path) -> None:
    """Debian's Python comes without ensurepip, and sometimes without pip."""
    bare = program(
        clone / "bare",
        f'case "$*" in *ensurepip*|*"import venv"*|"-m pip"*) exit 1;; *) exec "{sys.executable}" "$@";; esac',
    )
    told = run(clone, ".venv", PYTHON=str(bare))
    assert told.returncode == 1
    assert "apt-get install python3-venv" in told.stderr


def test_an_environment_that_is_up_to_date_is_left_alone(clone: Path) -> None:
    """The second run does nothing; a changed pyproject.toml, another extra or another place does something."""
    # A stand-in for pip, so that nothing is really installed: it keeps a list of what it was asked for.
    asked = clone / "asked"
    fake = program(
        clone / "python",
        f"""case "$*" in
            *"-m venv"*) mkdir -p "{clone}/.venv/bin"; touch "{clone}/.venv/pyvenv.cfg"; cp "$0" "{clone}/.venv/bin/python";;
            *"-m pip"*install*) for last; do :; done; echo "$last" >> "{asked}";;
            *) exec "{sys.executable}" "$@";;
        esac""",
    )

    def installed() -> list[str]:
        return asked.read_text().split() if asked.exists() else []

    def venv(*arguments: str) -> None:
        told = run(clone, ".venv", *arguments, PYTHON=str(fake))
        assert told.returncode == 0, told.stderr

    venv()
    venv()
    assert installed() == ["."]
    venv("postgres")
    venv("postgres")
    assert installed() == [".", ".[postgres]"]
    venv("dev")
    venv("postgres")
    venv()
    assert installed() == [".", ".[postgres]", ".[dev]"]
    (clone / "pyproject.toml").write_text("[project]\n")
    venv()
    assert installed() == [".", ".[postgres]", ".[dev]", "."]
