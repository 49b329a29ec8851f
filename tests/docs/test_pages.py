"""The pages are complete: whatever a user can name is on one of them."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import alkstore
from alkstore import errors, testing
from alkstore.capabilities import Capabilities
from alkstore.engine import Executor
from alkstore.options import Backoff, JobOptions, QueueFields, QueueOptions
from alkstore.tasks import TaskFields
from alkstore.testing import plugin
from contract_tests.clauses import CLAUSES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = ("alkstore", "alkstore_postgres", "alkstore_sqlite", "contract_tests", "tests", "examples", "benchmarks")

CLAUSE_ID = re.compile(r"(?<![\w-])(?:Q-ENQ|Q-CLAIM|[NSOJQTWRXZ])-\d+(?![\w-])")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def sources() -> Iterator[Path]:
    for folder in OURS:
        yield from (ROOT / folder).rglob("*.py")


def documented(text: str, names: set[str]) -> set[str]:
    """Those of the names that a table row of the page begins with, or has in its second column."""
    return {name for name in names if re.search(rf"^\|(?: [^|]+ \|)? `{re.escape(name)}` \|", text, re.MULTILINE)}


# --- errors and options --------------------------------------------------------------------------------------------


def error_classes() -> set[str]:
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.AlkstoreError)
    }


def test_every_error_has_a_row_on_the_page() -> None:
    assert documented(page("errors.md"), error_classes()) == error_classes()


def test_every_error_can_be_caught_by_what_the_package_exports() -> None:
    assert error_classes() <= set(alkstore.__all__)


def test_every_argument_of_open_has_a_row() -> None:
    named = {
        name
        for name, parameter in inspect.signature(alkstore.open).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert documented(page("options.md"), named) == named


@pytest.mark.parametrize(
    ("engine", "url"), [("SQLite", "sqlite:///:memory:"), ("PostgreSQL", "postgresql://nobody@127.0.0.1:1/nowhere")]
)
def test_every_option_of_an_engine_has_a_row(engine: str, url: str) -> None:
    """An engine that is given an option it doesn't know names, at the end, those that it knows."""
    with pytest.raises(alkstore.ValidationError, match="nonsense") as refused:
        alkstore.open(url, nonsense=True)
    known = set(re.findall(r"\w+", str(refused.value).rpartition(";")[2])) - {"it", "has", "those", "are"}
    rows = re.findall(rf"^\| {engine} \| `(\w+)` \|", page("options.md"), re.MULTILINE)
    assert known == set(rows)


def test_every_queue_option_has_a_row() -> None:
    named = {field.name for field in dataclasses.fields(QueueOptions)} | set(QueueFields.__annotations__)
    assert documented(page("options.md"), named) == named


def test_every_job_option_has_a_row() -> None:
    named = set(JobOptions.__annotations__)
    assert documented(page("options.md"), named) == named


def test_every_argument_of_a_worker_has_a_row() -> None:
    named = set(inspect.signature(alkstore.Worker).parameters) - {"store"}
    assert documented(page("worker.md"), named) == named


def test_every_option_of_a_task_has_a_row() -> None:
    rows = " ".join(re.findall(r"^\| (`[^|]+`) \|", page("tasks.md"), re.MULTILINE))
    assert set(TaskFields.__annotations__) | {"pass_job"} == set(re.findall(r"`(\w+)`", rows))


def test_everything_of_the_test_kit_is_on_its_page() -> None:
    text = page("testing_your_code.md")
    assert {name for name in testing.__all__ if f"`{name}" in text} == set(testing.__all__)
    fixtures = {name for name in vars(plugin) if name.startswith("alkstore_")}
    assert {"alkstore_store", "alkstore_clock"} <= fixtures
    assert documented(text, fixtures) == fixtures


def test_the_backoff_is_documented_with_its_defaults() -> None:
    assert f"`{Backoff()!r}`" in page("options.md")


def test_every_capability_is_named() -> None:
    named = {field.name for field in dataclasses.fields(Capabilities)}
    assert {name for name in named if f"`{name}`" in page("contract.md")} == named


def test_every_environment_variable_has_a_row() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sources()) + (ROOT / "Makefile").read_text("utf-8")
    named = set(re.findall(r"\bALKSTORE_[A-Z]+(?:_[A-Z]+)*\b", text))
    assert "ALKSTORE_URL" in named
    assert documented(page("options.md"), named) == named


# --- make ----------------------------------------------------------------------------------------------------------


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY:(.*)$", makefile(), re.MULTILINE)
    assert phony is not None
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile(), re.MULTILINE))
    assert set(phony[1].split()) == targets, "every target is phony, and every phony one is a target"
    return targets


def make(*arguments: str, **environ: str) -> str:
    # As from a person's shell: the tests themselves may run below `make test`, whose variables are inherited.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**kept, **environ}, capture_output=True, text=True, check=True).stdout


def test_make_help_prints_every_target() -> None:
    """`make` alone does so too."""
    for told in (make("help"), make()):
        assert set(re.findall(r"^  make (\S+) ", told, re.MULTILINE)) == make_targets()


def test_make_run_heeds_only_what_is_written_on_its_command_line() -> None:
    """An environment may hold a DIR or a URL by chance; and neither is taken apart by a shell."""

    def dry(*arguments: str) -> str:
        return make("-n", "run", *arguments, DIR="by chance", URL="by chance")

    assert "$DIR" not in dry()
    assert "$URL" not in dry()
    assert dry("DIR=a 'b'").rstrip().endswith('examples/index_files.py  -- "$DIR"')
    assert "$" not in dry("DIR=", "URL=")
    assert '--url "$URL"' in dry("URL=postgresql://u:p&q@host/x?y=z")


