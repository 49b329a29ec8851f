"""The commands, and how each of them ends: one line of what is wrong, and an exit code (``alkstore.shell.Exit``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from alkstore.cli.channels import listen, notify
from alkstore.cli.check import check
from alkstore.cli.enqueue import enqueue
from alkstore.cli.jobs import jobs
from alkstore.cli.migrate import migrate
from alkstore.cli.options import help_without_command
from alkstore.cli.stats import stats, top
from alkstore.cli.sweep import sweep
from alkstore.cli.worker import worker
from alkstore.errors import AlkstoreError
from alkstore.shell import Exit, complain, exit_code

COMMANDS: Final[tuple[click.Command, ...]] = (migrate, worker, check, stats, top, jobs, enqueue, sweep, listen, notify)
"""Every command, in the order in which ``--help`` and the page list them."""


class App(click.Group):
    """The command line; every way out of a command goes through here."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Return the commands in their own order rather than in the alphabet's."""
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - click's own signature
        **extra: Any,
    ) -> Any:
        """Run a command, and exit with its code."""
        _lead_nowhere_what_is_closed()
        for stream in (sys.stdout, sys.stderr):
            _take_any_character(stream)
        try:
            code = super().main(args, prog_name or "alkstore", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except (BrokenPipeError, _ReaderGoneError):
            _write_no_more()
            code = Exit.BROKEN_PIPE
        except click.Abort:
            code = Exit.INTERRUPTED
        except click.ClickException as exc:
            complain(exc.format_message())
            code = Exit.USAGE
        except AlkstoreError as exc:
            complain(exc)
            code = exit_code(exc)
        except OSError as exc:  # a full disk behind stdout, say
            _write_no_more()
            complain(exc.strerror or exc)
            code = Exit.FAILED
        sys.exit(int(code or Exit.DONE))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its reader's going away is told apart here, before click makes a failure of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise _ReaderGoneError from exc


class _ReaderGoneError(Exception):
    """Nobody reads the output any more."""


def _lead_nowhere_what_is_closed() -> None:
    """Have all three streams, where the process was started without one (``>&-``, or by a daemon)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process lives


def _take_any_character(stream: Any) -> None:
    """Let a stream whose encoding lacks a character spell it as an escape, rather than fail half way."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """Lead stdout nowhere, so that what it still holds doesn't fail a second time when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.group(
    cls=App,
    commands=list(COMMANDS),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="alkstore", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """Durable job queues in your database: see what they are doing, and look after them.

    Which store is meant: --url, else ALKSTORE_URL, else the [tool.alkstore] table of the nearest pyproject.toml.
    Exit codes: 0 done, 1 not done or a check failed, 2 a wrong argument, 130 ended by Ctrl-C.
    """
    help_without_command(ctx)
