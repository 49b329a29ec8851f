"""A virtual environment for each peer, made from the pinned requirements and kept until those change.

A peer that can't be had is named with the reason, and the others are measured.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.system import System

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
_PATIENCE: Final = 600
_VERSION: Final = "import sys; print(*sys.version_info[:2])"
_NEWER_LIBC: Final = "manylinux_2_38"
_URL: Final = re.compile(r"\w+://\S+")


class NotInstalledError(Exception):
    """Why a peer isn't measured."""


def environment(system: type[System], folder: Path) -> Path:
    """Return the Python that the system runs in, its environment made first where there is none.

    ``folder`` holds the environments. Raises `NotInstalledError`.
    """
    if system.requirements is None:
        return Path(sys.executable)
    wanted = (REQUIREMENTS / f"{system.requirements}.txt").read_text(encoding="utf-8")
    place = folder / system.requirements
    python, made_from = place / "bin" / "python", place / "made-from"
    if not (python.exists() and made_from.exists() and made_from.read_text(encoding="utf-8") == wanted):
        print(f"making the environment of {system.name}", file=sys.stderr, flush=True)
        shutil.rmtree(place, ignore_errors=True)
        _run([str(_interpreter(system.python)), "-m", "venv", str(place)])
        _install(system, python)
        made_from.write_text(wanted, encoding="utf-8")
    return python


def _install(system: type[System], python: Path) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    requirements = str(REQUIREMENTS / f"{system.requirements}.txt")
    if system.requirements != "honker":
        _run([*pip, "-r", requirements])
        return
    try:
        # Its source would need a compiler for Rust, and what that fetches.
        _run([*pip, "--only-binary", ":all:", "-r", requirements])
    except NotInstalledError:
        _install_honker(pip, python, requirements)


def _install_honker(pip: list[str], python: Path, requirements: str) -> None:
    """Install honker where the C library is older than its wheels ask for.

    Only the SQLite that the wheel brings needs the newer one. The machine's own takes its place: the wheel is linked to it
    dynamically, and all others here use that, too.
    """
    packages = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]).strip())
    platform = f"{_NEWER_LIBC}_{os.uname().machine}"
    _run(
        [
            *pip,
            "--only-binary",
            ":all:",
            "--no-deps",
            "--platform",
            platform,
            "--target",
            str(packages),
            "-r",
            requirements,
        ]
    )
    brought = next(iter((packages / "honker.libs").glob("libsqlite3*")), None)
    own = next(_libraries("libsqlite3.so.0"), None)
    if brought is None or own is None:
        raise NotInstalledError(
            "its wheel needs a newer C library, and this machine has no libsqlite3 to help out with"
        )
    shutil.copy(own, brought)
    _run([str(python), "-c", "import honker"])


def _libraries(name: str) -> Iterator[Path]:
    for folder in ("/usr/lib", "/usr/lib64", "/lib"):
        yield from Path(folder).glob(name)
        yield from Path(folder).glob(f"*-linux-gnu/{name}")


def _interpreter(oldest: tuple[int, int]) -> Path:
    """Return this Python, or another on the machine where this one is too old."""
    if sys.version_info[:2] >= oldest:
        return Path(sys.executable)
    for candidate in _interpreters():
        # A program of that name may be there and yet not run, as version managers' stand-ins do.
        told = subprocess.run([candidate, "-c", _VERSION], capture_output=True, text=True, check=False)
        if told.returncode == 0 and tuple(map(int, told.stdout.split())) >= oldest:
            return Path(candidate)
    raise NotInstalledError(f"it needs Python {oldest[0]}.{oldest[1]} or newer, and none was found")


def _interpreters() -> Iterator[str]:
    for minor in range(20, 11, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(python) for python in sorted(versions.glob("3.*/bin/python"), reverse=True))


def _run(command: list[str]) -> str:
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"its installation took longer than {_PATIENCE} s") from None
    if told.returncode != 0:
        lines = [line for line in told.stderr.splitlines() if "error" in line.lower()] or ["it failed without a word"]
        # Where packages come from is nobody's business but the machine's.
        raise NotInstalledError(_URL.sub("...", lines[-1]).strip())
    return told.stdout
