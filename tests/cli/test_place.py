"""Which store is meant: `--url` over `ALKSTORE_URL` over the table of the nearest `pyproject.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import alkstore
from alkstore.cli.app import app
from tests.integrations.places import Place


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def has(url: str, *queues: str) -> None:
    """Make a store with a job in each of the queues."""
    with alkstore.open(url, durability="relaxed") as store:
        for queue in queues:
            store.queue(queue).enqueue(1)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose file names one store, and stores for the other two ways; their queues say which it was."""
    project = tmp_path / "project"
    (project / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(project)
    has("sqlite:///table.db", "table")
    has(f"sqlite:///{tmp_path / 'variable.db'}", "variable")
    has(f"sqlite:///{tmp_path / 'option.db'}", "option")
    (project / "pyproject.toml").write_text('[tool.alkstore]\nurl = "sqlite:///table.db"\n')
    return project


def test_the_option_wins_over_the_variable_and_that_over_the_table(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "table" in run("stats").stdout
    monkeypatch.setenv("ALKSTORE_URL", f"sqlite:///{three.parent / 'variable.db'}")
    assert "variable" in run("stats").stdout
    assert "option" in run("stats", "--url", f"sqlite:///{three.parent / 'option.db'}").stdout
    monkeypatch.setenv("ALKSTORE_URL", "")
    assert "table" in run("stats").stdout, "an empty variable isn't set"


def test_a_relative_path_in_the_table_is_relative_to_its_file(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the same project would mean another store in each of its folders."""
    monkeypatch.chdir(three / "deep" / "down")
    assert "table" in run("stats").stdout
    assert Path.cwd() == three / "deep" / "down"


def test_a_relative_path_elsewhere_is_relative_to_here(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(three / "deep")
    has("sqlite:///here.db", "here")
    assert "here" in run("stats", "--url", "sqlite:///here.db").stdout
    monkeypatch.setenv("ALKSTORE_URL", "sqlite:///here.db")
    assert "here" in run("stats").stdout


def test_only_the_nearest_file_counts(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for other tools: what a part of the project doesn't say isn't looked for further up."""
    (three / "deep" / "pyproject.toml").write_text("[project]\nname = 'deep'\n")
    monkeypatch.chdir(three / "deep" / "down")
    told = run("stats")
    assert (2, "") == (told.exit_code, told.stdout)
    for name in ("--url", "ALKSTORE_URL", "[tool.alkstore]"):
        assert name in told.stderr


def test_other_keywords_of_open_stand_in_the_table(three: Path) -> None:
    (three / "pyproject.toml").write_text('[tool.alkstore]\nurl = "sqlite:///table.db"\ndurability = "relaxed"\n')
    assert '"durability": "relaxed"' in run("check", "--json").stdout
    (three / "pyproject.toml").write_text('[tool.alkstore]\nurl = "sqlite:///table.db"\nmax_payload = 3\n')
    assert 2 == run("enqueue", "q", "[1,2]").exit_code


def test_they_hold_for_another_url_too(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the table has everything but the URL, which has a password in it."""
    (three / "pyproject.toml").write_text('[tool.alkstore]\ndurability = "relaxed"\nlisten_url = "postgresql://x/y"\n')
    monkeypatch.setenv("ALKSTORE_URL", f"sqlite:///{three.parent / 'variable.db'}")
    assert '"durability": "relaxed"' in run("check", "--json").stdout


def test_the_schema_is_in_the_table_or_on_the_command_line(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        alkstore.open(postgres_database, schema="in_the_table") as one,
        alkstore.open(postgres_database, schema="on_the_line") as other,
    ):
        one.queue("one").enqueue(1)
        other.queue("other").enqueue(1)
    (tmp_path / "pyproject.toml").write_text('[tool.alkstore]\nschema = "in_the_table"\n')
    monkeypatch.setenv("ALKSTORE_URL", postgres_database)
    assert "one" in run("stats").stdout
    assert "other" in run("stats", "--schema", "on_the_line").stdout


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.alkstore", "pyproject.toml"),
        ("[tool]\nalkstore = 1\n", "tool.alkstore must be a table"),
        ("tool = 1\n", "no url"),
        ("[tool.alkstore]\nurl = 7\n", "url must be a str"),
        ("[tool.alkstore]\nurl = 'sqlite:///a.db'\nnonsense = 1\n", "nonsense"),
        ("[tool.alkstore]\nurl = 'sqlite:///a.db'\nlock_timeout = 'long'\n", "lock_timeout"),
    ],
)
def test_a_table_that_cannot_be_is_a_wrong_argument(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    told = run("stats")
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))
    assert named in told.stderr


def test_only_migrate_makes_a_schema(sqlite_place: Place, tmp_path: Path) -> None:
    """Not even where the table says so: a mistyped URL makes no database."""
    (tmp_path / "pyproject.toml").write_text("[tool.alkstore]\nmigrate = true\n")
    for command in (["stats"], ["enqueue", "q", "1"], ["sweep"], ["jobs", "list"], ["notify", "c"]):
        assert 1 == run(*command, "--url", sqlite_place.url).exit_code
        assert not sqlite_place.path.exists()
    assert 0 == run("migrate", "--url", sqlite_place.url).exit_code
    assert sqlite_place.path.exists()


def test_no_password_is_shown(tmp_path: Path) -> None:
    for url in (
        "postgresql://u:secret@127.0.0.1:1/x",
        "nothing://u:secret@h/x",
        "u:secret@h",
        "postgresql://u:secret@[h/x",
    ):
        told = run("stats", "--url", url)
        assert told.exit_code in {1, 2}
        assert 1 == len(told.stderr.splitlines())
        assert "secret" not in told.output