def test_every_make_target_has_a_row() -> None:
    text = page("testing.md")
    assert {target for target in make_targets() if f"| `make {target}` |" in text} == make_targets()


def test_every_make_variable_has_a_row() -> None:
    named = set(re.findall(r"^([A-Z]+) *\?=", makefile(), re.MULTILINE))
    named |= set(re.findall(r"\[([A-Z]+)=", makefile())) | {"PYTHON"}
    assert documented(page("options.md"), named) == named


def test_the_author_of_an_engine_is_told_every_operation() -> None:
    text = page("engine_authors.md")
    operations = {name for name, value in vars(Executor).items() if inspect.isfunction(value) and name[0] != "_"}
    assert {"insert", "claim", "sweep"} <= operations
    assert {name for name in operations if re.search(rf"\b{name}\b", text)} == operations


# --- clauses -------------------------------------------------------------------------------------------------------


def clauses_on_the_page() -> list[str]:
    return re.findall(r"^- \*\*([A-Z-]+\d+)\*\*", page("contract.md"), re.MULTILINE)


def clauses_not_yet_built() -> set[str]:
    paragraph = page("contract.md").partition("**Not yet built**")[2].partition("\n\n")[0]
    spelt = re.sub(r"\s+", " ", paragraph)
    ids = set(CLAUSE_ID.findall(spelt))
    for kind, first, last in re.findall(r"([A-Z-]+)-(\d+) to [A-Z-]+-(\d+)", spelt):
        ids |= {f"{kind}-{number}" for number in range(int(first), int(last) + 1)}
    return ids


def test_every_clause_stands_on_the_page_once() -> None:
    found = clauses_on_the_page()
    assert len(found) == len(set(found))
    assert set(CLAUSES) <= set(found)


def test_every_clause_is_judged_by_the_suite_or_marked_as_not_yet_built() -> None:
    assert clauses_not_yet_built() <= set(clauses_on_the_page())
    assert set(clauses_on_the_page()) - set(CLAUSES) <= clauses_not_yet_built()


def test_every_clause_that_is_cited_exists() -> None:
    cited: dict[str, str] = {}
    for path in [*sources(), *PAGES]:
        for name in CLAUSE_ID.findall(path.read_text(encoding="utf-8")):
            cited.setdefault(name, str(path.relative_to(ROOT)))
    known = {*clauses_on_the_page(), "Q-99", "Q-CLAIM-99"}  # those that tests cite because there are none such
    assert {name: where for name, where in cited.items() if name not in known} == {}


# --- pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    for target in targets:
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), f"{target} in {path.name}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_readme() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [path.name for path in PAGES[1:] if path.name not in readme] == []


def readme_examples() -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    return blocks


def readme_example() -> str:
    return readme_examples()[0]


def run_example(text: str, folder: Path) -> None:
    told = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)
    assert (told.stderr, told.returncode) == ("", 0)
    assert told.stdout == "sending {'to': 'ada@example.org', 'subject': 'Welcome'}\n"


def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    run_example(readme_example(), tmp_path)
    assert (tmp_path / "jobs.db").exists()


def test_the_example_in_the_readme_runs_on_postgresql_with_another_url(tmp_path: Path, postgres_url: str) -> None:
    run_example(readme_example().replace("sqlite:///jobs.db", postgres_url), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page_name", ["README.md", "docs/worker.md"])
def test_the_worker_on_a_page_works_until_it_is_told_to_stop(tmp_path: Path, page_name: str) -> None:
    text = readme_examples()[1] if page_name == "README.md" else first_example(page("worker.md"))
    with alkstore.open(f"sqlite:///{tmp_path / 'jobs.db'}") as store:
        store.queue("emails").enqueue({"to": "ada@example.org"})
        program = [sys.executable, "-u", "-c", "import alkstore\n" + text]
        with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert "ada@example.org" in worker.stdout.readline()
            worker.terminate()
            assert 0 == worker.wait(60)
        assert [] == store.queue("emails").jobs()


def first_example(text: str) -> str:
    found = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def examples(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_lines(lines: list[str], folder: Path) -> list[str]:
    told = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (told.stderr, told.returncode) == ("", 0)
    return told.stdout.splitlines()


def test_the_examples_of_tasks_run(tmp_path: Path) -> None:
    """All of them in one program, with a worker that ends when it is idle in the place of one that doesn't."""
    first, second, third = examples(page("tasks.md"))
    accounts = """
with store.transaction() as tx:
    tx.execute("CREATE TABLE accounts (name TEXT)")
register.enqueue("grace")
"""
    worker = "tasks.worker(concurrency=1).run(until_idle=True)"
    assert "tasks.worker(concurrency=10).run()" in first
    first, third = (
        first.replace("tasks.worker(concurrency=10).run()", worker),
        third.replace("print(job", f"{worker}; print(job"),
    )
    told = run_lines([first, second, accounts, worker, third], tmp_path)
    assert ["to ada@example.org hi", "to ada@example.org hi", "to grace hi", "6"] == told


def test_the_examples_of_the_test_kit_run(tmp_path: Path) -> None:
    first, second, *_ = examples(page("testing_your_code.md"))
    assert ["reminding ada", "reminding grace", "reminding edsger"] == run_lines([first, second], tmp_path)


def test_the_example_in_the_readme_is_short() -> None:
    assert len([line for line in readme_example().splitlines() if line.strip()]) <= 20
