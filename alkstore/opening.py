"""From a URL, a mapping or the environment to an engine, through entry points (clause S-1)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from alkstore.engine import Engine, EngineFactory, EngineOptions
from alkstore.errors import UnknownEngineError, ValidationError, shown

GROUP: Final = "alkstore.engines"
"""The entry-point group in which a distribution names its engines, by URL scheme."""

URL_VARIABLE: Final = "ALKSTORE_URL"

# RFC 3986, section 3.1; a scheme is compared without regard to case.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Reopen:
    """Opens an engine as the store's was opened, on a URL of the same place: a value, which can be sent to another process."""

    factory: EngineFactory
    options: EngineOptions
    extra: Mapping[str, object]

    def __call__(self, url: str) -> Engine:
        """Open it."""
        return self.factory(url, self.options, self.extra)


def find_engine(url: object) -> EngineFactory:
    """Return the factory of the engine that answers to the URL's scheme.

    Raises ``ValidationError`` for what isn't a URL, and ``UnknownEngineError`` where no installed distribution, or
    more than one, claims the scheme, or where the engine can't be imported.
    """
    if not isinstance(url, str):
        raise ValidationError(f"url must be a str, not {type(url).__name__}")
    found = _SCHEME.match(url)
    if found is None:
        # The text isn't repeated: it could be a password pasted into the wrong place (S-6).
        raise ValidationError("url must begin with a scheme, as in sqlite:///jobs.db or postgresql://host/database")
    scheme = found.group(1).lower()
    claimants = _claimants(scheme)
    if not claimants:
        installed = (
            ", ".join(sorted({entry.name for entry in entry_points(group=GROUP)}))
            or "none (is alkstore itself installed? pip install)"
        )
        raise UnknownEngineError(f"no installed engine answers to {scheme!r}; installed are: {installed}")
    if len(claimants) > 1:
        owners = ", ".join(sorted(f"{_owner(entry)} ({entry.value})" for entry in claimants))
        raise UnknownEngineError(f"more than one installed engine answers to {scheme!r}: {owners}; uninstall one")
    entry = claimants[0]
    try:
        return cast(EngineFactory, entry.load())
    except (ImportError, AttributeError) as exc:
        raise UnknownEngineError(f"the engine for {scheme!r}, {_owner(entry)}, can't be loaded: {exc}") from exc


def _claimants(scheme: str) -> list[EntryPoint]:
    """Return the distinct claims of a scheme: one distribution seen twice on the path makes one claim."""
    distinct: dict[tuple[str, str], EntryPoint] = {}
    for entry in entry_points(group=GROUP, name=scheme):
        distinct.setdefault((_owner(entry), entry.value), entry)
    return list(distinct.values())


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"


def url_from_environment() -> str:
    """Return ``ALKSTORE_URL``; raise ``ValidationError`` where it isn't set."""
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        raise ValidationError(f"no url given, and {URL_VARIABLE} is not set, or empty")
    return url


def split_config(config: object) -> tuple[object, dict[str, object]]:
    """Return the URL and the options of a configuration mapping; raise ``ValidationError`` naming the key."""
    if not isinstance(config, Mapping):
        raise ValidationError(f"config must be a mapping, not {type(config).__name__}")
    options: dict[str, object] = {}
    for key, value in cast(Mapping[object, object], config).items():
        if not isinstance(key, str):
            raise ValidationError(f"config has the key {shown(key)}: keys must be str")
        options[key] = value
    if options.get("url") is None:
        raise ValidationError("config has no key 'url'")
    return options.pop("url"), options
