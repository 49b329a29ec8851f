"""``alkstore worker``: run the handlers of an application until Ctrl-C or SIGTERM."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import click

from alkstore.cli.metrics import served
from alkstore.cli.options import Result, common, duration
from alkstore.cli.output import Output
from alkstore.cli.place import Place
from alkstore.shell import printable
from alkstore.store import Store
from alkstore.tasks import Tasks
from alkstore.worker import Handler, Worker


@click.command()
@click.argument("handlers", metavar="MODULE:NAME")
@click.option("--concurrency", type=click.IntRange(1, 1_000), help="How many handlers run at a time in threads [8].")
@click.option("--processes", type=click.IntRange(1, 256), help="Run them in so many processes instead.")
@click.option("--grace", type=duration, default="30s", help="How long what runs is waited for when it is to stop.")
@click.option("--timeout", type=duration, metavar="DURATION", help="How long a handler may run.")
@click.option("--poll-interval", type=duration, default="5s", help="How often to look for jobs that no wake told of.")
@click.option("--worker-id", metavar="NAME", help="What its claims are marked with.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to claim, and nothing runs.")
@click.option("--metrics-port", type=click.IntRange(0, 65_535), help="Serve metrics for Prometheus; 0: any free port.")
@click.option("--metrics-host", default="127.0.0.1", help="The address to serve them on.")
@click.option("--verbose", is_flag=True, help="Log each claim and each success, too.")
@common
def worker(
    place: Place,
    out: Output,
    handlers: str,
    until_idle: bool,
    verbose: bool,
    metrics_port: int | None,
    metrics_host: str,
    **options: Any,
) -> Result:
    """Run an application's handlers.

    MODULE:NAME is a mapping of queues to handlers, a Tasks, or a function that is given the store and returns one of the two.
    The module is looked for in this folder first.
    """
    _log_to_stderr(verbose=verbose)
    found = _load(handlers)
    with (
        served(metrics_host, metrics_port) as metrics,
        place.open(hooks=() if metrics is None else (metrics,)) as store,
    ):
        if metrics is not None:
            metrics.watch(store)
        routes = _routes(found, cast(Store, store), handlers)
        summary = Worker(cast(Store, store), routes, **options).run(until_idle=until_idle)
    if out.as_json:
        out.document(asdict(summary))
    else:
        out.say(", ".join(f"{count} {what}" for what, count in asdict(summary).items()))
    return None


def _load(reference: str) -> object:
    module, _, name = reference.partition(":")
    if not module or not name or module.startswith("."):
        raise click.UsageError(f"{reference!r} is not MODULE:NAME, as in shop.jobs:handlers")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the path's entries are texts
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (module == exc.name or module.startswith(exc.name + ".")):
            raise  # the application's own, with its traceback
        raise click.UsageError(f"there is no module {module!r} here, nor installed") from exc
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as exc:
            raise click.UsageError(f"{module!r} has no {name!r}") from exc
    if isinstance(found, Mapping | Tasks) or callable(found):
        return cast(object, found)
    raise click.UsageError(
        f"{reference} must be a mapping of queues to handlers, a Tasks, or a function that returns one"
    )


def _routes(found: object, store: Store, reference: str) -> Mapping[str, Handler]:
    given: object = found(store) if callable(found) else found
    if isinstance(given, Tasks):
        return given.handlers()
    if not isinstance(given, Mapping):
        raise click.UsageError(
            f"{reference} must give a mapping of queues to handlers or a Tasks, not {type(given).__name__}"
        )
    return cast("Mapping[str, Handler]", given)


class _Lines(logging.Formatter):
    """Lines in which a terminal obeys nothing of the data; what follows a break in it can't pass for a line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n  ".join(printable(line) for line in super().format(record).split("\n"))


def _log_to_stderr(*, verbose: bool) -> None:
    """Log what the worker says, unless the application has seen to that itself."""
    log = logging.getLogger("alkstore")
    if not log.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG if verbose else logging.INFO)
