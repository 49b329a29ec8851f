"""``python -m alkstore migrate``: create or upgrade the schema, with nothing but the standard library (S-2)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from alkstore.errors import AlkstoreError
from alkstore.opening import URL_VARIABLE
from alkstore.shell import Exit, complain, exit_code, migrate, migrated
from alkstore.store import open as open_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0 done, 1 the database did not do it, 2 a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m alkstore", description="Durable job queues in your database.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("migrate", help="create or upgrade the schema, and say which version it is at")
    command.add_argument("--url", help=f"the store's URL; default: {URL_VARIABLE} from the environment")
    command.add_argument("--schema", help="the schema's name, where the engine has schemas (PostgreSQL: alkstore)")
    given = parser.parse_args(arguments)
    options = {} if given.schema is None else {"schema": given.schema}
    try:
        health = migrate(lambda: open_store(given.url, **options))
    except AlkstoreError as exc:
        complain(exc)
        return exit_code(exc)
    print(migrated(health))
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
