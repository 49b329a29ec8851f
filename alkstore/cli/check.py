"""``alkstore check``: whether all is well, for people and for whatever watches."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

import click

from alkstore.cli.options import Result, common, duration, size
from alkstore.cli.output import Output, shown
from alkstore.cli.place import Place
from alkstore.cli.shapes import health_shape, seconds, spell_duration
from alkstore.errors import EngineError, SchemaError
from alkstore.records import Health
from alkstore.schema import spell
from alkstore.shell import Exit, one_line

MAX_SKEW: Final = "5s"
"""Claims go by the database's clock alone, so a skew harms none; but every time that a worker prints is off."""

MAX_SNAPSHOT_AGE: Final = "10m"
"""Every claim and ack leaves a dead row behind, which stays as long as the oldest snapshot does."""

MAX_WAL: Final = {"sqlite": 64 * 2**20}
"""Bytes, by engine. SQLite checkpoints at some 4 MiB: far more means that a reader never lets go. PostgreSQL keeps its
log for all of the server, as large as it is configured to be: it has no default here."""


@dataclass(frozen=True)
class Limits:
    """What is still well."""

    skew: float
    snapshot_age: float
    wal: int | None


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    says: str
    value: float | str | None = None
    limit: float | str | None = None


@click.command()
@click.option("--max-skew", type=duration, default=MAX_SKEW, show_default=True, help="Clocks of host and database.")
@click.option(
    "--max-snapshot-age",
    type=duration,
    default=MAX_SNAPSHOT_AGE,
    show_default=True,
    help="The oldest snapshot that holds back vacuum (PostgreSQL).",
)
@click.option(
    "--max-wal", type=size, help="The write-ahead log. [default: 64MiB on SQLite, elsewhere none]", metavar="SIZE"
)
@common
def check(place: Place, out: Output, max_skew: float, max_snapshot_age: float, max_wal: int | None) -> Result:
    """Say whether the store is well.

    Looks at whether it is reached, the schema, the clocks, old snapshots and the write-ahead log; exits with 1 where
    anything isn't well.
    """
    health, findings = look(place, Limits(max_skew, max_snapshot_age, max_wal))
    well = all(finding.ok for finding in findings)
    if out.as_json:
        told: dict[str, Any] = {"ok": well, "checks": [asdict(finding) for finding in findings]}
        out.document({**told, "health": None if health is None else health_shape(health)})
    else:
        for finding in findings:
            mark = shown("ok  ", "green") if finding.ok else shown("FAIL", "bold red")
            out.say(mark, f"  {finding.name:<9} {finding.says}")
    return Exit.DONE if well else Exit.FAILED


def look(place: Place, limits: Limits) -> tuple[Health | None, list[Finding]]:
    """Ask the store how it is, and judge; what can't be asked is a finding too."""
    try:
        with place.open() as store:
            health = store.health()
    except SchemaError as exc:
        return None, [Finding("database", ok=True, says="reached"), Finding("schema", ok=False, says=one_line(exc))]
    except EngineError as exc:
        return None, [Finding("database", ok=False, says=one_line(exc))]
    return health, judge(health, limits)


def judge(health: Health, limits: Limits) -> list[Finding]:
    """Return what there is to say of a store that was reached."""
    return [
        Finding("database", ok=True, says=f"{health.engine} {health.server_version}", value=health.server_version),
        _schema(health),
        _clock(health, limits.skew),
        _snapshot(health, limits.snapshot_age),
        _wal(health, limits.wal),
    ]


def _schema(health: Health) -> Finding:
    found, known = spell(health.schema_version), spell(health.code_version)
    current = health.schema_version >= health.code_version
    says = found if found == known else f"{found}, where this code was written for {known}"
    return Finding("schema", ok=current, says=says, value=found, limit=known)


def _clock(health: Health, limit: float) -> Finding:
    skew = health.clock_skew.total_seconds()
    says = f"the database's is {skew:+.3f}s from this host's (at most {limit:g}s)"
    return Finding("clock", ok=abs(skew) <= limit, says=says, value=skew, limit=limit)


def _snapshot(health: Health, limit: float) -> Finding:
    age = seconds(health.oldest_snapshot_age)
    if age is None:
        return Finding("snapshot", ok=True, says="none holds back vacuum", limit=limit)
    says = f"the oldest is {spell_duration(timedelta(seconds=age))} old (at most {limit:g}s)"
    return Finding("snapshot", ok=age <= limit, says=says, value=age, limit=limit)


def _wal(health: Health, asked: int | None) -> Finding:
    size, limit = health.wal_bytes, MAX_WAL.get(health.engine) if asked is None else asked
    bound = "" if limit is None else f" (at most {_spell_size(limit)})"
    if size is None:
        # In memory there is none, and a plain role may not look: only somebody who asks for a limit has missed something.
        return Finding("wal", ok=asked is None, says=f"its size isn't known{bound}", limit=limit)
    return Finding(
        "wal", ok=limit is None or size <= limit, says=f"{_spell_size(size)}{bound}", value=size, limit=limit
    )


def _spell_size(size: int) -> str:
    return f"{size} bytes" if size < 2**10 else f"{size / 2**10:.0f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
