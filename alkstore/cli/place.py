"""Which store is meant: ``--url`` over ``ALKSTORE_URL`` over the ``[tool.alkstore]`` table of ``pyproject.toml``."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from alkstore.errors import ValidationError
from alkstore.hooks import Hooks
from alkstore.opening import URL_VARIABLE
from alkstore.protocols import Store
from alkstore.store import open_from

PROJECT: Final = "pyproject.toml"

# Keywords that name another place beside the URL: they belong to the URL that they stand beside.
_PLACES: Final = ("url", "listen_url")


@dataclass(frozen=True)
class Place:
    """What ``--url`` and ``--schema`` say; the rest is looked up when the store is opened."""

    url: str | None
    schema: str | None

    def open(self, *, migrate: bool = False, hooks: Sequence[Hooks] = ()) -> Store:
        """Open the store.

        ``migrate``: ``False`` creates and upgrades nothing, so that a mistyped URL makes no new database.
        ``hooks``: what is told of its jobs. Raises
        ``ValidationError`` where no URL is given, and whatever ``alkstore.open_from`` raises.
        """
        table, folder = _project_table()
        url = self.url or os.environ.get(URL_VARIABLE)
        config = {**table, "migrate": migrate}
        if hooks:
            config["hooks"] = hooks
        if self.schema is not None:
            config["schema"] = self.schema
        if url:
            config = {key: value for key, value in config.items() if key not in _PLACES} | {"url": url}
            folder = None
        elif config.get("url") is None:
            raise ValidationError(
                f"no url: give --url, or set {URL_VARIABLE}, or write url under [tool.alkstore] in {PROJECT}"
            )
        # A relative path in the project's file means the same from each of the project's folders.
        with contextlib.nullcontext() if folder is None else contextlib.chdir(folder):
            return open_from(config)


def _project_table() -> tuple[dict[str, Any], Path | None]:
    """Return the table of the nearest ``pyproject.toml``, empty where it has none, and the file's folder."""
    path = next((path for path in _candidates() if path.is_file()), None)
    if path is None:
        return {}, None
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ValidationError(f"{path} can't be read: {exc}") from exc
    tools: object = document.get("tool", {})
    table: object = cast(dict[str, object], tools).get("alkstore", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise ValidationError(f"{path}: tool.alkstore must be a table, not {type(table).__name__}")
    return cast(dict[str, Any], table), path.parent


def _candidates() -> Iterator[Path]:
    try:
        here = Path.cwd()
    except OSError:  # the folder is gone
        return
    for folder in (here, *here.parents):
        yield folder / PROJECT
