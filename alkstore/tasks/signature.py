"""A task's parameters: arguments are checked against them when they are enqueued, and once more when they are run.

What is stored is a JSON object by the parameters' names, whatever way they were passed: ``*args`` is a list in it, and
``**kwargs`` an object. Defaults aren't stored, so that they are the worker's. Between the two checks lies a deployment, it may be:
what doesn't fit any more is a failed attempt that says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments, Parameter, Signature
from typing import Any, Final, cast

from alkstore.errors import ValidationError, shown

RESERVED: Final = "tx"
"""What ``enqueue`` takes besides the task's own arguments."""

_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


_STORED: Final[Mapping[object, type]] = {Parameter.VAR_POSITIONAL: list, Parameter.VAR_KEYWORD: dict}
"""What ``*args`` and ``**kwargs`` are when they come back; neither has to be there."""


class Parameters:
    """What a task takes, without the running job."""

    __slots__ = ("_signature", "_task")

    def __init__(self, task: str, function: Callable[..., object], *, pass_job: bool) -> None:
        """Read the function's signature; raise ``ValidationError`` for one that can't be a task's."""
        self._task = task
        parameters = list(_signature_of(task, function).parameters.values())
        if pass_job:
            if not parameters or parameters[0].kind not in _POSITIONAL:
                raise ValidationError(f"task {task!r} has pass_job=True, and its first parameter must take the job")
            del parameters[0]
        for parameter in parameters:
            if parameter.name == RESERVED:
                raise ValidationError(
                    f"task {task!r} must not have a parameter {RESERVED!r}: that is the transaction of its enqueue"
                )
        # Without the annotations: they play no part, and would be spelt out in errors.
        self._signature: Final = Signature([each.replace(annotation=Parameter.empty) for each in parameters])

    @property
    def names(self) -> list[str]:
        """What its parameters are called."""
        return list(self._signature.parameters)

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by name; raise ``ValidationError`` naming the one that doesn't fit."""
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise ValidationError(f"task {self._task!r}: {exc}") from None

    def complete(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return arguments by name with the defaults of those that are missing."""
        bound = BoundArguments(self._signature, cast(Any, dict(arguments)))
        bound.apply_defaults()
        return bound.arguments

    def unbind(self, arguments: Mapping[str, object]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return what to call the function with; raise ``ValidationError`` for what doesn't fit it (any more)."""
        known = self._signature.parameters
        for name, value in arguments.items():
            if name not in known:
                raise self._unfit(f"it takes no argument {shown(name)}")
            wanted = _STORED.get(known[name].kind, object)
            if not isinstance(value, wanted):
                raise self._unfit(f"its {known[name]} can't be {shown(value)}")
        for name, parameter in known.items():
            if name not in arguments and parameter.default is Parameter.empty and parameter.kind not in _STORED:
                raise self._unfit(f"it needs an argument {name!r}")
        bound = BoundArguments(self._signature, cast(Any, dict(arguments)))
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _unfit(self, why: str) -> ValidationError:
        return ValidationError(f"the arguments don't fit the task {self._task!r} as it is here: {why}")


def _signature_of(task: str, function: Callable[..., object]) -> Signature:
    if not callable(cast(object, function)) or isinstance(function, type):
        raise ValidationError(f"a task must be a function, not {shown(function)}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError(f"task {task!r} is async, and a worker runs plain functions: call asyncio.run in one")
    if inspect.isgeneratorfunction(function):
        raise ValidationError(f"task {task!r} is a generator function, and calling it would run nothing of it")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise ValidationError(f"task {task!r} has no signature that can be read: {exc}") from exc
