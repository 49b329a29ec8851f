"""Payloads to bytes and back: JSON, raw bytes, and others by name (clauses Q-ENQ-2, Q-CLAIM-7, Z-10).

The JSON codec promises that what comes back is equal to what went in, of the same type, keys in the same order (a
tuple comes back as a list). Python's own encoder keeps no such promise by itself: it turns the key ``1`` into
``"1"``, writes NaN, and takes subclasses whose type is then lost. So every value is looked at first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Final, Protocol, cast, runtime_checkable

from alkstore.errors import PayloadError, ValidationError, shown
from alkstore.limits import INTEGER_DIGITS, PAYLOAD_BYTES, PAYLOAD_DEPTH
from alkstore.names import check_name

GROUP: Final = "alkstore.codecs"
"""The entry-point group in which a distribution names its codecs."""


@runtime_checkable
class Codec(Protocol):
    """Turns payloads into bytes and back.

    ``name`` is stored with every job, and finds the codec again when the job is read. ``decode(encode(x))`` should
    equal ``x``. What either raises reaches the caller as the ``__cause__`` of a ``PayloadError``.
    """

    @property
    def name(self) -> str:
        """The name stored beside the payload: 1 to 200 characters, not starting with ``_``."""
        ...

    def encode(self, payload: object) -> bytes:
        """Return the payload as bytes."""
        ...

    def decode(self, data: bytes) -> object:
        """Return the payload that the bytes stand for."""
        ...


class JsonCodec:
    """JSON in UTF-8, without what JSON would silently change."""

    def __init__(self, limit: int = PAYLOAD_BYTES) -> None:
        """Take the limit of an encoded payload, in bytes: one that surely exceeds it isn't walked to its end."""
        self._limit = limit

    @property
    def name(self) -> str:
        """``json``."""
        return "json"

    def encode(self, payload: object) -> bytes:
        """Return the payload as JSON; raise ``PayloadError`` with the path of what JSON can't hold."""
        _check(payload, (), 0, [self._limit])
        try:
            return _ENCODER.encode(payload).encode("utf-8")
        except UnicodeEncodeError:
            path = _surrogate_path(payload, ())
            raise PayloadError(f"{_spell(path)} holds a lone surrogate, which is not text") from None
        except ValueError as exc:  # an integer past a limit that this process has set below Python's default
            raise PayloadError(f"payload can't be written as JSON: {exc}") from exc

    def decode(self, data: bytes) -> object:
        """Return the payload; raise ``PayloadError`` where the bytes are not JSON in UTF-8."""
        try:
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as exc:
            raise PayloadError(f"payload is not JSON in UTF-8: {exc}") from exc


class RawCodec:
    """Bytes as they are."""

    @property
    def name(self) -> str:
        """``raw``."""
        return "raw"

    def encode(self, payload: object) -> bytes:
        """Return the very bytes; raise ``PayloadError`` for anything else."""
        if type(payload) is not bytes:
            raise PayloadError(f"payload must be bytes for the codec 'raw', not {type(payload).__name__}")
        return payload

    def decode(self, data: bytes) -> object:
        """Return the very bytes."""
        return data


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_INTEGER_END: Final = 10**INTEGER_DIGITS
_PLAIN: Final = frozenset[type]({str, bool, type(None)})
"""Types of which every value is its own in JSON."""

# What people reach for first, by the names of the types, so that nothing is imported for it.
_HINTS: Final = {
    "bytes": "; a queue made with codec='raw' takes bytes",
    "date": "; pass value.isoformat(), or give a codec",
    "datetime": "; pass value.isoformat(), or give a codec",
    "Decimal": "; pass str(value), or give a codec",
    "UUID": "; pass str(value), or give a codec",
}

Path = tuple[object, ...]


def _check(value: object, path: Path, depth: int, room: list[int]) -> None:
    """Refuse, with its path, whatever JSON would lose or change."""
    inside: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        for key in fields:
            if type(key) is not str:
                raise PayloadError(
                    f"{_spell(path)} has the key {shown(key)}: keys must be str, not {type(key).__name__}"
                )
        size, inside = len(fields), fields.items()
    elif isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        size, inside = len(items), enumerate(items)
    else:
        _check_one(value, path)
        return
    if depth >= PAYLOAD_DEPTH:
        raise PayloadError(f"{_spell(path[:3])} is nested deeper than {PAYLOAD_DEPTH} levels, or contains itself")
    _take(room, size)
    for step, item in inside:
        # Most of it gets no call and no path of its own: together those took longer than the encoding.
        if type(item) not in _PLAIN and not (type(item) is int and -_INTEGER_END < item < _INTEGER_END):
            _check(item, (*path, step), depth + 1, room)


def _check_one(value: object, path: Path) -> None:
    if type(value) in _PLAIN:
        return
    if type(value) is int:
        if not -_INTEGER_END < value < _INTEGER_END:
            raise PayloadError(f"{_spell(path)} is an integer of more than {INTEGER_DIGITS} digits")
    elif type(value) is float:
        if not math.isfinite(value):
            raise PayloadError(f"{_spell(path)} is {value!r}, which JSON doesn't have")
    else:
        kind = type(value).__name__
        raise PayloadError(f"{_spell(path)} is of type {kind}, which JSON doesn't have{_HINTS.get(kind, '')}")


def _take(room: list[int], items: int) -> None:
    # Every item takes a byte at least. What holds the same list many times over, and that again, is small in memory and
    # endless as text: it is refused before it is spelt out.
    room[0] -= items
    if room[0] < 0:
        raise PayloadError("payload is over the limit: it has more items than that has bytes")


