"""The suite's pytest plugin, run as an engine's author would run it, on stores made for the purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]

HARNESSES = """
from contract_tests.harness import Harness
from alkstore import Capabilities


class Store:
    def __init__(self, capabilities, log):
        self.capabilities, self.log, self.options = capabilities, log, None

    def close(self):
        self.log.append("close")


class Plain(Harness):
    name = "plain"
    can = dict(durable=True, processes=True, transactions=True, sql=True)

    def __init__(self):
        self.log, self.places = [], 0

    def start(self):
        self.log.append("start")

    def stop(self):
        assert self.log[0] == "start", self.log
        assert self.log.count("open") == self.log.count("close"), self.log
        assert self.log.count("new") == self.log.count("drop"), self.log

    def new_place(self):
        self.log.append("new")
        self.places += 1
        return f"place-{self.places}"

    def drop_place(self, place):
        self.log.append("drop")

    def open(self, place, **options):
        self.log.append("open")
        store = Store(Capabilities(**self.can), self.log)
        store.place, store.options = place, options
        return store

    def peek(self, place):
        return []


class Poor(Plain):
    name = "poor"
    can = dict(durable=False, processes=False, transactions=False, join=False, sql=False)


class Excused(Plain):
    name = "excused"
    excuses = {"Q-1": "being worked on"}


class Wrong(Plain):
    name = "wrong"
    excuses = {"Q-99": "no such thing"}


class Abstract(Harness):
    name = "abstract"


class NotOne:
    pass
"""

TESTS = """
from contract_tests.clauses import clause


@clause("Q-2")
def test_plain(store, place, clock):
    assert store.place == place
    assert store.options == {"clock": clock}


@clause("Q-2", "T-1")
def test_with_transactions(open_store):
    assert open_store() is not open_store(migrate=False)


@clause("J-1", needs="sql")
def test_with_sql(queue_name, queue_names, worker, peek):
    assert queue_name != queue_names()
    assert [] == peek()
"""

FAILING = """
from contract_tests.clauses import clause


@clause("Q-1")
def test_that_passes(place):
    pass


@clause("Q-1", "Q-3")
def test_that_fails(place):
    assert False
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of an author's, with harnesses; the repository's own configuration plays no part."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "ALKSTORE_TEST_SCALE"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(harnesses=HARNESSES)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    if any(argument.startswith("-n") for argument in arguments):
        return project.runpytest_subprocess("-p", "contract_tests.plugin", *arguments)
    # Starting a Python for each would take most of the time. What was imported before isn't to be complained of.
    return project.runpytest_inprocess("-p", "contract_tests.plugin", "-W", "ignore::pytest.PytestWarning", *arguments)


def says(result: pytest.RunResult, *lines: str) -> None:
    result.stdout.fnmatch_lines([f"*{line}*" for line in lines])


def test_ids_carry_the_engines_name_and_clauses_are_summed_up(project: pytest.Pytester) -> None:
    """Each test runs on each engine that is named; the summary is per engine."""
    project.makepyfile(test_it=TESTS)

    result = run(project, "-v", "--harness", "harnesses:Plain", "--harness", "harnesses:Poor")

    result.assert_outcomes(passed=4, skipped=2)
    for name in ("test_plain[[]plain]", "test_plain[[]poor]"):
        result.stdout.fnmatch_lines([f"*{name} PASSED*"])
    result.stdout.fnmatch_lines(
        [
            "plain: clauses: 3 passed, 0 skipped by declaration, 0 failed, * not run",
            "poor: clauses: 1 passed, 2 skipped by declaration, 0 failed, * not run",
            "*J-1 skipped: not declared: sql (needed for J-1)",
            "*T-1 skipped: not declared: transactions (needed for Q-2, T-1)",
        ]
    )


def test_a_failing_clause_is_named_with_what_it_says(project: pytest.Pytester) -> None:
    """A clause fails with any of its tests."""
    project.makepyfile(test_it=FAILING)

    result = run(project, "--harness", "harnesses:Plain")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["plain: clauses: 0 passed, 0 skipped by declaration, 2 failed*", "*Q-1 failed: An oper*"]
    )


def test_an_excused_clause_may_fail(project: pytest.Pytester) -> None:
    """Its reason is told, and the run succeeds; what the same test says of other clauses isn't known then."""
    project.makepyfile(test_it=FAILING)

    result = run(project, "-rx", "--harness", "harnesses:Excused")

    result.assert_outcomes(passed=0, xpassed=1, xfailed=1)
    assert pytest.ExitCode.OK == result.ret
    says(
        result,
        "excused: clauses: 0 passed*0 failed, 1 excused",
        "Q-1 excused: being w",
        "Q-1 is excused: being worked on",
    )


def test_an_excuse_that_excuses_nothing_fails_the_run(project: pytest.Pytester) -> None:
    """When every test of the clause passes, or there is no such clause."""
    project.makepyfile(test_it=FAILING.replace("assert False", "pass"))

    result = run(project, "--harness", "harnesses:Excused")
    assert pytest.ExitCode.TESTS_FAILED == result.ret
    says(result, "Q-1: every test of it passed: take the excuse away")

    result = run(project, "--harness", "harnesses:Wrong")
    assert pytest.ExitCode.TESTS_FAILED == result.ret
    says(result, "Q-99: no such clause: take the excuse away")


