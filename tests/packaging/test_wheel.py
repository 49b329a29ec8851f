"""The wheel holds what it must, and works where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from alkstore.schema import spell
from alkstore_sqlite.schema import CODE_VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("alkstore", "alkstore_postgres", "alkstore_sqlite", "contract_tests")


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    # Nothing of this session may help: no path to the repository, no options meant for its own tests.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "ALKSTORE"))}
    told = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**kept, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"
    return told


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that is installed here, so that no index is needed."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel and nothing else, not even pip."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    found = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", found, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    return found


def test_the_wheel_holds_the_packages_and_what_belongs_to_them(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    for package in ("alkstore_postgres", "alkstore_sqlite"):
        migrations = {path.name for path in (ROOT / package / "migrations").glob("*.sql")}
        assert migrations
        assert {f"{package}/migrations/{name}" for name in migrations} <= set(names)
    assert [name for name in names if name.endswith("/licenses/LICENSE")] != []


def test_every_module_of_the_repository_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert modules - names == set()


def test_sqlite_needs_nothing_but_the_standard_library(python: Path, tmp_path: Path) -> None:
    told = run(python, "-I", "-m", "alkstore", "migrate", "--url", "sqlite:///jobs.db", cwd=tmp_path)
    assert told.stdout == f"sqlite: the schema is at version {spell(CODE_VERSION)}\n"
    assert (tmp_path / "jobs.db").exists()


def test_a_driver_that_is_not_installed_is_named_with_its_extra(python: Path, tmp_path: Path) -> None:
    script = (
        "import alkstore\n"
        "try:\n"
        "    alkstore.open('postgresql://localhost/jobs')\n"
        "except alkstore.UnknownEngineError as error:\n"
        "    print(error)\n"
    )
    assert "alkstore[postgres]" in run(python, "-I", "-c", script, cwd=tmp_path).stdout


def test_the_script_is_there_and_without_its_extra_says_what_to_install(python: Path, tmp_path: Path) -> None:
    told = subprocess.run(
        [python.with_name("alkstore"), "stats"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "alkstore: the command line needs click and rich: pip install 'alkstore[cli]'\n"


HARNESS = """
import itertools
import shutil
import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from contract_tests.harness import Harness, Row

COLUMNS = "id, queue, attempts, created_at, run_at, expires_at, last_error, codec, payload"


def instant(micros):
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


class Theirs(Harness):
    name = "theirs"

    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = itertools.count()

    def stop(self):
        self.folder.cleanup()

    def new_place(self):
        return f"sqlite:///{self.folder.name}/{next(self.numbers)}.db"

    def drop_place(self, place):
        for made in Path(self.folder.name).glob(Path(place).name + "*"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()

    def connect(self, place, *, auto_commit):
        file = place.removeprefix("sqlite:///")
        return sqlite3.connect(file, isolation_level=None) if auto_commit else sqlite3.connect(file)

    def peek(self, place):
        with closing(sqlite3.connect(place.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute(
                f"SELECT 'live', worker_id, {COLUMNS} FROM alkstore_jobs"
                f" UNION ALL SELECT 'dead', NULL, {COLUMNS} FROM alkstore_dead_jobs"
            ).fetchall()
        names = ["table", "worker_id", *COLUMNS.split(", ")]
        found = [dict(zip(names, row)) for row in rows]
        for row in found:
            row.update({key: instant(row[key]) for key in ("created_at", "run_at", "expires_at")})
        return [Row(**row) for row in found]
"""


def test_the_suite_runs_from_the_wheel_on_somebody_elses_harness(python: Path, tmp_path: Path) -> None:
    """In a folder outside of the repository, as the author of an engine would: all of it."""
    # pytest and Hypothesis come from this environment, behind the wheel's own packages.
    behind = python.parent.parent / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages" / "behind.pth"
    behind.write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "theirs.py").write_text(HARNESS)
    try:
        where = run(python, "-c", "import contract_tests; print(contract_tests.__file__)", cwd=tmp_path).stdout
        assert not Path(where).is_relative_to(ROOT)
        told = run(
            *(python, "-m", "pytest", "-p", "contract_tests.plugin", "--pyargs", "contract_tests.suite"),
            *("--harness", "theirs:Theirs"),
            cwd=tmp_path,
            ALKSTORE_TEST_SCALE="0.02",
        )
    finally:
        behind.unlink()
    assert "theirs" in told.stdout
    assert " passed" in told.stdout
    assert "failed" not in told.stdout.splitlines()[-1]
