"""The list of clauses, against the suite and the documentation."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import contract_tests.suite
from alkstore.capabilities import Capabilities
from contract_tests.clauses import CLAUSES, clause

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path(contract_tests.suite.__file__ or "").parent


def citations() -> Iterator[tuple[str, str]]:
    """Every test of the suite with every clause that it cites."""
    for path in sorted(SUITE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "clause":
                    for argument in decorator.args:
                        assert isinstance(argument, ast.Constant), (
                            f"{path.name}: {node.name} must cite clauses literally"
                        )
                        yield f"{path.name}::{node.name}", str(argument.value)


def test_every_clause_is_judged_by_a_test_of_the_suite() -> None:
    """And none is cited that isn't in the list."""
    assert set(CLAUSES) == {name for _, name in citations()}


def test_every_test_of_the_suite_has_a_name_and_a_docstring_that_say_something() -> None:
    """A reader of the report should know what is broken."""
    for path in sorted(SUITE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
                assert node.name.count("_") >= 2, f"{path.name}: {node.name} says too little"


@pytest.mark.parametrize("name", CLAUSES)
def test_every_clause_stands_in_the_documentation(name: str) -> None:
    """Under its id, as a word."""
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page), f"docs/contract.md doesn't have {name}"


def test_every_clause_says_one_sentence_and_needs_a_capability_that_exists() -> None:
    """By the names of ``Capabilities``' fields."""
    declared = {field.name for field in dataclasses.fields(Capabilities)}
    for name, entry in CLAUSES.items():
        assert name == entry.id
        assert re.fullmatch(r"[A-Z][^\n]*[a-z0-9]\.", entry.says), entry
        assert entry.needs is None or entry.needs in declared, entry


def test_a_test_cannot_cite_what_is_not_there() -> None:
    """Nor nothing at all."""
    with pytest.raises(ValueError, match="Q-CLAIM-99"):
        clause("Q-CLAIM-1", "Q-CLAIM-99")
    with pytest.raises(ValueError, match="nothing"):
        clause()


def test_needs_are_those_of_the_clauses_and_the_tests_own(pytestconfig: pytest.Config) -> None:
    """A test is skipped where any of them isn't declared."""
    pytestconfig.addinivalue_line("markers", "clause: the suite's, where its plugin isn't loaded")

    @clause("Q-CLAIM-1", "T-1", needs=("sql", "durable"))
    def sample() -> None: ...

    (mark,) = sample.pytestmark  # type: ignore[attr-defined]
    assert (("Q-CLAIM-1", "T-1"), {"needs": ("durable", "sql", "transactions")}) == (mark.args, mark.kwargs)


ALLOWED = {"alkstore", "alkstore.protocols", "alkstore.capabilities"}


def test_the_suite_uses_only_the_protocols_and_public_names() -> None:
    """So that an engine without alkstore's front, and any engine but ours, can be judged by it."""
    for path in sorted(SUITE.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = {name for name in names if name.partition(".")[0].startswith("alkstore")}
            assert ours <= ALLOWED, f"{path.name} imports {ours - ALLOWED}"
