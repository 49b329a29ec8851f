"""A task: a function, and how its calls become jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from alkstore.errors import ValidationError, shown
from alkstore.frames import Frame
from alkstore.options import JobOptions, merge_options
from alkstore.protocols import Transaction
from alkstore.queue import Queue
from alkstore.store import Store
from alkstore.tasks.job import TaskJob
from alkstore.tasks.options import Resolved, TaskOptions
from alkstore.tasks.signature import RESERVED, Parameters
from alkstore.worker.job import RunningJob

if TYPE_CHECKING:
    from alkstore.tasks.registry import Tasks

P = ParamSpec("P")
R = TypeVar("R")

NAME: Final = "task"
ARGUMENTS: Final = "args"
"""The two keys of a task's payload."""


def read_call(payload: object) -> tuple[str, dict[str, object]] | None:
    """Return the task's name and the arguments that a payload has; ``None`` where it is no task's."""
    if isinstance(payload, dict):
        fields = cast("dict[str, object]", payload)
        name, arguments = fields.get(NAME), fields.get(ARGUMENTS)
        if isinstance(name, str) and isinstance(arguments, dict):
            return name, cast("dict[str, object]", arguments)
    return None


@dataclass(frozen=True, slots=True)
class Definition:
    """What a task is, whatever it returns."""

    tasks: Tasks
    name: str
    function: Callable[..., object]
    parameters: Parameters
    options: Resolved
    pass_job: bool

    def run(self, job: RunningJob, arguments: Mapping[str, object]) -> object:
        """Call it with stored arguments; raise ``ValidationError`` where they don't fit it, and what it raises."""
        args, kwargs = self.parameters.unbind(arguments)
        return self.function(job, *args, **kwargs) if self.pass_job else self.function(*args, **kwargs)


class Enqueues(Generic[P, R]):
    """How calls of a task become jobs, with some options."""

    def __init__(self, definition: Definition, options: Mapping[str, object], tx: Transaction | None) -> None:
        self._definition = definition
        self._options = options
        self._tx = tx

    @property
    def name(self) -> str:
        """What its jobs call it."""
        return self._definition.name

    @property
    def queue(self) -> str:
        """Where its jobs go."""
        return self._definition.options.queue

    @property
    def definition(self) -> Definition:
        """What it is, for the worker and the test kit."""
        return self._definition

    @overload
    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> TaskJob[R]: ...
    @overload
    def enqueue(self, /, *args: Any, tx: Transaction, **kwargs: Any) -> TaskJob[R]: ...
    def enqueue(self, /, *args: Any, tx: Transaction | None = None, **kwargs: Any) -> TaskJob[R]:
        """Store a job that calls the task with these arguments, and return it; committed when it returns (Q-ENQ-1).

        ``tx``: within that transaction, or joined connection, instead. Raises ``ValidationError`` for arguments that the task
        doesn't take, ``PayloadError`` for what JSON can't hold, both before anything is written, and what
        ``queue.enqueue`` does.
        """
        payload = self._payload(self._definition.parameters.bind(args, kwargs))
        queue, store, frame = self._place(tx)
        job = self._job(store, queue.enqueue(payload, **cast(JobOptions, self._options)))
        self._definition.tasks.was_enqueued(store, frame)
        return job

    def enqueue_many(self, calls: Iterable[Mapping[str, object]], *, tx: Transaction | None = None) -> list[TaskJob[R]]:
        """Store a job for each call, all or none, in one statement per chunk, and return them in order (Q-ENQ-3).

        A call is a mapping of its arguments by name. Raises what ``enqueue`` does, naming the call by its place.
        """
        if isinstance(calls, str | bytes | Mapping) or not isinstance(cast(object, calls), Iterable):
            raise ValidationError(f"calls must be an iterable of mappings, not {type(cast(object, calls)).__name__}")
        queue, store, frame = self._place(tx)
        ids = queue.enqueue_many(self._payloads(calls), **cast(JobOptions, self._options))
        self._definition.tasks.was_enqueued(store, frame)
        return [self._job(store, job_id) for job_id in ids]

    def options(self, **options: Unpack[TaskOptions]) -> Enqueues[P, R]:
        """Return the task with options of ``enqueue`` for its calls, such as ``delay``; they are checked when one is enqueued.

        They win over the task's own. ``tx`` is the transaction that the calls belong to.
        """
        given = dict(cast(Mapping[str, object], options))
        tx = cast("Transaction | None", given.pop(RESERVED, None))
        return Enqueues(self._definition, merge_options(self._options, given), self._tx if tx is None else tx)

    def job(self, job_id: int) -> TaskJob[R]:
        """Return a call that was enqueued before, by its id, to ask for its result; no I/O."""
        return self._job(self._definition.tasks.store, job_id)

    def _payload(self, arguments: Mapping[str, object]) -> dict[str, object]:
        return {NAME: self.name, ARGUMENTS: dict(arguments)}

    def _payloads(self, calls: Iterable[object]) -> Iterator[dict[str, object]]:
        for place, call in enumerate(calls):
            if not isinstance(call, Mapping):
                raise ValidationError(f"calls[{place}] must be a mapping of arguments, not {shown(call)}")
            arguments = cast(Mapping[str, object], call)
            try:
                yield self._payload(self._definition.parameters.bind((), arguments))
            except (TypeError, ValidationError) as exc:
                raise ValidationError(f"calls[{place}]: {exc}") from None

    def _place(self, tx: Transaction | None) -> tuple[Queue, Store, Frame | None]:
        options = self._definition.options
        within: object = self._tx if tx is None else tx
        if within is None:
            store = self._definition.tasks.store
            return store.queue(options.queue, options.stamps), store, None
        if not isinstance(within, Frame):
            raise ValidationError(
                f"tx must be a transaction or a joined connection of a store, not {type(within).__name__}"
            )
        return within.queue(options.queue, options.stamps), within.store, within

    def _job(self, store: Store, job_id: int) -> TaskJob[R]:
        return TaskJob(job_id, self.queue, self.name, store)


class Decorated(Enqueues[P, R]):
    """What takes the place of a function, with the task's own options."""

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition, definition.options.job, None)
        update_wrapper(cast(Any, self), definition.function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue!r}>"


class Task(Decorated[P, R]):
    """A function whose calls can be jobs. Calling it calls the function, here and now."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return cast(R, self._definition.function(*args, **kwargs))


class JobTask(Decorated[P, R]):
    """A function that is given the running job before its arguments (``pass_job=True``)."""

    def __call__(self, job: RunningJob, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return cast(R, self._definition.function(job, *args, **kwargs))
