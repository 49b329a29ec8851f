"""The pytest plugin that runs the suite: ``pytest -p contract_tests.plugin --pyargs contract_tests.suite --harness a.b:C``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest

# The suite's helpers assert too, and should say as much as the tests do when they fail.
_HELPERS: Final = ("children", "churn", "compare", "history", "machines", "model", "steps", "together")
pytest.register_assert_rewrite(*(f"contract_tests.{name}" for name in _HELPERS))

from contract_tests.harness import MISSING, Harness, HarnessError, load  # noqa: E402  (after the rewriting is set up)
from contract_tests.report import CLAUSES_KEY, ENGINE_KEY, EXCUSED_KEY, Report  # noqa: E402
from contract_tests.scale import rounds  # noqa: E402

pytest_plugins = ("contract_tests.fixtures",)

SUITE: Final = "contract_tests.suite"


@dataclass(frozen=True)
class Named:
    """A harness that the command line names."""

    reference: str
    harness: Harness


_NAMED: Final = pytest.StashKey[list[Named]]()
_ORPHANS: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--harness``."""
    parser.getgroup("alkstore", "alkstore's contract suite").addoption(
        "--harness",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="the harness of an engine to judge (contract_tests.harness.Harness); may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the harnesses, so that a wrong name is an error of usage and not of every test."""
    config.addinivalue_line("markers", "clause(*ids): the clauses of alkstore's contract that the test judges")
    try:
        rounds(1)
        named = [
            Named(reference, _load(reference, config)) for reference in cast(list[str], config.getoption("harness", []))
        ]
    except ValueError as exc:  # HarnessError is one
        raise pytest.UsageError(str(exc)) from exc
    names = [entry.harness.name for entry in named]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"--harness: two engines of one name among {', '.join(names)}")
    if not named and any(str(arg).startswith(SUITE) for arg in config.args):
        raise pytest.UsageError(MISSING)
    config.stash[_NAMED] = named
    config.stash[_ORPHANS] = []
    config.pluginmanager.register(Report({entry.harness.name: entry.harness.excuses for entry in named}), "contract")


def _load(reference: str, config: pytest.Config) -> Harness:
    """Load a harness; where it can't be found, look in the directory that pytest was called from, too."""
    try:
        return load(reference)
    except HarnessError:
        # `pytest`, unlike `python -m pytest`, leaves that directory out of the path. Child processes inherit it.
        here = str(config.invocation_params.dir)
        if here in sys.path:
            raise
        sys.path.insert(0, here)
        importlib.invalidate_caches()
        return load(reference)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses an engine on every engine named."""
    if "contract_engine" not in metafunc.fixturenames:
        return
    named = metafunc.config.stash[_NAMED]
    references, names = [entry.reference for entry in named], [entry.harness.name for entry in named]
    if not named:
        metafunc.config.stash[_ORPHANS].append(metafunc.definition.nodeid)
        references, names = [""], ["none"]
    metafunc.parametrize("contract_engine", references, ids=names, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)  # before -k and -m deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write on every test which clauses it judges, on which engine, and whether it is excused."""
    if config.stash[_ORPHANS] and not hasattr(config, "workerinput"):
        # One of pytest-xdist's workers has no way to say so but by the tests, which fail: see `contract_engine`.
        raise pytest.UsageError(MISSING)
    harnesses = {entry.reference: entry.harness for entry in config.stash[_NAMED]}
    for item in items:
        mark = item.get_closest_marker("clause")
        if mark is None:
            if _in_suite(item):
                raise pytest.UsageError(f"{item.nodeid} cites no clause: decorate it with @clause(...)")
            continue
        harness = harnesses.get(_parameter(item))
        if harness is None:
            continue
        cited = cast(Iterable[str], mark.args)
        item.user_properties.append((ENGINE_KEY, harness.name))
        item.user_properties.append((CLAUSES_KEY, " ".join(cited)))
        excused = [name for name in cited if name in harness.excuses]
        if excused:
            reasons = "; ".join(f"{name} is excused: {harness.excuses[name]}" for name in excused)
            item.user_properties.append((EXCUSED_KEY, " ".join(excused)))
            # Not strict by itself: of a clause that is broken in one place, the other tests still pass. See Report.
            item.add_marker(pytest.mark.xfail(reason=reasons, strict=False))


def _in_suite(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    return module is not None and module.__name__.startswith(SUITE + ".")


def _parameter(item: pytest.Item) -> str:
    callspec: Any = getattr(item, "callspec", None)
    return "" if callspec is None else str(callspec.params.get("contract_engine", ""))
