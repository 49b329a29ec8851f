"""``alkstore stats`` and ``alkstore top``: the queues' counts, once and again and again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from alkstore.cli.options import Result, common, duration, ended_by_sigterm
from alkstore.cli.output import Output, shown
from alkstore.cli.place import Place
from alkstore.cli.queues import complain_of, named_or_all
from alkstore.cli.shapes import spell_duration, stats_shape
from alkstore.errors import EngineError
from alkstore.protocols import Store
from alkstore.records import QueueStats
from alkstore.shell import one_line

INTERVAL: Final = "2s"
"""How long ``top`` waits between two looks."""

_AROUND: Final = 5
"""Lines of the screen that aren't a queue's: the heading, a blank one, the columns' names, and what is left out."""


@dataclass(frozen=True)
class Look:
    """What was found at one moment."""

    at: datetime
    queues: list[tuple[str, QueueStats]]
    complaints: list[str]
    """Of queues that had to be passed over."""


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@common
def stats(place: Place, out: Output, queues: tuple[str, ...]) -> Result:
    """Count jobs by queue and state."""
    with place.open() as store:
        look = take_a_look(store, queues)
    show(out, look)
    return complain_of(look.complaints)


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option("--interval", type=duration, default=INTERVAL, show_default=True, help="How long between two looks.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="End after so many looks. [default: go on for ever on a terminal, else 1]",
)
@common
def top(place: Place, out: Output, queues: tuple[str, ...], interval: float, count: int | None) -> Result:
    """Watch the counts, the busiest queues first.

    On a terminal it goes on until Ctrl-C, which ends it with exit code 130; elsewhere it looks once.
    """
    looks = count or (None if out.is_terminal else 1)
    with ended_by_sigterm(), place.open() as store:
        if out.is_live:
            watch(out, store, queues, interval, looks)
        else:
            _look_again_and_again(out, store, queues, interval, looks)
    return None


def _look_again_and_again(out: Output, store: Store, names: Sequence[str], interval: float, looks: int | None) -> None:
    for number in itertools.count(1):
        look = take_a_look(store, names)
        show(out, look)
        out.flush()
        if number == 1:
            complain_of(look.complaints)
        if number == looks:
            return
        time.sleep(interval)


def take_a_look(store: Store, names: Sequence[str]) -> Look:
    """Count."""
    queues, complaints = named_or_all(store, names)
    return Look(datetime.now(UTC), [(queue.name, queue.stats()) for queue in queues], complaints)


def show(out: Output, look: Look) -> None:
    """Write what was found."""
    if out.as_json:
        queues = [stats_shape(name, found) for name, found in look.queues]
        out.document({"at": look.at.isoformat(), "queues": queues})
    elif look.queues:
        out.table(table_of(look.queues))
    else:
        out.say("no queue has any jobs")


def table_of(queues: Sequence[tuple[str, QueueStats]]) -> Table:
    """Return the counts as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("queue", overflow="ellipsis", no_wrap=True)
    for heading in ("ready", "scheduled", "processing", "dead", "oldest ready"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in queues:
        numbers = (found.ready, found.scheduled, found.processing)
        dead = Text(str(found.dead), "red" if found.dead else "")
        age = spell_duration(found.oldest_ready_age)
        table.add_row(shown(name), *(Text(str(number)) for number in numbers), dead, Text(age))
    return table


def watch(out: Output, store: Store, names: Sequence[str], interval: float, looks: int | None) -> None:
    """Show the counts on the terminal's other screen, until it has been enough; an outage is shown, and sat out."""
    last: Look | None = None
    trouble: list[str] = []
    with Live(console=out.console, screen=True, auto_refresh=False) as live:
        for number in itertools.count(1):
            try:
                last = take_a_look(store, names)
                trouble = last.complaints
            except EngineError as exc:
                trouble = [str(exc)]
            live.update(screen_of(last, trouble, out.console.height - _AROUND), refresh=True)
            if number == looks:
                return
            time.sleep(interval)


def screen_of(look: Look | None, trouble: Sequence[str], room: int) -> Group:
    """Return what fits the screen: the busiest queues first, and how many more there are."""
    parts: list[Any] = [shown(one_line(what), "bold red") for what in trouble]
    if look is not None:
        queues = sorted(look.queues, key=lambda found: (-found[1].ready - found[1].processing, found[0]))
        shown_here = queues[: max(1, room - len(parts))]
        parts += [_heading(look), Text(), table_of(shown_here)]
        if len(queues) > len(shown_here):
            parts.append(Text(f"and {len(queues) - len(shown_here)} more", "dim"))
    return Group(*parts)


def _heading(look: Look) -> Text:
    ready = sum(found.ready for _, found in look.queues)
    processing = sum(found.processing for _, found in look.queues)
    counts = f"  {look.at:%H:%M:%S}Z  queues: {len(look.queues)}  ready: {ready}  processing: {processing}"
    return Text.assemble(("alkstore", "bold"), counts)
