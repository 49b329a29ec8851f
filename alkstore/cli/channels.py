"""``alkstore listen`` and ``alkstore notify``: the two ends of a channel."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from alkstore.cli.options import Result, common, ended_by_sigterm
from alkstore.cli.output import Output, shown
from alkstore.cli.place import Place
from alkstore.records import Notification
from alkstore.shell import printable


@click.command()
@click.argument("channels", nargs=-1, required=True, metavar="CHANNEL...")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.  [default: never]")
@common
def listen(place: Place, out: Output, channels: tuple[str, ...], count: int | None) -> Result:
    """Print what is sent to channels from now on.

    Ctrl-C ends it, with exit code 130.
    """
    with ended_by_sigterm(), place.open() as store, store.listen(*channels) as listener:
        # On stderr: a script can wait for it, and whatever reads stdout has only what was sent.
        sys.stderr.write(f"listening to {printable(', '.join(channels))}\n")
        sys.stderr.flush()
        for number, notification in enumerate(listener, 1):
            _show(out, notification)
            if number == count:
                break
    return None


def _show(out: Output, notification: Notification) -> None:
    if out.as_json:
        told = {"channel": notification.channel, "payload": notification.payload, "gap": notification.gap}
        out.document(told)
    elif notification.gap:
        out.say(shown("(some may have been lost here)", "yellow"))
    else:
        out.say(notification.channel, Text("\t"), notification.payload)
    out.flush()


@click.command()
@click.argument("channel")
@click.argument("payload", default="")
@common
def notify(place: Place, out: Output, channel: str, payload: str) -> Result:
    """Send a text to whoever listens to a channel."""
    with place.open() as store:
        store.notify(channel, payload)
    if out.as_json:
        out.document({"channel": channel, "sent": True})
    return None
