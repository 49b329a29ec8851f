"""From a URL and the engine's own options to what a connection needs, without ever showing a password (S-1, S-6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from alkstore.clock import SECOND, duration
from alkstore.errors import ValidationError, shown
from alkstore.options import check_engine_options, check_int

SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")

_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")
_SCHEMA_BYTES: Final = 63  # NAMEDATALEN - 1: longer identifiers are cut by the server, silently
_PORT_DIGITS: Final = 100  # leading noughts are as good as none
_POOL_SIZE: Final = 10
_CONNECT_TIMEOUT: Final = 10
_MAX_LIFETIME: Final = 3600
_PREPARE_THRESHOLD: Final = 5

_UNSPELT: Final = "postgresql://..."
"""How a place is spelt of whose name a password is a part."""

# What a URL may override. A peer that went away without a word is found within minutes instead of hours.
_DEFAULTS: Final[Mapping[str, str]] = {
    "fallback_application_name": "alkstore",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "6",
    "tcp_user_timeout": "120000",
}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is, and how connections to it are made. Its repr shows no password."""

    where: str
    """The server and database, as messages name them."""
    url: str = field(repr=False)
    """As it was given."""
    conninfo: str = field(repr=False)
    """libpq's connection string."""
    secrets: frozenset[str] = field(repr=False)
    """What no message may hold."""
    schema: str
    pool_size: int
    max_lifetime: float = field(repr=False)
    """Seconds."""
    prepare_threshold: int | None = field(repr=False)
    listen_conninfo: str = field(repr=False)
    """The same for the session that listens."""
    polls: bool = field(repr=False)
    """Nobody listens."""
    silent: bool = field(repr=False)
    """Nobody is rung."""
    lent: bool | None
    """Sessions are lent by the transaction: nothing may be set for longer than one. ``None``: it is found out."""

    def safe(self, text: str) -> str | None:
        """Return the driver's text where it can be shown, and ``None`` where it holds a password."""
        return None if any(secret in text for secret in self.secrets) else text


def locate(url: str, extra: Mapping[str, object]) -> Location:
    """Return the location; raise ``ValidationError`` naming the option, or saying what is wrong with the URL.

    Options: ``schema`` (a text of 1 to 63 bytes, not starting with ``pg_``), ``pool_size`` (the most connections,
    default 10), ``connect_timeout`` (a duration, 2 seconds or more, default 10; per host), ``max_lifetime`` (a duration
    after which a connection is replaced, default an hour), ``prepare_threshold`` (after how many runs a statement is
    prepared, default 5, through a pooler that lends by the transaction ``None``: never), ``listen_url`` (where the session
    goes that listens, default the URL), ``wakes`` (``notify``, the default, or ``poll``: without such a session),
    ``pooler`` (``transaction`` where the URL goes through a pooler that lends sessions by the transaction, ``session`` where
    through one that doesn't, default ``None``: it is found out).
    """
    known = {
        "schema", "pool_size", "connect_timeout", "max_lifetime", "prepare_threshold", "listen_url", "wakes", "pooler",
    }  # fmt: skip
    check_engine_options(extra, frozenset(known), "postgresql")
    parameters = _parse(url)
    timeout = extra.get("connect_timeout")
    if timeout is not None:
        seconds = math.ceil(duration(timeout, "connect_timeout", positive=True) / SECOND)
        parameters["connect_timeout"] = str(max(seconds, 2))  # libpq's own least
    listen_url, wakes, pooler = extra.get("listen_url"), extra.get("wakes", "notify"), extra.get("pooler")
    if pooler not in (None, "transaction", "session"):
        raise ValidationError(f"pooler must be 'transaction', 'session' or None, not {shown(pooler)}")
    lent = None if pooler is None else pooler == "transaction"
    threshold = extra.get("prepare_threshold", None if lent else _PREPARE_THRESHOLD)
    if listen_url is not None and not isinstance(listen_url, str):
        raise ValidationError(f"listen_url must be a str, not {type(listen_url).__name__}")
    if wakes not in ("notify", "poll"):
        raise ValidationError(f"wakes must be 'notify' or 'poll', not {shown(wakes)}")
    listening = parameters if listen_url is None else _parse(listen_url)
    always = {"connect_timeout": parameters.get("connect_timeout", str(_CONNECT_TIMEOUT))}
    complete = {**_DEFAULTS, **always, **parameters, "client_encoding": "UTF8"}
    secrets = frozenset(each[key] for each in (parameters, listening) for key in _SECRETS if each.get(key))
    where = _spell(parameters)
    return Location(
        # Whoever sees that a password is also the name of a database knows both.
        where=_UNSPELT if any(secret in where for secret in secrets) else where,
        url=url,
        conninfo=make_conninfo("", **complete),
        secrets=secrets,
        schema=_check_schema(extra.get("schema", "alkstore")),
        pool_size=check_int(extra.get("pool_size", _POOL_SIZE), "pool_size", 1, 10_000),
        max_lifetime=duration(extra.get("max_lifetime", _MAX_LIFETIME), "max_lifetime", positive=True) / SECOND,
        prepare_threshold=None if threshold is None else check_int(threshold, "prepare_threshold", 0, 1_000_000),
        listen_conninfo=make_conninfo("", **{**_DEFAULTS, **always, **listening, "client_encoding": "UTF8"}),
        polls=wakes == "poll" or (lent is True and listen_url is None),
        silent=wakes == "poll",
        lent=lent,
    )