def test_an_excuse_is_not_judged_by_a_part_of_its_tests(project: pytest.Pytester) -> None:
    """Deselecting the one that fails doesn't make the excuse a lie."""
    project.makepyfile(test_it=FAILING)
    for arguments in (["-k", "passes"], ["--deselect", "test_it.py::test_that_fails"]):
        assert pytest.ExitCode.OK == run(project, "--harness", "harnesses:Excused", *arguments).ret


def test_the_workers_of_xdist_share_the_work_and_the_summary_is_whole(project: pytest.Pytester) -> None:
    """Each starts the harness for itself."""
    project.makepyfile(test_it=TESTS, test_failing=FAILING)

    result = run(project, "-n2", "--harness", "harnesses:Plain", "--harness", "harnesses:Poor")

    result.assert_outcomes(passed=6, skipped=2, failed=2)
    says(
        result,
        "plain: clauses: 3 passed, 0 skipped by declaration, 2 failed",
        "poor: clauses: 1 passed, 2 skipped by*2 fail",
    )


@pytest.mark.parametrize(
    "arguments",
    [["--pyargs", "contract_tests.suite"], ["test_it.py"], ["test_it.py", "-n1"]],
    ids=["the suite", "own tests", "own tests with xdist"],
)
def test_the_suite_without_an_engine_is_an_error_of_usage(project: pytest.Pytester, arguments: list[str]) -> None:
    """It says what to add."""
    project.makepyfile(test_it=TESTS)

    result = run(project, *arguments)

    assert pytest.ExitCode.OK != result.ret
    assert "needs an engine to judge: --harness some.module:Class" in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("harnesses", "is not of the form some.module:Class"),
        ("harnesses:", "is not of the form some.module:Class"),
        ("no_such_module:Class", "can't be imported: No module named 'no_such_module'"),
        ("harnesses:NoSuchClass", "harnesses has no NoSuchClass"),
        ("harnesses:NotOne", "is not a subclass of contract_tests.harness.Harness"),
        ("harnesses:Abstract", "lacks drop_place, new_place, peek"),
    ],
)
def test_a_wrong_harness_is_an_error_of_usage(project: pytest.Pytester, reference: str, message: str) -> None:
    """Before any test runs, and with what is wrong."""
    result = run(project, "--harness", reference)

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines([f"ERROR: *{message}*"])


def test_one_name_for_two_engines_is_an_error_of_usage(project: pytest.Pytester) -> None:
    """Nobody could tell their results apart."""
    result = run(project, "--harness", "harnesses:Plain", "--harness", "harnesses:Plain")

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    result.stderr.fnmatch_lines(["ERROR: --harness: two engines of one name among plain, plain"])


def test_a_test_that_cites_an_unknown_clause_is_an_error(project: pytest.Pytester) -> None:
    """It isn't collected."""
    project.makepyfile(test_it=TESTS.replace("Q-2", "Q-99"))

    result = run(project, "--harness", "harnesses:Plain")

    result.assert_outcomes(errors=1)
    says(result, "no clause is called Q-99")


def test_an_authors_own_tests_run_beside_the_suite_undisturbed(project: pytest.Pytester) -> None:
    """With fixtures of the same names, with none of the clauses, and with no harness."""
    project.makepyfile(
        test_own="""
            import pytest

            @pytest.fixture
            def store():
                return "my own"

            @pytest.fixture
            def harness():
                return "mine too"

            def test_own(store, harness):
                assert (store, harness) == ("my own", "mine too")
        """
    )

    without = run(project)
    without.assert_outcomes(passed=1)
    without.stdout.no_fnmatch_line("*alkstore's contract*")

    project.makepyfile(test_it=TESTS)
    beside = run(project, "--strict-markers", "--harness", "harnesses:Plain")
    beside.assert_outcomes(passed=4)
    says(beside, "plain: clauses: 3 passed")


def test_a_harness_is_found_beside_the_tests_by_the_pytest_command(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pytest`` leaves the current directory out of the path, unlike ``python -m pytest``."""
    project.makepyfile(test_it=TESTS)
    inside = "import sys, pytest; sys.path[:] = [p for p in sys.path if p]; sys.exit(pytest.main(sys.argv[1:]))"

    told = subprocess.run(
        [
            sys.executable,
            "-c",
            inside,
            "-p",
            "contract_tests.plugin",
            "--import-mode=importlib",
            "--harness",
            "harnesses:Plain",
        ],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "plain: clauses: 3 passed" in told.stdout, told.stdout + told.stderr


def test_a_harness_can_be_made_again_in_another_process(project: pytest.Pytester) -> None:
    """By its reference, which is text."""
    project.makepyfile(
        test_it="""
            import subprocess, sys
            from contract_tests.clauses import clause

            @clause("S-1")
            def test_it(harness, place):
                code = "import sys; from contract_tests.harness import load; h = load(sys.argv[1]); h.log.append('open');"
                code += "print(h.open(sys.argv[2]).place, h.log.count('start'))"
                told = subprocess.check_output([sys.executable, "-c", code, harness.reference, place], text=True)
                assert told.split() == [place, "0"]
        """
    )
    run(project, "--harness", "harnesses:Plain").assert_outcomes(passed=1)
