"""What a worker's processes need to begin: handlers by reference, where the program is, and the way to the store.

It is pickled piece by piece: a ``clock=`` that can't be is no error until a handler wants the store. It goes by a pipe, and nothing
of it is in a command line, the environment or a file: a URL has its password.
"""

from __future__ import annotations

import io
import os
import pickle
import runpy
import sys
import types
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from alkstore.errors import ValidationError
from alkstore.hooks import Hooks
from alkstore.store import Store
from alkstore.texts import describe
from alkstore.worker.guard import MAIN, MAIN_HERE, importing
from alkstore.worker.hands import Handler

# --- pieces ----------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A value on its way, or why it couldn't be sent."""

    data: bytes | None
    why: str = ""


def pack(value: object) -> Piece:
    """Pickle it, if that can be done."""
    try:
        return Piece(pickle.dumps(value))
    except Exception as exc:  # noqa: BLE001 - the application's own __reduce__, which may raise anything
        return Piece(None, describe(exc))


def unpack(piece: Piece, what: str) -> object:
    """Return the value; raise ``ValidationError``, naming it, where it couldn't be sent, or can't be read here."""
    why = piece.why
    if piece.data is not None:
        try:
            return _Reader(piece.data).load()
        except Exception as exc:
            raise ValidationError(f"{what} can't be had in a process of the worker's: {describe(exc)}") from exc
    raise ValidationError(f"{what} can't be had in a process of the worker's: {why}")


class _Reader(pickle.Unpickler):
    """Imports the program itself where something of it is named, and not before: most handlers are in modules."""

    def __init__(self, data: bytes, *, importing: bool = True) -> None:
        super().__init__(io.BytesIO(data))
        self.names_main = False
        self._importing = importing

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == MAIN:
            self.names_main = True
            if self._importing:
                import_main()
        return super().find_class(module_name, global_name)


# --- the program -----------------------------------------------------------------------------------------------------


class Surroundings(NamedTuple):
    """Where the program is, and how it finds its modules."""

    path: list[str]
    arguments: list[str]
    folder: str
    main_name: str | None
    """The program's module, where it was started as ``python -m``."""
    main_path: str | None
    """Its file, where it was started as a script."""

    @classmethod
    def here(cls) -> Surroundings:
        """Return this process's."""
        main = sys.modules[MAIN]
        name = getattr(getattr(main, "__spec__", None), "name", None)
        path = getattr(main, "__file__", None)
        folder = os.getcwd()  # noqa: PTH109 - the path's entries are texts
        return cls(
            path=[each or folder for each in sys.path],
            arguments=list(sys.argv),
            folder=folder,
            main_name=None if name == MAIN else name,  # a folder or an archive that was run: nothing imports that
            main_path=None if path is None or name is not None else os.path.join(folder, path),  # noqa: PTH118
        )

    @property
    def main_is_importable(self) -> bool:
        """Whether the program itself can be imported."""
        return self.main_name is not None or self.main_path is not None


_arrived: Surroundings | None = None
_main_is_here = False


def settle_in(surroundings: Surroundings) -> None:
    """Make this process find modules and files as the worker's does; its path was set before."""
    global _arrived  # noqa: PLW0603 - a process has one
    _arrived = surroundings
    sys.argv[:] = surroundings.arguments
    os.chdir(surroundings.folder)


def import_main() -> None:
    """Import the worker's program under another name than ``__main__``, so that what it guards isn't run, and once."""
    global _main_is_here  # noqa: PLW0603 - a process has one
    if _arrived is None or _main_is_here:
        return
    module = types.ModuleType(MAIN_HERE)
    with importing():
        if _arrived.main_name is not None:
            module.__dict__.update(runpy.run_module(_arrived.main_name, run_name=MAIN_HERE, alter_sys=True))
        elif _arrived.main_path is not None:
            module.__dict__.update(runpy.run_path(_arrived.main_path, run_name=MAIN_HERE))
    sys.modules[MAIN] = sys.modules[MAIN_HERE] = module
    _main_is_here = True


# --- handlers --------------------------------------------------------------------------------------------------------


def refer(handlers: Mapping[str, Handler], surroundings: Surroundings) -> dict[str, bytes]:
    """Return the handlers as other processes find them.

    Raises ``ValidationError``, naming the queue and the handler, for one that can't be imported by its module and name.
    """
    return {queue: _refer(queue, handler, surroundings) for queue, handler in handlers.items()}


def _refer(queue: str, handler: Handler, surroundings: Surroundings) -> bytes:
    name = getattr(handler, "__qualname__", None)
    name = name if isinstance(name, str) else type(handler).__qualname__
    wanted = f"the handler {name} of the queue {queue!r} can't be run in another process"
    piece = pack(handler)
    if piece.data is None:
        raise ValidationError(f"{wanted}: it must be importable by its module and name ({piece.why})")
    reader = _Reader(piece.data, importing=False)
    try:
        reader.load()
    except Exception as exc:
        raise ValidationError(f"{wanted}: {describe(exc)}") from exc
    if reader.names_main and not surroundings.main_is_importable:
        raise ValidationError(
            f"{wanted}: it is defined at a prompt, or in a program that has no file or module to import"
        )
    return piece.data


def find_handler(data: bytes) -> Handler:
    """Import a handler; raises whatever that does."""
    return cast(Handler, _Reader(data).load())


def deputy(data: bytes) -> Hooks:
    """Return a hook's deputy (``Hooks.deputy``); raise ``ValidationError`` for what can't be read here, or is none."""
    found = unpack(Piece(data), "a hook's deputy")
    if not isinstance(found, Hooks):
        raise ValidationError(f"a hook's deputy must be an instance of alkstore.Hooks, not {type(found).__name__}")
    return found


# --- the store -------------------------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """How the worker's store is opened once more."""

    url: str
    """With its password."""
    reopen: Piece
    clock: Piece
    codecs: list[tuple[str, Piece]]
    max_payload: int
    max_result: int
    hooked: bool
    """Whether it has hooks, which want to be told."""


def recipe_of(store: Store) -> Recipe:
    """Return how to open the store once more, in another process."""
    return Recipe(
        url=store.engine.url,
        reopen=pack(store.reopen),
        clock=pack(store.clock),
        codecs=[(codec.name, pack(codec)) for codec in store.codecs.others()],
        max_payload=store.max_payload,
        max_result=store.max_result,
        hooked=store.hooks is not None,
    )
