"""What came of each clause on each engine, told at the end of the run; and the strictness of excuses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from contract_tests.clauses import CLAUSES

ENGINE_KEY: Final = "alkstore-engine"
CLAUSES_KEY: Final = "alkstore-clauses"
EXCUSED_KEY: Final = "alkstore-excused"
"""The properties that a test's report carries: from pytest-xdist's workers too, and into JUnit's XML."""

SKIPPED: Final = "not declared: "
"""How the reason of every skip begins."""

# What a test can come to, the first one that any of its clause's tests came to being the clause's.
_FAILED, _EXCUSED, _OTHERWISE, _PASSED, _DECLARED = "failed", "excused", "skipped otherwise", "passed", "skipped"
_ORDER: Final = (_FAILED, _EXCUSED, _OTHERWISE, _PASSED, _DECLARED)


class Report:
    """Gathers the outcomes, in the process that reports."""

    def __init__(self, excuses: Mapping[str, Mapping[str, str]]) -> None:
        """Take the excuses of each engine."""
        self._excuses = excuses
        self._outcomes: dict[str, dict[str, set[str]]] = {engine: defaultdict(set) for engine in excuses}
        self._reasons: dict[tuple[str, str], str] = {}
        self._deselected: set[tuple[str, str]] = set()
        self._partial = False

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember what wasn't run: an excuse can be judged only by all of its clause's tests."""
        for item in items:
            properties = dict(item.user_properties)
            for name in str(properties.get(CLAUSES_KEY, "")).split():
                self._deselected.add((str(properties.get(ENGINE_KEY)), name))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a phase of a test came to; a passed set-up or tear-down says nothing yet."""
        properties = dict(report.user_properties)
        engine, cited = properties.get(ENGINE_KEY), str(properties.get(CLAUSES_KEY, "")).split()
        if engine not in self._outcomes:
            return
        excused = str(properties.get(EXCUSED_KEY, "")).split()
        for name in cited:
            outcome = self._outcome(report, name in excused)
            if outcome is not None:
                self._outcomes[str(engine)][name].add(outcome)
                if outcome in (_DECLARED, _OTHERWISE):
                    self._reasons[str(engine), name] = _reason(report)

    def _outcome(self, report: pytest.TestReport, excused: bool) -> str | None:
        if report.failed:
            return _FAILED
        if hasattr(report, "wasxfail"):
            # An excused test that failed says nothing of the other clauses that it cites.
            if report.skipped:
                return _EXCUSED if excused else None
        elif report.skipped:
            return _DECLARED if _reason(report).startswith(SKIPPED) else _OTHERWISE
        return _PASSED if report.when == "call" else None

    def _verdicts(self, engine: str) -> dict[str, str]:
        found = self._outcomes[engine]
        return {name: next(kind for kind in _ORDER if kind in found[name]) for name in CLAUSES if found.get(name)}

    def _stale(self, engine: str) -> list[str]:
        """The excused clauses whose tests all passed, or that don't exist."""
        verdicts = self._verdicts(engine)
        return [
            name
            for name in self._excuses[engine]
            if name not in CLAUSES
            or (verdicts.get(name) == _PASSED and not (self._partial or (engine, name) in self._deselected))
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run for an excuse that excuses nothing."""
        if hasattr(session.config, "workerinput"):
            return
        if session.config.option.keyword or session.config.option.markexpr:
            self._partial = True  # what pytest-xdist's workers deselect isn't told here
        if session.exitstatus == pytest.ExitCode.OK and any(self._stale(engine) for engine in self._excuses):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say per engine how the clauses fared, and name those that didn't pass."""
        engines = [engine for engine in self._outcomes if self._outcomes[engine] or self._stale(engine)]
        if not engines:
            return
        terminalreporter.section("alkstore's contract")
        for engine in engines:
            verdicts = self._verdicts(engine)
            counts = {kind: [name for name in verdicts if verdicts[name] == kind] for kind in _ORDER}
            absent = [name for name in CLAUSES if name not in verdicts]
            line = f"{len(counts[_PASSED])} passed, {len(counts[_DECLARED])} skipped by declaration"
            line += f", {len(counts[_FAILED])} failed"
            for kind in (_EXCUSED, _OTHERWISE):
                line += f", {len(counts[kind])} {kind}" if counts[kind] else ""
            line += f", {len(absent)} not run" if absent else ""
            terminalreporter.write_line(f"{engine}: clauses: {line}")
            for name in counts[_FAILED]:
                terminalreporter.write_line(f"  {name} failed: {CLAUSES[name].says}", red=True)
            for name in counts[_EXCUSED]:
                terminalreporter.write_line(f"  {name} excused: {self._excuses[engine][name]}")
            for kind in (_DECLARED, _OTHERWISE):
                for name in counts[kind]:
                    terminalreporter.write_line(f"  {name} skipped: {self._reasons[engine, name]}")
            for name in self._stale(engine):
                why = "every test of it passed" if name in CLAUSES else "no such clause"
                terminalreporter.write_line(f"  {name}: {why}: take the excuse away", red=True)


def _reason(report: pytest.TestReport) -> str:
    """Return the reason of a skip."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
