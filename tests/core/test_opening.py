"""From a URL, a mapping or the environment to an engine (S-1, S-6)."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import alkstore
from alkstore import AlkstoreError, UnknownEngineError, ValidationError

Install = Callable[..., None]

ENGINE = """
from alkstore import Capabilities

OPENED = []


class Engine:
    name = "{scheme}"
    capabilities = Capabilities(durable=False, processes=False, transactions=False, join=False, sql=False)

    def executor(self):
        return None

    def close(self):
        OPENED.append("closed")


def open_engine(url, options, extra):
    OPENED.append((url, options, dict(extra)))
    return Engine()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution that claims schemes for a module, which it brings unless told otherwise."""

    def install_one(name: str, *schemes: str, module: str | None = None, source: str = ENGINE) -> None:
        place = tmp_path / name
        metadata = place / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        target = module or f"{name}_engine"
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{scheme} = {target}:open_engine" for scheme in schemes]
        (metadata / "entry_points.txt").write_text("\n".join(["[alkstore.engines]", *lines, ""]))
        if module is None:
            (place / f"{target}.py").write_text(source.replace("{scheme}", schemes[0]))
            monkeypatch.delitem(sys.modules, target, raising=False)
        monkeypatch.setattr(sys, "path", [str(place), *sys.path])

    return install_one


def opened(name: str) -> list[Any]:
    return cast(list[Any], sys.modules[f"{name}_engine"].OPENED)


def test_a_strangers_engine_opens_like_any_other(install: Install) -> None:
    """It gets the URL as it was written, the common options checked, and the keywords that are its own."""
    install("stranger", "strange")

    with alkstore.open("strange://host/place?a=b#c", lock_timeout=1.5, migrate=False, colour="red") as store:
        assert "strange" in repr(store)

    (url, options, extra), closed = opened("stranger")
    assert ("strange://host/place?a=b#c", {"colour": "red"}, "closed") == (url, extra, closed)
    assert (False, "full", 1_500_000) == (options.migrate, options.durability, options.lock_timeout)


@pytest.mark.parametrize("url", ["STRANGE://host", "Strange:x", "strange+odd.er-1://host"])
def test_schemes_are_compared_without_regard_to_case(install: Install, url: str) -> None:
    """And may hold what RFC 3986 allows."""
    install("stranger", "strange", "strange+odd.er-1")
    with alkstore.open(url):
        assert url == opened("stranger")[0][0]


def test_an_unknown_scheme_lists_what_is_installed(install: Install) -> None:
    """In order, the built-in ones like anybody's."""
    install("stranger", "strange", "odd")

    with pytest.raises(UnknownEngineError, match=r"'mysql'.*installed are: .*odd.*strange") as raised:
        alkstore.open("mysql://me:hunter2@host/place")
    assert "hunter2" not in str(raised.value)


def test_two_claimants_of_one_scheme_are_an_error(install: Install) -> None:
    """Never a silent winner; both are named, and neither is loaded."""
    install("first", "strange")
    install("second", "strange")

    with pytest.raises(UnknownEngineError, match=r"more than one.*'strange'.*first.*second"):
        alkstore.open("strange://host")
    assert not {"first_engine", "second_engine"} & set(sys.modules)


def test_nobody_can_take_over_a_built_in_scheme(install: Install) -> None:
    """A second claimant of ``sqlite`` is an error like any other."""
    install("usurper", "sqlite")

    with pytest.raises(UnknownEngineError, match=r"more than one.*'sqlite'.*usurper"):
        alkstore.open("sqlite:///:memory:")