def _check_schema(schema: object) -> str:
    if not isinstance(schema, str):
        raise ValidationError(f"schema must be a str, not {type(schema).__name__}")
    name = str.__str__(schema)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValidationError("schema must not contain lone surrogates") from None
    if not 1 <= size <= _SCHEMA_BYTES:
        raise ValidationError(f"schema must have 1 to {_SCHEMA_BYTES} bytes of UTF-8, not {size}")
    if "\0" in name:
        raise ValidationError("schema must not contain NUL")
    if name == "$user":
        raise ValidationError("schema '$user' would be read by PostgreSQL as the role's own name")
    if name.startswith("pg_"):
        raise ValidationError(f"schema {name!r} must not start with 'pg_': such schemas are PostgreSQL's own")
    return name


def _parse(url: str) -> dict[str, str]:
    """Return libpq's parameters.

    Nothing of the URL is repeated in an error: where it is malformed, any part of it may be the password. libpq reads
    an unencoded character of a password as a delimiter and would show the rest of it as a port, a host or a database,
    so what such a reading leaves behind is refused here.
    """
    scheme, mark, rest = url.partition("://")
    if not mark or scheme.lower() not in SCHEMES:
        raise ValidationError(f"the URL must begin with one of {', '.join(f'{known}://' for known in SCHEMES)}")
    if not all(character.isprintable() for character in rest):
        raise ValidationError(
            "the URL must not contain control characters, or characters that can't be written as UTF-8"
        )
    authority, _, path = rest.partition("/")
    if authority.count("@") > 1 or "@" in path.partition("?")[0]:
        raise ValidationError("the URL has an '@' too many: write those of the password or user as %40, a '/' as %2F")
    try:
        parsed = conninfo_to_dict("postgresql://" + rest)
    except psycopg.Error:
        parsed = None
    if parsed is None:  # raised out here, as even a suppressed context would keep the driver's words
        raise ValidationError(
            "the URL can't be read by libpq: special characters must be percent-encoded, and parameters be libpq's own"
        )
    parameters = {key: str(value) for key, value in parsed.items()}
    for port in parameters.get("port", "").split(","):
        # The length first: Python refuses to read thousands of digits with an error of its own.
        if port and not (port.isascii() and port.isdigit() and len(port) < _PORT_DIGITS and 1 <= int(port) <= 65535):
            raise ValidationError(
                "the URL's port must be a number from 1 to 65535; a ':' or '/' of the password is %3A, %2F"
            )
    return parameters


def _spell(parameters: Mapping[str, str]) -> str:
    """Spell the server and database for messages, from the parsed parts only."""
    hosts = (parameters.get("host") or parameters.get("hostaddr") or "").split(",")
    ports = parameters.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places = ",".join(host + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=False))
    return f"postgresql://{places}/{parameters.get('dbname', '')}"
