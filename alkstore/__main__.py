"""``python -m alkstore migrate``: create or upgrade the schema, with nothing but the standard library (S-2)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from alkstore.errors import AlkstoreError, ValidationError
from alkstore.opening import URL_VARIABLE
from alkstore.store import open as open_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0 done, 1 the database did not do it, 2 a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m alkstore", description="Durable job queues in your database.")
    commands = parser.add_subparsers(dest="command", required=True)
    migrate = commands.add_parser("migrate", help="create or upgrade the schema, and say which version it is at")
    migrate.add_argument("--url", help=f"the store's URL; default: {URL_VARIABLE} from the environment")
    migrate.add_argument("--schema", help="the schema's name, where the engine has schemas (PostgreSQL: alkstore)")
    given = parser.parse_args(arguments)
    try:
        with open_store(given.url, **({} if given.schema is None else {"schema": given.schema})) as store:
            health = store.health()
    except ValidationError as exc:
        print(f"alkstore: {exc}", file=sys.stderr)
        return 2
    except AlkstoreError as exc:
        print(f"alkstore: {exc}", file=sys.stderr)
        return 1
    print(f"{health.engine}: the schema is at version {'.'.join(map(str, health.schema_version))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
