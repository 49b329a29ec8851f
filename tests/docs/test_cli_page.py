"""The page of the command line is complete: every command, option and exit code, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from alkstore.cli.app import app
from alkstore.shell import Exit

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMON = {"--url", "--schema", "--json", "--help"}


def commands(group: click.Group = app, path: str = "alkstore") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with what is typed to reach it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{heading} has no section"
    return found[1]


def rows(text: str) -> dict[str, str]:
    """The options that a section's tables have, and their defaults."""
    return dict(re.findall(r"^\| `(--[\w-]+)` \| ([^|]*?) ?\|", text, re.MULTILINE))


def options(command: click.Command) -> dict[str, click.Option]:
    return {option.opts[-1]: option for option in command.params if isinstance(option, click.Option)}


COMMANDS = dict(commands())


def test_every_command_has_a_section_and_no_other_is_there() -> None:
    assert set(COMMANDS) == set(re.findall(r"^## `(alkstore [^`]+)`$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_a_row_with_its_default(path: str) -> None:
    described = rows(section(f"`{path}`"))
    there = {name: option for name, option in options(COMMANDS[path]).items() if name not in COMMON}
    assert set(there) == set(described)
    for name, option in there.items():
        if isinstance(option.default, int | str) and not option.is_flag:
            assert str(option.default) == described[name], name


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_the_options_that_all_have(path: str) -> None:
    assert COMMON - {"--help"} <= set(options(COMMANDS[path]))
    assert set(rows(section("What all commands have"))) == COMMON


@pytest.mark.parametrize("path", COMMANDS)
def test_every_argument_is_shown(path: str) -> None:
    arguments = [found for found in COMMANDS[path].params if isinstance(found, click.Argument)]
    if arguments:
        context = click.Context(COMMANDS[path])
        shown = " ".join(argument.make_metavar(context) for argument in arguments)
        assert f"`{path} {shown}`" in section(f"`{path}`")


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help_of_its_own(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert "..." not in command.get_short_help_str(), "its first sentence fits the list of commands"
    assert [name for name, option in options(command).items() if not option.help] == []


def test_every_exit_code_has_a_row() -> None:
    found = re.findall(r"^\| (\d+) \|", section("What all commands have"), re.MULTILINE)
    assert [int(code) for code in found] == list(Exit)


def test_the_examples_are_commands() -> None:
    examples = re.findall(r"^    (alkstore [^#|\n]+)", PAGE, re.MULTILINE)
    assert len(examples) > 5
    for example in examples:
        assert any(example.startswith(path) for path in COMMANDS), example
