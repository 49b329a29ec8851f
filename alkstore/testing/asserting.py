"""Asking what is enqueued, with failures that say what there is instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from alkstore.codec import JsonCodec
from alkstore.errors import PayloadError, ValidationError, shown
from alkstore.limits import PAGE_MAX
from alkstore.queue import Queue
from alkstore.records import Job, State
from alkstore.store import Store
from alkstore.tasks import Enqueues, Tasks
from alkstore.tasks.task import read_call

_ANY: Final = object()
_SHOWN: Final = 20
"""Jobs that a failure lists."""
_JSON: Final = JsonCodec()

AnyTask: TypeAlias = Enqueues[..., Any]
Where: TypeAlias = Store | Queue | Tasks
What: TypeAlias = AnyTask | str | None


def assert_enqueued(
    where: Where,
    what: What = None,
    *,
    args: Mapping[str, object] | None = None,
    payload: object = _ANY,
    count: int | None = None,
) -> list[Job]:
    """Assert that there are such jobs, still to be done, and return them, oldest first.

    ``where``: a store, the tasks in theirs, or a queue, which may be bound to a transaction. ``what``: a task, or the name of a
    queue; ``None`` for any job of a queue. ``args``: arguments of the task that must be equal, whatever the others are; defaults
    count. ``payload``: what the payload must be equal to. ``count``: how many there must be, exactly; by default one at least.
    Raises ``AssertionError`` that lists what there is, and ``ValidationError`` for a question that can't be.
    """
    question = _Question(where, what, args, payload)
    found = question.found()
    if len(found) == count or (count is None and found):
        return found
    wanted = "a job" if count is None else f"exactly {count} jobs"
    raise AssertionError(f"there should be {wanted} {question}, and there are {len(found)}{question.instead()}")


def assert_not_enqueued(
    where: Where, what: What = None, *, args: Mapping[str, object] | None = None, payload: object = _ANY
) -> None:
    """Assert that there is no such job still to be done; arguments and errors as in ``assert_enqueued``."""
    question = _Question(where, what, args, payload)
    found = question.found()
    if found:
        raise AssertionError(f"there should be no job {question}, and there are {len(found)}{question.instead()}")


class _Question:
    """Which jobs are meant, and where to look for them."""

    def __init__(self, where: object, what: object, args: Mapping[str, object] | None, payload: object) -> None:
        self._task = _task(what)
        self._queue = _queue(where, what)
        self._payload = payload if payload is _ANY else _through_json(payload)
        self._args: Mapping[str, object] = {}
        if args is not None:
            if self._task is None:
                raise ValidationError("args are a task's: say which task is meant, or give payload")
            # As what was enqueued has become, and named as the task names them.
            self._args = cast("Mapping[str, object]", _through_json(dict(args)))
            known = set(self._task.definition.parameters.names)
            for name in args:
                if name not in known:
                    raise ValidationError(f"task {self._task.name!r} has no argument {name!r}")

    def __str__(self) -> str:
        of = f"of the task {self._task.name!r} " if self._task is not None else ""
        where = f"{of}in the queue {self._queue.name!r}"
        if self._payload is not _ANY:
            return f"{where} with the payload {shown(self._payload)}"
        return f"{where} with {_spell(self._args)}" if self._args else where

    def found(self) -> list[Job]:
        """Return those that match."""
        return [job for job in self._live() if self._matches(job)]

    def instead(self) -> str:
        """List what there is."""
        lines = [f"\n  {job.id}: {_describe(job)}" for job in self._live()]
        if not lines:
            return "; nothing is to be done in there"
        more = f"\n  ... and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return "; to be done in there is" + "".join(lines[:_SHOWN]) + more

    def _live(self) -> Iterator[Job]:
        after: int | None = None
        while page := self._queue.jobs(after=after, limit=PAGE_MAX):
            yield from (job for job in page if job.state is not State.DEAD)
            after = page[-1].id

    def _matches(self, job: Job) -> bool:
        try:
            payload: object = job.payload
        except PayloadError:
            return self._task is None and self._payload is _ANY
        if self._payload is not _ANY and payload != self._payload:
            return False
        if self._task is None:
            return True
        called = read_call(payload)
        if called is None or called[0] != self._task.name:
            return False
        given = self._task.definition.parameters.complete(called[1])
        return all(name in given and _same(given[name], value) for name, value in self._args.items())


def _task(what: object) -> AnyTask | None:
    return cast(AnyTask, what) if isinstance(what, Enqueues) else None


def _queue(where: object, what: object) -> Queue:
    task = _task(what)
    if task is None and what is not None and not isinstance(what, str):
        raise ValidationError(f"what must be a task or the name of a queue, not {type(what).__name__}")
    if isinstance(where, Queue):
        name: object = task.queue if task is not None else what
        if name not in {None, where.name}:
            raise ValidationError(f"the queue {where.name!r} was given, and {shown(name)} is another")
        return where
    store: object = where.store if isinstance(where, Tasks) else where
    if not isinstance(store, Store):
        raise ValidationError(f"where must be a store, a queue or the tasks, not {type(where).__name__}")
    if task is None and what is None:
        raise ValidationError("what must be a task or the name of a queue")
    return store.queue(task.queue if task is not None else cast(str, what))


def _through_json(value: object) -> object:
    return value if isinstance(value, bytes) else _JSON.decode(_JSON.encode(value))


def _same(default_or_stored: object, wanted: object) -> bool:
    if default_or_stored == wanted:
        return True
    try:
        return _through_json(default_or_stored) == wanted  # a default may be a tuple
    except PayloadError:
        return False


def _describe(job: Job) -> str:
    try:
        payload: object = job.payload
    except PayloadError as exc:
        return str(exc)
    called = read_call(payload)
    return shown(payload) if called is None else f"{called[0]}({_spell(called[1])})"


def _spell(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in arguments.items())