def _surrogate_path(value: object, path: Path) -> Path | None:
    """Return the path of the first text that isn't valid Unicode."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return path
    elif isinstance(value, dict):
        for key, item in cast(dict[str, object], value).items():
            found = _surrogate_path(key, (*path, key)) or _surrogate_path(item, (*path, key))
            if found is not None:
                return found
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast(list[object], value)):
            found = _surrogate_path(item, (*path, index))
            if found is not None:
                return found
    return None


def _spell(path: Path | None) -> str:
    """Spell a path as Python would reach it: ``payload['to'][0]``."""
    return "payload" + "".join(f"[{shown(step)}]" for step in path or ())


_BUILT_IN: Final = ("json", "raw")


class Codecs:
    """The codecs that a store knows, by name: the built-in ones, those given to it, and those of entry points."""

    def __init__(self, extra: Iterable[object] = (), limit: int = PAYLOAD_BYTES) -> None:
        """Take the codecs of ``open(codecs=...)`` and the limit of a payload; ``ValidationError`` for what isn't one."""
        self._known: dict[str, Codec] = {"json": JsonCodec(limit), "raw": RawCodec()}
        self._unknown: dict[str, str] = {}  # why each isn't
        for codec in extra:
            checked = _checked(codec)
            if checked.name in self._known:
                # Jobs that another codec of the name has written would be read wrongly, and nobody would be told.
                raise ValidationError(f"codecs must have names of their own, and {checked.name!r} is taken")
            self._known[checked.name] = checked

    def choose(self, codec: object) -> Codec:
        """Return the codec for a handle: by name, by itself, or JSON for ``None``; raise ``ValidationError``."""
        if codec is None:
            return self._known["json"]
        if isinstance(codec, str):
            try:
                return self._find(codec)
            except LookupError as exc:
                raise ValidationError(f"{exc.args[0]}; known are {', '.join(sorted(self._known))}") from exc
        chosen = _checked(codec)
        # Jobs written with it should be readable by this store, whatever handle reads them (Z-10). Where another of the
        # name is known already, that one reads; what is given to a handle is what it writes with (Q-ENQ-2).
        self._known.setdefault(chosen.name, chosen)
        return chosen

    def others(self) -> list[Codec]:
        """Return those that are known by now, but for the built-in ones."""
        return [codec for name, codec in self._known.items() if name not in _BUILT_IN]

    def decode(self, name: str, data: bytes) -> object:
        """Return the payload; raise ``PayloadError`` where the codec isn't known, or can't decode it."""
        try:
            codec = self._find(name)
        except LookupError as exc:
            raise PayloadError(f"payload can't be decoded: {exc.args[0]}") from exc
        try:
            return codec.decode(data)
        except PayloadError:
            raise
        except Exception as exc:
            raise PayloadError(f"payload can't be decoded by the codec {name!r}: {exc!r}") from exc

    def _find(self, name: str) -> Codec:
        """Return the codec of the name, from an entry point where need be; raise ``LookupError``."""
        if name not in self._known:
            if name not in self._unknown:
                self._load(name)
            if name in self._unknown:
                raise LookupError(self._unknown[name])
        return self._known[name]

    def _load(self, name: str) -> None:
        """Look among the entry points once, and remember what came of it: a queue may hold many such jobs."""
        claims = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
        if len(claims) != 1:
            found = f"has several claimants ({', '.join(sorted(claims))})" if claims else "is not known"
            self._unknown[name] = f"codec {name!r} {found}"
            return
        try:
            loaded = next(iter(claims.values())).load()
            codec = _checked(loaded() if isinstance(loaded, type) else loaded)
        except Exception as exc:  # noqa: BLE001 - an entry point is anybody's code: it must not end a claim (Q-CLAIM-7)
            self._unknown[name] = f"codec {name!r} can't be loaded: {exc!r}"
            return
        if codec.name == name:
            self._known[name] = codec
        else:
            # What it writes would be stored under the one name and looked for under the other.
            self._unknown[name] = f"codec {name!r} calls itself {codec.name!r}"


def encode(codec: Codec, payload: object, limit: int) -> bytes:
    """Return the payload's bytes; raise ``PayloadError`` for what can't be encoded, or is over ``limit`` bytes."""
    try:
        data = codec.encode(payload)
    except PayloadError:
        raise
    except Exception as exc:  # a codec is anybody's code, and nothing has been written yet
        raise PayloadError(f"payload can't be encoded by the codec {codec.name!r}: {exc!r}") from exc
    if type(data) is not bytes:
        raise PayloadError(f"the codec {codec.name!r} must return bytes, not {type(data).__name__}")
    if len(data) > limit:
        raise PayloadError(f"payload is {len(data)} bytes when encoded, over the limit of {limit}")
    return data


def _checked(codec: object) -> Codec:
    if not isinstance(codec, Codec):
        raise ValidationError(f"codec must have a name, encode() and decode(); {shown(codec)} has not")
    check_name(codec.name, "codec name")
    return codec


def encode_headers(headers: Mapping[str, str]) -> str:
    """Return checked headers as JSON text, which is how engines store them."""
    # Escaped to ASCII: a NUL in a value is then text that every database takes.
    return json.dumps(headers) if headers else "{}"


def decode_headers(text: str) -> dict[str, str]:
    """Return the headers that an engine stored."""
    return {} if text == "{}" else cast(dict[str, str], json.loads(text))
