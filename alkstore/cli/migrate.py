"""``alkstore migrate``: the same as ``python -m alkstore migrate``."""

from __future__ import annotations

import click

from alkstore import shell
from alkstore.cli.options import Result, common
from alkstore.cli.output import Output
from alkstore.cli.place import Place
from alkstore.schema import spell


@click.command()
@common
def migrate(place: Place, out: Output) -> Result:
    """Create or upgrade the schema.

    Says which version it is at. The only command that does: the others refuse a database without a current schema.
    """
    health = shell.migrate(lambda: place.open(migrate=True))
    if out.as_json:
        out.document({"engine": health.engine, "schema_version": spell(health.schema_version)})
    else:
        out.say(shell.migrated(health))
    return None
