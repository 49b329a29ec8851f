"""The tasks of an application, and the worker that runs them."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, Unpack, cast, overload

from alkstore.errors import ValidationError, shown
from alkstore.frames import Frame
from alkstore.names import check_name
from alkstore.store import Store
from alkstore.tasks.options import TaskFields, resolve
from alkstore.tasks.running import TaskHandler, running
from alkstore.tasks.signature import Parameters
from alkstore.tasks.task import Definition, Enqueues, JobTask, Task
from alkstore.worker.guard import MAIN, MAIN_HERE
from alkstore.worker.job import RunningJob
from alkstore.worker.worker import Handler, Worker

P = ParamSpec("P")
R = TypeVar("R")

Enqueued: TypeAlias = Callable[[Store, Frame | None], None]
"""Told of a task that was enqueued: in which store, and in which transaction, if any."""


class Tasks:
    """The tasks of an application.

    ::

        tasks = alkstore.Tasks(store)


        @tasks.task(queue="emails", max_attempts=8)
        def send(to: str, subject: str = "hi") -> None:
            smtp.send(to, subject)


        send.enqueue(to="a@example.org")
        tasks.worker().run()
    """

    def __init__(self, store: Store | Callable[[], Store] | None = None) -> None:
        """Begin with no tasks; ``store`` as for ``bind``."""
        self._store: Store | Callable[[], Store] | None = None
        self._known: dict[str, Enqueues[..., Any]] = {}
        self.any_timeout: bool = False
        """Whether a task has a timeout of its own."""
        self.on_enqueue: Enqueued | None = None
        """For the test kit: told of each enqueue."""
        if store is not None:
            self.bind(store)

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(self._known) or 'none yet'}>"

    # --- the store -----------------------------------------------------------------------------------------------

    def bind(self, store: Store | Callable[[], Store]) -> None:
        """Say where tasks are enqueued from now on: a store, or a function that returns the one which is meant now.

        Raises ``ValidationError`` for anything else.
        """
        if not isinstance(store, Store) and not callable(cast(object, store)):
            raise ValidationError(f"store must be an alkstore store, or a function that returns it, not {shown(store)}")
        self._store = store

    @property
    def is_bound(self) -> bool:
        """Whether it was said where tasks are enqueued."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """Where tasks are enqueued: what was bound; if nothing was, and a task runs, where its worker has it from.

        Raises ``ValidationError`` where nothing was bound.
        """
        store: object = self._store
        if store is None:
            job = running.get()
            if job is None:
                raise ValidationError("these tasks have no store yet: tasks.bind(store), or give enqueue a tx")
            return job.store
        if isinstance(store, Store):
            return store
        store = cast("Callable[[], object]", store)()
        if not isinstance(store, Store):
            raise ValidationError(f"the function that was bound must return an alkstore store, not {shown(store)}")
        return store

    # --- the tasks -----------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, /, *, pass_job: Literal[True], **options: Unpack[TaskFields]
    ) -> Callable[[Callable[Concatenate[RunningJob, P], R]], JobTask[P, R]]: ...
    @overload
    def task(
        self, /, *, pass_job: Literal[False] = False, **options: Unpack[TaskFields]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self, function: Callable[..., Any] | None = None, /, *, pass_job: bool = False, **options: Unpack[TaskFields]
    ) -> Any:
        """Make a task of a function: a decorator, with options or without.

        ``pass_job``: the worker passes the running job as its first argument, of which ``enqueue`` then knows nothing. For
        the rest see ``TaskFields``. Raises ``ValidationError`` naming the option, for a name that is taken, and for what
        can't be a task: a coroutine function, a generator function, one with a parameter called ``tx``.
        """

        def decorate(function: Callable[..., Any]) -> Enqueues[..., Any]:
            return self._add(function, pass_job, cast(Mapping[str, object], options))

        return decorate if function is None else decorate(function)

    def _add(
        self, function: Callable[..., object], pass_job: object, options: Mapping[str, object]
    ) -> Enqueues[..., Any]:
        if not isinstance(pass_job, bool):
            raise ValidationError(f"pass_job must be a bool, not {type(pass_job).__name__}")
        given = options.get("name")
        name = check_name(_name_of(function) if given is None else given, "task name")
        if name in self._known:
            raise ValidationError(f"there is a task {name!r} already: give one of the two another name")
        resolved = resolve(options)
        parameters = Parameters(name, function, pass_job=pass_job)
        definition = Definition(self, name, function, parameters, resolved, pass_job)
        task = JobTask[..., Any](definition) if pass_job else Task[..., Any](definition)
        self._known[name] = task
        self.any_timeout |= resolved.timeout is not None
        return task

    def get(self, name: str) -> Enqueues[..., Any] | None:
        """Return the task of a name, or ``None``."""
        return self._known.get(name)

    def __iter__(self) -> Iterator[Enqueues[..., Any]]:
        """Go through the tasks, in the order in which they were made."""
        return iter(list(self._known.values()))

    def was_enqueued(self, store: Store, frame: Frame | None) -> None:
        """Tell whoever wants to know."""
        told = self.on_enqueue
        if told is not None:
            told(store, frame)

    # --- the worker ----------------------------------------------------------------------------------------------

    def handlers(self, queues: Iterable[str] | None = None) -> dict[str, Handler]:
        """Return a worker's handlers, by queue: for all queues that tasks go to, or for those given.

        Each runs whatever task a job names. Raises ``ValidationError`` for what can't be a queue's name.
        """
        if isinstance(queues, str | bytes):
            raise ValidationError(f"queues must be an iterable of names, not {type(queues).__name__}")
        handler = TaskHandler(self)
        names = [task.queue for task in self._known.values()] if queues is None else queues
        return {check_name(name, "queue name"): handler for name in names}

    def worker(self, store: Store | None = None, *, queues: Iterable[str] | None = None, **options: Any) -> Worker:
        """Return a worker that runs the tasks, of all queues that they go to or of those given.

        ``store``: by default the one that was bound. Other keywords are those of ``Worker``; raises what that does, too.
        """
        return Worker(self.store if store is None else store, self.handlers(queues), **options)

    # --- in another process --------------------------------------------------------------------------------------

    def __reduce__(self) -> str:
        """Be found in another process by module and name, as functions are: what it knows is made by importing that."""
        for module in _modules([task.definition.function.__module__ for task in self]):
            for name, value in list(vars(module).items()):
                if value is self:
                    # Where pickle looks for the name. Noted now, as it isn't known before the application has named it.
                    self.__module__ = module.__name__
                    return name
        raise pickle.PicklingError("the Tasks must be in a variable of a module, to be found there by another process")


def _modules(first: Iterable[str]) -> Iterator[ModuleType]:
    """Go through what is imported, the likely ones first."""
    modules: list[object] = [sys.modules.get(name) for name in first]
    for module in [*modules, *list(sys.modules.values())]:
        if isinstance(module, ModuleType):
            yield module


def _name_of(function: object) -> str:
    """Return a function's module and qualified name; of a program's own, as it is called when another imports it."""
    module: str = getattr(function, "__module__", None) or ""
    name: object = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        raise ValidationError(f"a task must be a function, or have a name: {shown(function)} has none")
    if module in {MAIN, MAIN_HERE}:
        variables = cast("dict[str, object]", getattr(function, "__globals__", {}))
        spec, file = variables.get("__spec__"), variables.get("__file__")
        known: object = getattr(spec, "name", None)
        module = known if isinstance(known, str) and known not in {MAIN, MAIN_HERE} else Path(str(file or "main")).stem
    return f"{module}.{name}"
