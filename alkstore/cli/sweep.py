"""``alkstore sweep``: what a cron job may do, where no worker does it."""

from __future__ import annotations

import click

from alkstore.cli.options import Result, common
from alkstore.cli.output import Output
from alkstore.cli.place import Place
from alkstore.cli.queues import complain_of, named_or_all


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@common
def sweep(place: Place, out: Output, queues: tuple[str, ...]) -> Result:
    """Bury expired jobs, delete outlived dead ones.

    And results past their time; of the queues named, or of all. Claims don't depend on it: an expired job is never
    handed out.
    """
    with place.open() as store:
        chosen, complaints = named_or_all(store, queues)
        moved = {queue.name: queue.sweep_expired() for queue in chosen}
    if out.as_json:
        out.document({"queues": [{"queue": name, "moved": count} for name, count in moved.items()]})
    else:
        for name, count in moved.items():
            out.say(f"{name}: {count} moved to the dead")
        out.say(f"{sum(moved.values())} in all")
    return complain_of(complaints)
