"""The fixtures give each test a store of its own, and a clock that it goes by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import psycopg

ROOT: Final = Path(__file__).resolve().parents[2]

TESTS: Final = """
from alkstore import Tasks
from alkstore.testing import assert_enqueued, drain

tasks = Tasks()
seen = []


@tasks.task
def remind(who):
    seen.append(who)


def test_a_reminder_comes_after_an_hour(alkstore_store, alkstore_clock):
    assert [] == alkstore_store.queues()
    tasks.bind(alkstore_store)
    remind.options(delay=3600).enqueue("ada")
    assert_enqueued(tasks, remind, args={"who": "ada"})
    drain(tasks)
    assert [] == seen
    alkstore_clock.tick(3600)
    drain(tasks)
    assert ["ada"] == seen
    remind.enqueue("left behind")


def test_nothing_is_left_of_another_test(alkstore_store, alkstore_url, expected_url):
    assert [] == alkstore_store.queues()
    assert expected_url == alkstore_url
"""


def run(folder: Path, url: str, *options: str, ini: str = "") -> str:
    """Run the tests in a project of their own, and return what pytest said."""
    (folder / "conftest.py").write_text(
        f'import pytest\n\npytest_plugins = ["alkstore.testing.plugin"]\n\n\n@pytest.fixture\ndef expected_url():\n'
        f"    return {url!r}\n"
    )
    (folder / "test_shop.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == told.returncode, told.stdout + told.stderr
    return told.stdout


def test_a_memory_store_needs_no_configuration(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, "sqlite:///:memory:")


def test_on_postgresql_each_test_has_a_schema_and_none_is_left(tmp_path: Path, postgres_url: str) -> None:
    def schemas() -> set[str]:
        with psycopg.connect(postgres_url) as connection:
            return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace")}

    before = schemas()
    assert "2 passed" in run(tmp_path, postgres_url, ini=f"alkstore_url = {postgres_url}")
    assert {name for name in schemas() - before if name.startswith("alkstore_test_")} == set()


def test_the_kit_does_not_import_pytest() -> None:
    """Nor does the library import the kit."""
    program = (
        "import sys, alkstore; assert 'alkstore.testing' not in sys.modules; "
        "import alkstore.testing; assert 'pytest' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (told.returncode, told.stderr)
