"""URLs and options: what is read, what is refused, and that no password is ever shown (S-1, S-6)."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from alkstore.errors import ValidationError
from alkstore_postgres.location import locate

SECRET = "hunter2pass"


def test_every_scheme_names_the_same_place() -> None:
    """S-1: postgresql, postgres and postgresql+psycopg, whatever their case."""
    places = {
        locate(f"{scheme}://u:p@h:1/d", {}).conninfo for scheme in ("postgresql", "POSTGRES", "postgresql+psycopg")
    }
    assert len(places) == 1


def test_libpq_parameters_are_kept() -> None:
    """Several hosts, a socket's directory and parameters reach libpq as they are."""
    found = locate("postgresql://u@a:1,b:2/d?target_session_attrs=read-write&application_name=mine", {})
    assert "host=a,b" in found.conninfo
    assert "port=1,2" in found.conninfo
    assert "target_session_attrs=read-write" in found.conninfo
    assert "application_name=mine" in found.conninfo
    assert found.where == "postgresql://a:1,b:2/d"
    assert "host=/run/pg" in locate("postgresql://u@/d?host=/run/pg", {}).conninfo


def test_the_client_encoding_is_not_the_urls_to_choose() -> None:
    assert "client_encoding=UTF8" in locate("postgresql://h/d?client_encoding=latin1", {}).conninfo


def test_a_timeout_in_the_url_stands_unless_the_option_is_given() -> None:
    assert "connect_timeout=7" in locate("postgresql://h/d?connect_timeout=7", {}).conninfo
    assert "connect_timeout=3" in locate("postgresql://h/d?connect_timeout=7", {"connect_timeout": 2.5}).conninfo


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", ""),
        ("schema", "x" * 64),
        ("schema", "ü" * 32),
        ("schema", "pg_toast"),
        ("schema", "a\0b"),
        ("schema", "\udc80"),
        ("schema", b"alkstore"),
        ("pool_size", 0),
        ("pool_size", True),
        ("pool_size", "10"),
        ("connect_timeout", 0),
        ("connect_timeout", "soon"),
        ("max_lifetime", -1),
        ("max_lifetime", None),
        ("prepare_threshold", -1),
        ("pool_sise", 3),
    ],
)
def test_an_option_that_is_wrong_is_named(key: str, value: Any) -> None:
    """O-4 for the engine's own options."""
    with pytest.raises(ValidationError, match=key):
        locate("postgresql://h/d", {key: value})


def test_an_odd_schema_name_is_a_name() -> None:
    assert locate("postgresql://h/d", {"schema": 'My "Schema".x'}).schema == 'My "Schema".x'


MALFORMED = [
    f"postgresql://user:{SECRET}@host:{SECRET}/db",
    f"postgresql://user:{SECRET}@host:99999/db",
    f"postgresql://user:{SECRET}@host:0/db",
    pytest.param(f"postgresql://user:{SECRET}@host:{'9' * 5_000}/db", id="a port of thousands of digits"),
    f"postgresql://user:{SECRET}%@host/db",
    f"postgresql://user:{SECRET}%zz@host/db",
    f"postgresql://user:{SECRET}%00@host/db",
    f"postgresql://user:{SECRET}/x@host/db",
    f"postgresql://user:1/{SECRET}@host/db",
    f"postgresql://user:x@{SECRET}@host/db",
    f"postgresql://user:{SECRET}@[::1/db",
    f"postgresql://user:{SECRET}@host/db?nosuch=1",
    f"postgresql://user@host/db?password={SECRET}&broken",
    f"postgresql://user@host/db?password={SECRET}&password",
    f"postgresql://user@host/db?{SECRET}",
    f"postgresql://user:{SECRET}\n@host/db",
    f"postgresql://user:{SECRET}\udc80@host/db",
    f"postgresql:/user:{SECRET}@host/db",
    f"user:{SECRET}@host/db",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_without_showing_it(url: str) -> None:
    """S-6: the driver's own message would hold the password, so neither it nor a cause or context is there."""
    with pytest.raises(ValidationError) as caught:
        locate(url, {})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_the_location_shows_no_password() -> None:
    """S-6: its repr holds none of the connection's parameters; the text that messages use has server and database."""
    found = locate(f"postgresql://user:{SECRET}@h:1/d?sslpassword=other{SECRET}", {})
    assert SECRET not in repr(found)
    assert SECRET not in found.where
    assert found.safe("fine") == "fine"
    assert found.safe(f"so {SECRET} it is") is None
    assert found.safe(f"or other{SECRET}") is None
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301


@pytest.mark.parametrize("place", [f"h/{SECRET}", f"{SECRET}.example:1/d"])
def test_a_place_in_whose_name_the_password_is_isnt_spelt(place: str) -> None:
    """S-6, to the letter."""
    found = locate(f"postgresql://user:{SECRET}@{place}", {})
    assert SECRET not in found.where
    assert found.where.startswith("postgresql://")
