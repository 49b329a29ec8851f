"""``alkstore jobs``: look at jobs one by one, and decide what becomes of them."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import click
from rich.text import Text

from alkstore.cli.options import Result as Answer
from alkstore.cli.options import common, help_without_command
from alkstore.cli.output import Output, padded, shown
from alkstore.cli.place import Place
from alkstore.cli.queues import complain_of, named_or_all
from alkstore.cli.shapes import (
    bytes_text,
    job_shape,
    payload_preview,
    result_shape,
    shortened,
    spell_duration,
    spell_instant,
)
from alkstore.errors import ValidationError
from alkstore.protocols import Queue, Store
from alkstore.records import Job, QueueStats, Result, State
from alkstore.shell import Exit, complain

LIMIT: Final = 20
"""How many jobs ``jobs list`` shows, unless told otherwise."""

PAGE: Final = 500
"""Jobs read at a time, of all queues together; and dead jobs retried in one transaction."""

_STYLES: Final = {State.PENDING: "", State.PROCESSING: "cyan", State.DEAD: "red"}

_STATES: Final = click.Choice([state.value for state in State])


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """Look at jobs, and decide what becomes of them."""
    help_without_command(ctx)


# --- looking -------------------------------------------------------------------------------------------------------


@jobs.command("list")
@click.option("--queue", "names", multiple=True, metavar="NAME", help="Only of this queue; may be given again.")
@click.option("--state", type=_STATES, help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(1, sys.maxsize), default=LIMIT, show_default=True, help="How many.")
@click.option("--after", type=int, metavar="ID", help="Only jobs with a greater id: the last one of the page before.")
@click.option("--all", "everything", is_flag=True, help="Every one; --limit doesn't count.")
@common
def list_jobs(
    place: Place,
    out: Output,
    names: tuple[str, ...],
    state: str | None,
    limit: int,
    after: int | None,
    everything: bool,
) -> Answer:
    """List jobs by their ids, one on a line."""
    with place.open() as store:
        queues, complaints = named_or_all(store, names)
        found = jobs_of(queues, state, after, PAGE if everything else min(limit + 1, PAGE))
        last = None
        if not out.as_json:
            out.say(_HEADING)
        for job in found if everything else islice(found, limit):
            last = job.id
            if out.as_json:
                out.document(job_shape(job))
            else:
                out.say(*_line(job), cut=True)
        if not everything and last is not None and next(found, None) is not None:
            complain(f"there are more: --after {last}, or --all")
    return complain_of(complaints)


def jobs_of(queues: Sequence[Queue], state: str | None, after: int | None, at_a_time: int) -> Iterator[Job]:
    """Return the queues' jobs in the order of their ids, by pages, of which one for each queue is held."""
    each = max(10, at_a_time // max(1, len(queues)))
    return heapq.merge(*(pages(queue, state, after, each) for queue in queues), key=lambda job: job.id)


def pages(queue: Queue, state: str | None, after: int | None, size: int) -> Iterator[Job]:
    """Return a queue's jobs by id, read by pages that each begin where the last one ended."""
    while True:
        page = queue.jobs(state, after, size)
        yield from page
        if len(page) < size:
            return
        after = page[-1].id


_HEADING: Final = f"{'id':>7}  {'state':<10}  {'tries':>5}  {'run at':<17}  {'queue':<12}  worker, error, payload"


def _line(job: Job) -> list[str | Text]:
    # What is looked for comes first: the line may be cut at the terminal's edge.
    return [
        f"{job.id:>7}  ",
        padded(job.state.value, 10, _STYLES[job.state]),
        f"{job.attempts}/{job.max_attempts}".rjust(5) + f"  {spell_instant(job.run_at, 'minutes'):<17}  ",
        padded(job.queue, 12),
        shown("" if job.worker_id is None else f"{job.worker_id}  ", "cyan"),
        shown("" if job.last_error is None else f"{shortened(job.last_error)}  ", "red"),
        payload_preview(job),
    ]


@jobs.command()
@click.argument("job_id", type=int, metavar="ID")
@common
def show(place: Place, out: Output, job_id: int) -> Answer:
    """Show all there is to know of a job.

    Of one that is gone, its result, if that is kept.
    """
    with place.open() as store:
        job = store.get_job(job_id)
        result = store.result(job_id) if job is None and store.capabilities.results else None
    if job is not None:
        shape, details = job_shape(job), _details(job)
    elif result is not None:
        shape, details = result_shape(result), _result_details(result)
    else:
        complain(f"there is no job {job_id}")
        return Exit.FAILED
    if out.as_json:
        out.document(shape)
        return None
    for name, value in details:
        # Lines of the text are lines here; each stands in the second column, where it can't pass for a field.
        for number, line in enumerate(value.split("\n")):
            out.say(f"{name if number == 0 else '':<18}  {line}")
    return None


def _details(job: Job) -> Iterator[tuple[str, str]]:
    yield "id", str(job.id)
    yield "queue", job.queue
    yield "state", job.state.value
    yield "attempts", f"{job.attempts} of {job.max_attempts}"
    yield "priority", str(job.priority)
    yield "created at", spell_instant(job.created_at)
    yield "run at", spell_instant(job.run_at)
    yield "expires at", spell_instant(job.expires_at)
    yield "visibility timeout", spell_duration(job.visibility_timeout)
    yield "worker", job.worker_id or "-"
    yield "claim expires at", spell_instant(job.claim_expires_at)
    yield "died at", spell_instant(job.died_at)
    for key, value in job.headers.items():
        yield "header", f"{key}={value}"
    yield "last error", "-" if job.last_error is None else job.last_error
    yield "keeps result", spell_duration(job.keep_result)
    yield "codec", job.codec
    yield "payload", bytes_text(job.codec, job.raw)


def _result_details(result: Result) -> Iterator[tuple[str, str]]:
    yield "id", str(result.job_id)
    yield "queue", result.queue
    yield "outcome", result.outcome.value
    yield "attempts", str(result.attempts)
    yield "worker", result.worker_id or "-"
    yield "finished at", spell_instant(result.finished_at)
    yield "kept until", spell_instant(result.expires_at)
    yield "codec", result.codec or "-"
    yield "result", "-" if result.raw is None else bytes_text(result.codec, result.raw)


# --- deciding ------------------------------------------------------------------------------------------------------


@jobs.command()
@click.argument("ids", type=int, nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Needed for more than one.")
@common
def cancel(place: Place, out: Output, ids: tuple[int, ...], yes: bool) -> Answer:
    """Delete pending or processing jobs.

    A worker that has one isn't interrupted, and can't ack it any more.
    """
    if len(ids) > 1 and not yes:
        raise unsaid(f"cancels {len(ids)} jobs")
    with place.open() as store:
        return _each(out, store, ids, "cancelled", lambda queue, job_id: queue.cancel(job_id))


@jobs.command()
@click.argument("ids", type=int, nargs=-1, metavar="[ID...]")
@click.option("--all-dead", is_flag=True, help="Every dead job of the queue.")
@click.option("--queue", "name", metavar="NAME", help="The queue, for --all-dead.")
@click.option("--yes", is_flag=True, help="Needed for --all-dead, and for more than one.")
@common
def retry(place: Place, out: Output, ids: tuple[int, ...], all_dead: bool, name: str | None, yes: bool) -> Answer:
    """Give dead jobs another chance.

    They are pending again under their ids: no attempts so far, due now, no expiry.
    """
    if all_dead == bool(ids):
        raise click.UsageError("give the ids of dead jobs, or --all-dead with --queue")
    if all_dead != (name is not None):
        raise click.UsageError("--all-dead and --queue go together")
    with place.open() as store:
        if name is None:
            if len(ids) > 1 and not yes:
                raise unsaid(f"retries {len(ids)} jobs")
            return _each(out, store, ids, "retried", lambda queue, job_id: queue.retry_dead(job_id))
        queue = store.queue(name)
        if not yes:
            raise unsaid(f"retries {queue.stats().dead} dead jobs of the queue {name!r}")
        _report(out, "retried", retry_all_dead(store, queue), name)
    return None


def retry_all_dead(store: Store, queue: Queue) -> int:
    """Retry every dead job of the queue, a page in a transaction, and return how many."""
    count = 0
    after = None
    while True:
        page = queue.jobs(State.DEAD, after, PAGE)
        if not page:
            return count
        count += _retry_page(store, queue.name, [job.id for job in page])
        after = page[-1].id


def _retry_page(store: Store, name: str, ids: Sequence[int]) -> int:
    if not store.capabilities.transactions:
        return sum(map(store.queue(name).retry_dead, ids))
    with store.transaction() as tx:
        return sum(map(tx.queue(name).retry_dead, ids))


@jobs.command()
@click.option("--queue", "name", required=True, metavar="NAME", help="The queue.")
@click.option("--state", type=_STATES, required=True, help="The state of the jobs to delete.")
@click.option("--yes", is_flag=True, help="Needed; without it, only say how many there are.")
@common
def purge(place: Place, out: Output, name: str, state: str, yes: bool) -> Answer:
    """Delete all jobs of a queue in one state.

    In bounded batches; without --yes it only says how many there are.
    """
    with place.open() as store:
        queue = store.queue(name)
        if not yes:
            count = _count(queue.stats(), State(state))
            raise unsaid(f"deletes {count} {state} jobs of the queue {name!r}")
        _report(out, "purged", queue.purge(state), name)
    return None


def _count(stats: QueueStats, state: State) -> int:
    counts = {State.PENDING: stats.ready + stats.scheduled, State.PROCESSING: stats.processing, State.DEAD: stats.dead}
    return counts[state]


def unsaid(what: str) -> ValidationError:
    """Return the refusal of what would do more than a slip of the keyboard may."""
    return ValidationError(f"this {what}; say so with --yes")


def _each(out: Output, store: Store, ids: Sequence[int], done: str, operation: Callable[[Queue, int], bool]) -> Exit:
    """Do it to each job, wherever it is, and say of each whether it was done."""
    undone = 0
    for job_id in dict.fromkeys(ids):
        job = store.get_job(job_id)
        did = job is not None and operation(store.queue(job.queue), job_id)
        undone += not did
        if out.as_json:
            out.document({"id": job_id, done: did})
        elif did:
            out.say(f"{done} job {job_id}")
        else:
            state = "there is no such job" if job is None else f"it was {job.state.value}"
            complain(f"not {done}: job {job_id}: {state}")
    return Exit.FAILED if undone else Exit.DONE


def _report(out: Output, done: str, count: int, name: str) -> None:
    if out.as_json:
        out.document({"queue": name, done: count})
    else:
        out.say(f"{done} {count} jobs of the queue {name!r}")
