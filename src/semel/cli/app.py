"""The commands together, and the edge at which errors become lines and exit codes.

A command that is named is imported alone: a start of Python that reads all of them takes a quarter longer.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any, Final

import typer
import typer.main

from semel.cli import exit_codes
from semel.cli.printing import complain
from semel.cli.store_option import SETTINGS_FILE
from semel.errors import SemelError

_HELP = "Look after operations that happen once: list, show, count, resolve, reopen, erase records; sweep, migrate."
_EPILOG = (
    "[bold]Exit codes[/]: 0 done · 1 failed, or answered no · 2 usage · 3 not found · 4 in doubt · 75 try later · "
    "130 interrupted.\n\n"
    "[bold]Where[/]: every command that looks at records takes a URL, or reads it from [cyan]SEMEL_URL[/], or takes "
    "the settings file of [cyan]--settings[/] or [cyan]SEMEL_SETTINGS[/], or [cyan]semel.toml[/] here."
)
# ClickException, wherever this release of typer keeps it.
_BAD_COMMAND: type[Exception] = typer.BadParameter.__mro__[2]

_RECORDS, _EVENTS, _BATCHES, _DATABASE, _PROOF = "Records", "Events", "Batches", "Database", "Proof"
_OPERATORS: Final = "Operators"
_COMMANDS: Final = {
    "list": ("list:list_records", _RECORDS),
    "count": ("count:count", _RECORDS),
    "attention": ("attention:attention", _RECORDS),
    "counts": ("count:counts", _RECORDS),
    "show": ("show:show", _RECORDS),
    "history": ("history:history", _RECORDS),
    "resolve": ("resolve:resolve", _RECORDS),
    "cancel": ("cancel:cancel", _RECORDS),
    "release": ("release:release", _RECORDS),
    "fail": ("fail:fail", _RECORDS),
    "reopen": ("reopen:reopen", _RECORDS),
    "erase": ("erase:erase", _RECORDS),
    "cache": ("cache:cache", _RECORDS),
    "events": ("events:events", _EVENTS),
    "batch": ("batch:batch", _BATCHES),
    "serve": ("serve:serve", _OPERATORS),
    "bulk": ("bulk:bulk", _RECORDS),
    "audit": ("audit:audit", _OPERATORS),
    "token": ("token:token", _OPERATORS),
    "migrate": ("migrate:migrate", _DATABASE),
    "sweep": ("sweep:sweep", _DATABASE),
    "reseal": ("reseal:reseal", _DATABASE),
    "doctor": ("doctor:doctor", _DATABASE),
    "restored": ("restored:restored", _DATABASE),
}
"""Where each command is, `module:name` below `semel.cli.commands`, and the heading of the help that it stands under."""


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            version = importlib.metadata.version("semel")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source)"
        sys.stdout.write(f"semel {version}\n")
        raise typer.Exit


def _options(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The settings file that names the database, before any other.", show_default=False
        ),
    ] = None,
) -> None:
    """Options of `semel` itself."""
    del version  # its callback has printed it
    if settings is not None:
        context.call_on_close(partial(SETTINGS_FILE.reset, SETTINGS_FILE.set(settings)))


def build_app(only: str | None = None) -> typer.Typer:
    """The command line with all its commands, or with the one of this name, which has to be among them."""
    app = typer.Typer(
        name="semel",
        help=_HELP,
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name, (place, panel) in _COMMANDS.items():
        if only in (None, name):
            module, _, attribute = place.partition(":")
            _add(app, name, panel, getattr(importlib.import_module(f"semel.cli.commands.{module}"), attribute))
    if only not in _COMMANDS:
        entries = importlib.metadata.entry_points(group="semel.commands")
        for entry in sorted(entries, key=lambda entry: entry.name):
            if only in (None, entry.name):
                _add(app, entry.name, _PROOF, entry.load())
    return app


def _add(app: typer.Typer, name: str, panel: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, rich_help_panel=panel)(command)


@cache
def _command(name: str | None) -> Any:
    return typer.main.get_command(build_app(name))


def _named(arguments: Sequence[str]) -> str | None:
    """The command that is named, if its help or its mistakes need no other; the settings file stands first."""
    rest = arguments
    if rest and rest[0] == "--settings":
        rest = rest[2:]
    elif rest and rest[0].startswith("--settings="):
        rest = rest[1:]
    name = rest[0] if rest else ""
    if name in _COMMANDS or importlib.metadata.entry_points(group="semel.commands", name=name):
        return name
    return None


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and answer its exit code."""
    given = _with_settings_first(sys.argv[1:] if arguments is None else arguments)
    try:
        answer = _command(_named(given)).main(args=given, prog_name="semel", standalone_mode=False)
        sys.stdout.flush()
    except exit_codes.Refused as error:
        complain(error.code, error.message)
        return error.exit_code
    except SemelError as error:
        told = exit_codes.to_refused(error)
        complain(told.code, told.message)
        return told.exit_code
    except typer.Abort:
        complain("interrupted", "Interrupted.")
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except _BAD_COMMAND as error:
        _explain(str(getattr(error, "format_message", error.__str__)()), getattr(error, "ctx", None))
        return exit_codes.USAGE
    code = answer if isinstance(answer, int) else exit_codes.DONE
    if code == exit_codes.INTERRUPTED:
        complain("interrupted", "Interrupted.")
    return code


def _with_settings_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--settings FILE`, which belongs to `semel` itself, moved before the command."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for place, word in enumerate(given[:end]):
        if word == "--settings" or word.startswith("--settings="):
            length = 1 if "=" in word else 2
            return [*given[place : place + length], *given[:place], *given[place + length :]]
    return given


def _explain(message: str, context: Any) -> None:
    """One line for a command that was not understood, with the help of that very command."""
    if message:  # else it was `semel` alone, and the help is on the screen
        command = "semel" if context is None else context.command_path
        complain("usage", f"{' '.join(message.split()).rstrip('.')}. Try: {command} --help")


def _reader_gone() -> int:
    """The reader of our output has ended: print nothing more, not even while Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.BROKEN_PIPE
