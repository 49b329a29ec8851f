"""`alkstore check`: what it looks at, its limits, and its exit code; and `alkstore migrate`, which mends what can be."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import alkstore
from alkstore.cli.check import MAX_WAL, Limits, judge
from tests.cli.runs import Cli
from tests.integrations.places import Place

LIMITS = Limits(skew=5, snapshot_age=600, wal=None)


def found(cli: Cli, *arguments: str) -> tuple[int, dict[str, bool]]:
    """Return the exit code, and what is well."""
    told = cli("check", *arguments)
    assert "" == told.stderr
    marks = re.findall(r"^(ok|FAIL) +(\w+) ", told.stdout, re.MULTILINE)
    assert len(marks) == len(told.stdout.splitlines())
    return told.exit_code, {name: mark == "ok" for mark, name in marks}


def test_all_is_well_with_a_new_store(store: alkstore.Store, cli: Cli) -> None:
    well = {"database": True, "schema": True, "clock": True, "snapshot": True, "wal": True}
    assert (0, well) == found(cli)


def test_the_document_has_the_findings_and_the_health(store: alkstore.Store, cli: Cli) -> None:
    document: dict[str, Any] = cli.json("check")
    health = store.health()
    assert document["ok"] is True
    assert ["database", "schema", "clock", "snapshot", "wal"] == [finding["name"] for finding in document["checks"]]
    assert (health.engine, health.server_version) == (
        document["health"]["engine"],
        document["health"]["server_version"],
    )
    schema = document["checks"][1]
    assert "{}.{}".format(*health.schema_version) == schema["value"] == document["health"]["schema_version"]


def test_a_schema_that_is_not_there_is_a_finding_and_stays_so(place: Place, cli: Cli) -> None:
    """Looking creates nothing."""
    assert (1, {"database": True, "schema": False}) == found(cli)
    assert (1, {"database": True, "schema": False}) == found(cli)
    document = cli("check", "--json")
    assert 1 == document.exit_code
    assert '"ok": false' in document.stdout
    assert "python -m alkstore migrate" in cli("stats").stderr
    assert place.schema is not None or not place.path.exists()


def test_migrate_mends_it(place: Place, cli: Cli) -> None:
    assert re.fullmatch(r"\w+: the schema is at version [0-9.]+\n", cli.done("migrate"))
    assert 0 == found(cli)[0]
    assert {"engine", "schema_version"} == set(cli.json("migrate"))


def test_a_database_that_is_not_reached_is_a_finding(cli: Cli) -> None:
    cli.where = ["--url", "postgresql://nobody:secret@127.0.0.1:1/nowhere"]
    told = cli("check")
    assert (1, 1) == (told.exit_code, len(told.stdout.splitlines()))
    assert told.stdout.startswith("FAIL  database")
    assert "secret" not in told.stdout + told.stderr


def test_a_snapshot_that_is_held_too_long_is_a_finding(
    store: alkstore.Store, place: Place, cli: Cli, request: pytest.FixtureRequest
) -> None:
    """On PostgreSQL it holds back vacuum; SQLite knows of none."""
    store.queue("q").enqueue(1)
    with store.transaction() as tx:
        tx.queue("q").stats()
        if place.engine == "postgresql":
            tx.execute("SELECT pg_sleep(0.05)")
            tx.execute("DECLARE held CURSOR FOR SELECT 1")  # a snapshot that stays between statements
        code, well = found(cli, "--max-snapshot-age", "0.01")
        relaxed = found(cli, "--max-snapshot-age", "10m")
    expected = place.engine == "sqlite"
    assert (int(not expected), expected) == (code, well["snapshot"])
    assert 0 == relaxed[0]
    assert 0 == found(cli, "--max-snapshot-age", "0.01")[0]


def test_a_log_that_is_too_large_is_a_finding(store: alkstore.Store, cli: Cli) -> None:
    store.queue("q", codec="raw").enqueue(b"x" * 100_000)
    code, well = found(cli, "--max-wal", "10KiB")
    assert (1, False) == (code, well["wal"])
    assert 0 == found(cli, "--max-wal", "100GiB")[0]


def test_a_log_of_sqlite_has_a_limit_by_default(sqlite_store: alkstore.Store) -> None:
    health = sqlite_store.health()
    limit = MAX_WAL["sqlite"]
    for size, well in ((limit, True), (limit + 1, False)):
        assert well == judge(replace(health, wal_bytes=size), LIMITS)[-1].ok
        assert judge(replace(health, wal_bytes=size, engine="postgresql"), LIMITS)[-1].ok


def test_a_log_that_cannot_be_seen_is_a_finding_only_where_a_limit_is_asked_for(sqlite_store: alkstore.Store) -> None:
    health = replace(sqlite_store.health(), wal_bytes=None)
    assert judge(health, LIMITS)[-1].ok
    assert not judge(health, replace(LIMITS, wal=2**40))[-1].ok


@pytest.mark.parametrize(("skew", "well"), [(5, True), (-5, True), (5.001, False), (-5.001, False)])
def test_a_clock_that_is_off_is_a_finding_either_way(skew: float, well: bool, sqlite_store: alkstore.Store) -> None:
    health = replace(sqlite_store.health(), clock_skew=timedelta(seconds=skew))
    assert {"clock": well} == {finding.name: finding.ok for finding in judge(health, LIMITS) if finding.name == "clock"}


def test_a_newer_minor_schema_is_well(sqlite_store: alkstore.Store) -> None:
    """So that rolling deploys work (Z-13)."""
    health = sqlite_store.health()
    major, minor = health.code_version
    assert judge(replace(health, schema_version=(major, minor + 1)), LIMITS)[1].ok
    assert not judge(replace(health, schema_version=(major, minor - 1)), LIMITS)[1].ok


@pytest.mark.parametrize(
    "arguments", [["--max-skew", "soon"], ["--max-skew", "-1"], ["--max-wal", "1MB"], ["--max-snapshot-age", "1w"]]
)
def test_a_limit_that_is_none_is_a_wrong_argument(arguments: list[str], sqlite_cli: Cli) -> None:
    told = sqlite_cli("check", *arguments)
    assert (2, "", 1) == (told.exit_code, told.stdout, len(told.stderr.splitlines()))