def test_one_distribution_seen_twice_is_one_claimant(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable install beside a path to the same is no conflict."""
    install("stranger", "strange")
    twin = tmp_path / "twin"
    twin.symlink_to(tmp_path / "stranger")
    monkeypatch.setattr(sys, "path", [str(twin), *sys.path])

    alkstore.open("strange://host").close()


@pytest.mark.parametrize(
    "source",
    ["import no_such_module\n", "raise ImportError('built for another Python')\n", "other = None\n"],
    ids=["a missing import", "an import that fails", "no factory"],
)
def test_an_engine_that_cannot_be_loaded_is_named(install: Install, source: str) -> None:
    """With what went wrong as the cause."""
    install("broken", "strange", source=textwrap.dedent(source))

    with pytest.raises(UnknownEngineError, match=r"'strange', broken, can't be loaded") as raised:
        alkstore.open("strange://host")
    assert isinstance(raised.value.__cause__, ImportError | AttributeError)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Whoever has installed alkstore alone is told what else to install."""
    for name in [
        name for name in sys.modules if name.partition(".")[0] in {"alkstore_postgres", "psycopg", "psycopg_pool"}
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(UnknownEngineError, match=r"alkstore\[postgres\]") as raised:
        alkstore.open(f"{scheme}://me:hunter2@localhost/place")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["", "hunter2", "//host", "1abc://host", "://host", "/a/path.db", " sqlite:///a"], ids=repr
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    """It could be a password, pasted into the wrong place."""
    with pytest.raises(ValidationError, match="must begin with a scheme") as raised:
        alkstore.open(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", [5, b"sqlite:///a", Path("a.db"), ["sqlite:///a"]], ids=repr)
def test_a_url_is_a_str(url: object) -> None:
    """Nothing is converted."""
    with pytest.raises(ValidationError, match="url must be a str"):
        alkstore.open(cast(str, url))


def test_open_takes_the_url_from_the_environment(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is given; options may be all the same."""
    install("stranger", "strange")
    monkeypatch.setenv("ALKSTORE_URL", "strange://from-the-environment")

    alkstore.open().close()
    alkstore.open(None, colour="red").close()
    alkstore.open("strange://given").close()

    calls = [call for call in opened("stranger") if call != "closed"]
    assert [
        ("strange://from-the-environment", {}),
        ("strange://from-the-environment", {"colour": "red"}),
        ("strange://given", {}),
    ] == [(url, extra) for url, _, extra in calls]


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_url_anywhere_the_variable_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Set to nothing is not set."""
    if value is None:
        monkeypatch.delenv("ALKSTORE_URL", raising=False)
    else:
        monkeypatch.setenv("ALKSTORE_URL", value)
    with pytest.raises(ValidationError, match="ALKSTORE_URL"):
        alkstore.open()


def test_open_from_takes_the_same_from_a_mapping(install: Install) -> None:
    """``url`` and the other arguments by their names; the mapping stays as it is."""
    install("stranger", "strange")
    config = {"url": "strange://host", "durability": "relaxed", "lock_timeout": 2, "colour": "red"}
    before = dict(config)

    alkstore.open_from(config).close()

    url, options, extra = opened("stranger")[0]
    assert ("strange://host", "relaxed", 2_000_000, {"colour": "red"}) == (
        url,
        options.durability,
        options.lock_timeout,
        extra,
    )
    assert before == config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no key 'url'"),
        ({"url": None}, "no key 'url'"),
        ({"durability": "full"}, "no key 'url'"),
        ({"url": 5}, "url must be a str"),
        ({"url": "sqlite:///:memory:", 1: 2}, "keys must be str"),
        ({"url": "sqlite:///:memory:", "durability": "some"}, "durability"),
        ({"url": "sqlite:///:memory:", "colour": "red"}, "colour"),
        (None, "must be a mapping"),
        ("sqlite:///:memory:", "must be a mapping"),
        ([("url", "sqlite:///:memory:")], "must be a mapping"),
    ],
    ids=str,
)
def test_a_wrong_config_names_the_key(config: Any, message: str) -> None:
    """Like a wrong argument of ``open``."""
    with pytest.raises(ValidationError, match=message):
        alkstore.open_from(config)


def test_wrong_options_are_found_before_the_database_is(install: Install) -> None:
    """The engine isn't opened for a call that is wrong."""
    install("stranger", "strange")
    for wrong in cast(
        list[dict[str, Any]],
        [{"migrate": 1}, {"durability": "FULL"}, {"lock_timeout": -1}, {"clock": 5}, {"codecs": 5}, {"max_payload": 0}],
    ):
        with pytest.raises(AlkstoreError, match=next(iter(wrong))):
            alkstore.open("strange://host", **wrong)
    assert [] == opened("stranger")
