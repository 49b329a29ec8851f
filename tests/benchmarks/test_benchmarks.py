"""The benchmark's machinery: that it measures what it says, whatever the clock says. No figure is judged here."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.__main__ import main
from benchmarks.bench import LEAGUES, QUICK, Bench, League, Measured, Places
from benchmarks.children import Child, ChildError
from benchmarks.environments import REQUIREMENTS
from benchmarks.figures import Cell, Figures
from benchmarks.goals import Goal, goals
from benchmarks.picture import svg
from benchmarks.questions import QUESTIONS
from benchmarks.system import OPERATIONS, Durability, System, offers
from benchmarks.systems import OURS, RAW, systems
from benchmarks.table import markdown, text
from benchmarks.tally import Tally
from tests.support.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
JOBS = 30
TINY = dataclasses.replace(
    QUICK,
    rounds=1,
    seconds=0.001,
    bulk=200,
    pings=3,
    idle=0.05,
    hammer=0.1,
    memory=1_000,
    growth=dict.fromkeys(QUICK.growth, 50),
    snapshot=1_000,
)
OUR_OWN = [system for system in systems() if system.name in {RAW, OURS}]


class Misbehaving(System):
    """A system that prints, and fails when it is told to."""

    name = "misbehaving"
    engine = "sqlite"
    durabilities: ClassVar[tuple[Durability, ...]] = ("full", "normal")

    def open(self, place: str, durability: Durability, *, create: bool) -> None:
        print("a system may print what it likes", place, durability, create)

    def close(self) -> None:
        print('{"ok": "even this"}')

    def enqueue(self, jobs: int, first: int = 0) -> None:
        raise ValueError(f"no {jobs} jobs\nwill go in")

    def claim_ack(self, jobs: int) -> None:
        sys.exit(3)


def bench_of(league: League, server: PostgresServer | None, tmp_path: Path, *also: type[System]) -> Bench:
    playing = {system: Path(sys.executable) for system in [*OUR_OWN, *also] if league.admits(system)}
    return Bench(league, TINY, playing, Figures(), server, Places(league, server, tmp_path))


@pytest.fixture(params=LEAGUES, ids=lambda league: league.name)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    league: League = request.param
    server = request.getfixturevalue("postgres_server") if league.engine == "postgresql" else None
    return bench_of(league, server, tmp_path)


# --- the questions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name != "snapshot"])
def test_every_question_has_figures_of_ours_and_of_the_limit(question: str, bench: Bench) -> None:
    QUESTIONS[question](bench)
    cells = bench.figures.cells
    assert {(cell.league, cell.values != ()) for cell in cells} == {(bench.league.name, True)}, [c.note for c in cells]
    alone = question in {"memory", "growth"} or (question == "threads" and bench.league.engine == "sqlite")
    for row in bench.figures.rows(bench.league.name):
        assert set(bench.figures.systems(bench.league.name, row)) == ({OURS} if alone else {RAW, OURS})


def test_a_held_snapshot_is_measured_where_the_engine_has_such(bench: Bench) -> None:
    QUESTIONS["snapshot"](bench)
    found = {(cell.row, cell.system) for cell in bench.figures.cells if cell.values}
    held = {("claim, snapshot held for 1,000", name) for name in (RAW, OURS)}
    released = {("claim, snapshot released", name) for name in (RAW, OURS)}
    assert found == (held | released if bench.league.engine == "postgresql" else set())


def test_every_goal_is_judged_when_everything_was_measured(bench: Bench) -> None:
    """A goal whose row nobody measures would never be missed."""
    measured = _everything(bench.league.name)
    unjudged = [goal for goal in goals(TINY) if goal.league == bench.league.name and goal.judge(measured)[1] is None]
    assert unjudged == []


def _everything(league: str) -> Figures:
    """Return what a run would have, in which each row that a goal may look at has a figure of everybody."""
    figures = Figures()
    rows = {goal.row for goal in goals(TINY) if goal.league == league}
    for row in rows:
        for name in (RAW, OURS, "honker", "pgqueuer"):
            figures.add(Cell(league, row, name, "/s", (1.0,)))
    return figures


def test_the_rows_of_the_goals_are_the_questions_rows(bench: Bench) -> None:
    for name in ("enqueue", "enqueue_many", "threads", "claim_ack"):
        QUESTIONS[name](bench)
    measured = set(bench.figures.rows(bench.league.name))
    prefixes = ("enqueue", "claim_one")
    asked = {goal.row for goal in goals(TINY) if goal.league == bench.league.name and goal.row.startswith(prefixes)}
    assert asked <= measured


# --- the adapters, and how they are spoken to ----------------------------------------------------------------------


@pytest.mark.parametrize("system", systems(), ids=lambda system: f"{system.name}-{system.engine}")
def test_every_adapter_declares_itself_without_importing_what_it_adapts(system: type[System]) -> None:
    assert offers(system, "enqueue")
    assert {name for name in vars(system) if name in OPERATIONS} <= set(OPERATIONS)
    assert [league for league in LEAGUES if league.admits(system)]
    said = sys.modules[system.__module__].__doc__
    assert said
    if system.requirements is None:
        assert system.name in {RAW, OURS}
    else:
        pinned = (REQUIREMENTS / f"{system.requirements}.txt").read_text(encoding="utf-8").split("\n")
        assert all("==" in line for line in pinned if line)


@pytest.mark.parametrize("system", OUR_OWN, ids=lambda system: f"{system.name}-{system.engine}")
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_what_an_adapter_enqueues_it_claims_and_acks(
    system: type[System], durability: Durability, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    league = next((x for x in LEAGUES if x.admits(system) and x.durability == durability), None)
    if league is None:
        assert durability == "normal"
        return
    server = request.getfixturevalue("postgres_server") if league.engine == "postgresql" else None
    with bench_of(league, server, tmp_path).group(system) as (child,):
        for operation, arguments in (("enqueue", {}), ("enqueue_many", {"batch": 7}), ("fill", {})):
            for claim, batch in (("claim_ack", {}), ("claim_batches", {"batch": 10})):
                child.run(operation, 60.0, jobs=JOBS, **arguments)
                assert child.run(claim, 60.0, jobs=JOBS, **batch)["seconds"] > 0
        child.run("fill", jobs=JOBS)
        assert len(child.run("claim_times", jobs=JOBS)["returned"]) == JOBS
        child.run("fill", jobs=JOBS)
        worked = child.ask({"do": "work", "expected": JOBS, "best": True, "tell": False})
        assert worked["handled"] == JOBS
        assert worked["first"] <= worked["last"]


def test_a_worker_that_is_to_tell_says_when_each_job_began_and_stops_when_told(bench: Bench) -> None:
    for system in bench.offering("work"):
        with bench.group(system, 2) as (waiting, enqueueing):
            waiting.tell({"do": "work", "expected": None, "best": False, "tell": True})
            for number in (1, 2, 3):
                enqueueing.run("enqueue", jobs=1, first=number)
                assert waiting.hear(30.0)["heard"] == number
            waiting.tell({"do": "stop"})
            assert waiting.answer(30.0)["handled"] == 3


def test_a_worker_ends_with_the_runner_that_started_it(tmp_path: Path) -> None:
    """A runner that is killed leaves nobody behind who waits for jobs."""
    ours = next(system for system in OUR_OWN if (system.name, system.engine) == (OURS, "sqlite"))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.child", ours.__module__, ours.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    place = {"do": "open", "place": str(tmp_path / "x.db"), "durability": "normal", "create": True}
    work = {"do": "work", "expected": None, "best": False, "tell": True}
    enqueued = {"do": "run", "operation": "enqueue", "arguments": {"jobs": 1, "first": 7}}
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for message in (place, enqueued, work):
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("heard") != 7:
            pass
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.fixture
def misbehaving(tmp_path: Path) -> Any:
    with Child(Misbehaving, Path(sys.executable)) as child:
        child.open(str(tmp_path / "x"), "full", create=True)
        yield child


def test_what_a_system_prints_is_no_answer(misbehaving: Child) -> None:
    assert misbehaving.ask({"do": "spent"})["spent"] > 0


def test_a_failure_is_told_in_a_line(misbehaving: Child) -> None:
    with pytest.raises(ChildError, match=r"^ValueError: no 3 jobs$"):
        misbehaving.run("enqueue", jobs=3)


def test_a_system_that_ends_its_process_is_told_of(misbehaving: Child) -> None:
    with pytest.raises(ChildError, match=r"^SystemExit: 3$"):
        misbehaving.run("claim_ack", jobs=3)
    with pytest.raises(ChildError):
        misbehaving.run("enqueue", jobs=3)


def test_a_system_that_is_silent_is_given_up(misbehaving: Child) -> None:
    with pytest.raises(ChildError, match="took too long"):
        misbehaving.answer(0.01)


def test_a_system_that_fails_is_out_of_its_row_and_the_others_stay(tmp_path: Path) -> None:
    bench = bench_of(LEAGUES[1], None, tmp_path, Misbehaving)
    QUESTIONS["enqueue"](bench)
    failed = bench.figures.cell("sqlite-normal", "enqueue", "misbehaving")
    assert failed is not None
    assert (failed.values, failed.note) == ((), "ValueError: no 100 jobs")
    ours = bench.figures.cell("sqlite-normal", "enqueue", OURS)
    assert ours is not None
    assert len(ours.values) == TINY.rounds


def test_systems_are_measured_in_turn(tmp_path: Path) -> None:
    bench = bench_of(LEAGUES[1], None, tmp_path)
    order: list[str] = []

    def measure(group: list[Child], prepared: object) -> Measured:
        order.append(f"{group[0].system.name} {prepared}")
        return Measured(1.0)

    bench.in_turn("row", bench.systems, lambda _: "ready", measure, unit="/s", rounds=3)
    assert order == ["raw ready", "alkstore ready"] * 3


# --- counting ------------------------------------------------------------------------------------------------------


def test_a_tally_is_over_at_the_expected_job_and_tells_who_asked() -> None:
    tally, told = Tally(2), list[str]()
    tally.when_over(lambda: told.append("before"))
    tally.one()
    assert (tally.over.is_set(), told) == (False, [])
    tally.one()
    tally.when_over(lambda: told.append("after"))
    assert (tally.handled, tally.over.is_set(), told) == (2, True, ["before", "after"])
    assert 0 < tally.first <= tally.last


# --- what is printed -----------------------------------------------------------------------------------------------


@pytest.fixture
def figures() -> Figures:
    found = Figures(machine={"cores": "2"}, versions={"SQLite": "3"}, absent={"oban": "it needs Python 3.12"})
    found.add(Cell("sqlite-full", "enqueue", RAW, "/s", (1_000.0, 900.0, 1_100.0), (50.0,)))
    found.add(Cell("sqlite-full", "enqueue", OURS, "/s", (800.0, 700.0, 900.0), (60.0,)))
    found.add(Cell("sqlite-full", "enqueue", "huey", "/s", note="a | b < c"))
    return found


GOAL = Goal("sqlite-full", "enqueue", ">= 0.9 of raw", lambda _: 0.8, least=0.9)


def test_the_table_has_medians_ratios_and_reasons(figures: Figures) -> None:
    said = text(figures, [GOAL])
    assert "Not measured: oban: it needs Python 3.12." in said
    line = next(line for line in said.splitlines() if "alkstore" in line)
    assert line.split() == ["alkstore", "800/s", "700", "to", "900", "0.80", "60.0"]
    assert "sqlite-full: enqueue: >= 0.9 of raw, found 0.80" in said
    assert "0 goals are reached, 1 fall short, 0 weren't measured." in said


def test_every_line_of_a_markdown_table_has_as_many_cells_as_its_head(figures: Figures) -> None:
    tables = [block for block in markdown(figures, [GOAL]).split("\n\n") if block.startswith("|")]
    counts = [{line.replace(r"\|", "").count("|") for line in block.splitlines()} for block in tables]
    assert [len(different) for different in counts] == [1, 1]


def test_the_picture_is_well_formed_and_has_a_bar_for_each_figure(figures: Figures) -> None:
    tree = ET.fromstring(svg(figures))  # noqa: S314 - our own
    bars = [element for element in tree.iter("{http://www.w3.org/2000/svg}rect") if element.get("fill")]
    widths = {float(bar.get("width", "0")) for bar in bars}
    assert len(bars) == 2
    assert max(widths) * 0.8 == pytest.approx(min(widths))


@pytest.mark.parametrize(("value", "reached"), [(0.9, True), (0.89, False), (None, None)])
def test_a_goal_is_reached_fallen_short_of_or_unmeasured(value: float | None, reached: bool | None) -> None:
    goal = Goal("sqlite-full", "enqueue", "", lambda _: value, least=0.9)
    assert goal.judge(Figures()) == (value, reached)


def test_the_program_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.__main__.QUICK", TINY)
    arguments = ["--quick", "--rounds=2", "--engine=sqlite-full", "--only=raw,alkstore", "--question=enqueue"]
    out = tmp_path / "out"
    assert main([*arguments, "--out", str(out), "--places", str(tmp_path)]) == 0
    written: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [(cell["system"], len(cell["values"])) for cell in written["cells"]] == [(RAW, 2), (OURS, 2)]
    assert (out / "RESULTS.md").read_text(encoding="utf-8").startswith("# Results")
    ET.fromstring((out / "results.svg").read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert "SQLite, WAL, synchronous = FULL" in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["--only=nobody", "--question=none", "--rounds=0", "--engine=oracle"])
def test_what_the_program_does_not_know_is_named(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([argument])
    assert argument.partition("=")[0] in capsys.readouterr().err


def test_a_child_needs_nothing_but_the_standard_library() -> None:
    """A peer's environment has neither alkstore's driver nor the tests' tools."""
    code = "import sys, benchmarks.child, benchmarks.systems as s; s.systems; print(*sorted(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"psycopg", "pytest", "alkstore"}.isdisjoint(told.stdout.split())
