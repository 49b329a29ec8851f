"""``alkstore enqueue``: one job from the command line or stdin, or one for each line of stdin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import BinaryIO, Final, Literal, TypeAlias

import click

from alkstore.cli.options import Result, common, duration
from alkstore.cli.output import Output
from alkstore.cli.place import Place
from alkstore.errors import PayloadError, ValidationError
from alkstore.options import Backoff, JobOptions, QueueOptions

Kind: TypeAlias = Literal["json", "text", "raw"]

_USUAL: Final = QueueOptions()
_FROM_STDIN: Final = "-"


@click.command()
@click.argument("queue")
@click.argument("payload", default=_FROM_STDIN)
@click.option("--text", "kind", flag_value="text", help="The payload is a text, not JSON.")
@click.option("--raw", "kind", flag_value="raw", help="The payload is bytes, stored as they are: the codec raw.")
@click.option("--lines", is_flag=True, help="Each line of stdin is a payload: all are enqueued, or none.")
@click.option("--delay", type=duration, help="How long until it is due.")
@click.option("--run-at", metavar="INSTANT", help="When it is due, as in 2030-01-31T08:00:00Z; --delay wins.")
@click.option("--priority", type=int, help="The greatest comes first.  [default: 0]")
@click.option("--expires", type=duration, help="How long from now it may still be handed out.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be given again.")
@click.option("--keep-result", type=duration, help="How long what it comes to is kept.  [default: not at all]")
@click.option("--max-attempts", type=int, help=f"How many claims it may have.  [default: {_USUAL.max_attempts}]")
@click.option(
    "--visibility-timeout", type=duration, default="60s", show_default=True, help="How long a claim is valid."
)
@click.option("--retention", type=duration, help="How long it is kept once dead.  [default: for ever]")
@click.option(
    "--backoff-base", type=int, default=Backoff().base, show_default=True, help="The first delay, in seconds."
)
@click.option("--backoff-cap", type=int, default=Backoff().cap, show_default=True, help="The longest one, in seconds.")
@common
def enqueue(
    place: Place,
    out: Output,
    queue: str,
    payload: str,
    kind: Kind | None,
    lines: bool,
    delay: float | None,
    run_at: str | None,
    priority: int | None,
    expires: float | None,
    headers: tuple[str, ...],
    keep_result: float | None,
    max_attempts: int | None,
    visibility_timeout: float,
    retention: float | None,
    backoff_base: int,
    backoff_cap: int,
) -> Result:
    """Enqueue a job, and print its id.

    PAYLOAD is JSON unless told otherwise; without it, or as -, it is read from stdin.
    """
    if lines and payload != _FROM_STDIN:
        raise click.UsageError("--lines reads stdin: give no PAYLOAD with it")
    job: JobOptions = {
        "delay": delay,
        "run_at": None if run_at is None else _instant(run_at),
        "priority": priority,
        "expires": expires,
        "max_attempts": max_attempts,
        "headers": _headers(headers) or None,
        "keep_result": keep_result,
    }
    options = QueueOptions(
        visibility_timeout=visibility_timeout,
        backoff=Backoff(backoff_base, backoff_cap),
        dead_letter_retention=retention,
    )
    with place.open() as store:
        handle = store.queue(queue, options, codec="raw" if kind == "raw" else "json")
        payloads = _lines(kind or "json") if lines else [_payload(_read(payload), kind or "json")]
        _report(out, queue, handle.enqueue_many(payloads, **job))
    return None


def _report(out: Output, queue: str, ids: Iterable[int]) -> None:
    for job_id in ids:
        if out.as_json:
            out.document({"id": job_id, "queue": queue})
        else:
            out.say(str(job_id))


def _read(payload: str) -> bytes:
    if payload == _FROM_STDIN:
        return _stdin().read()
    return os.fsencode(payload)  # what isn't text in the shell's encoding came in as lone surrogates: back to bytes


def _stdin() -> BinaryIO:
    return sys.stdin.buffer


def _lines(kind: Kind) -> Iterator[object]:
    """Return the payloads on the lines of stdin, one after the other."""
    for number, line in enumerate(_stdin(), 1):
        try:
            yield _payload(line.removesuffix(b"\n"), kind)
        except PayloadError as exc:
            raise PayloadError(f"line {number}: {exc}") from exc


def _payload(data: bytes, kind: Kind) -> object:
    if kind == "raw":
        return data
    try:
        text = data.decode("utf-8")
        return text if kind == "text" else json.loads(text)
    except UnicodeDecodeError as exc:
        raise PayloadError("payload is not text in UTF-8; --raw takes any bytes") from exc
    except (ValueError, RecursionError) as exc:
        raise PayloadError(f"payload is not JSON: {exc}; --text takes it as a text, --raw as bytes") from exc


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError(f"run_at must be an instant as in 2030-01-31T08:00:00Z, not {text!r}") from None


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for header in given:
        name, equals, value = header.partition("=")
        if not equals:
            raise ValidationError(f"header must be NAME=VALUE, not {header!r}")
        headers[name] = value
    return headers
