"""The commands together, and the edge at which errors become lines and exit codes."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
import typer.main

from semel.cli import exit_codes
from semel.cli.commands.cache import cache
from semel.cli.commands.cancel import cancel
from semel.cli.commands.count import count, counts
from semel.cli.commands.doctor import doctor
from semel.cli.commands.erase import erase
from semel.cli.commands.fail import fail
from semel.cli.commands.history import history
from semel.cli.commands.list import list_records
from semel.cli.commands.migrate import migrate
from semel.cli.commands.release import release
from semel.cli.commands.reopen import reopen
from semel.cli.commands.resolve import resolve
from semel.cli.commands.restored import restored
from semel.cli.commands.show import show
from semel.cli.commands.sweep import sweep
from semel.cli.printing import complain
from semel.cli.store_option import SETTINGS_FILE
from semel.errors import SemelError

_EPILOG = (
    "[bold]Exit codes[/]: 0 done · 1 failed, or answered no · 2 usage · 3 not found · 4 in doubt · 75 try later · "
    "130 interrupted.\n\n"
    "[bold]Where[/]: every command that looks at records takes a URL, or reads it from [cyan]SEMEL_URL[/], or takes "
    "the settings file of [cyan]--settings[/] or [cyan]SEMEL_SETTINGS[/], or [cyan]semel.toml[/] here."
)
# ClickException, wherever this release of typer keeps it.
_BAD_COMMAND: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="semel",
    help="Look after operations that happen once: list, show, count, resolve, reopen, erase records; sweep, migrate.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_RECORDS, _DATABASE, _PROOF = "Records", "Database", "Proof"
app.command("list", rich_help_panel=_RECORDS)(list_records)
app.command("count", rich_help_panel=_RECORDS)(count)
app.command("counts", rich_help_panel=_RECORDS)(counts)
app.command("show", rich_help_panel=_RECORDS)(show)
app.command("history", rich_help_panel=_RECORDS)(history)
app.command("resolve", rich_help_panel=_RECORDS)(resolve)
app.command("cancel", rich_help_panel=_RECORDS)(cancel)
app.command("release", rich_help_panel=_RECORDS)(release)
app.command("fail", rich_help_panel=_RECORDS)(fail)
app.command("reopen", rich_help_panel=_RECORDS)(reopen)
app.command("erase", rich_help_panel=_RECORDS)(erase)
app.add_typer(cache, name="cache", rich_help_panel=_RECORDS)
app.command("migrate", rich_help_panel=_DATABASE)(migrate)
app.command("sweep", rich_help_panel=_DATABASE)(sweep)
app.command("doctor", rich_help_panel=_DATABASE)(doctor)
app.command("restored", rich_help_panel=_DATABASE)(restored)
for _entry in sorted(importlib.metadata.entry_points(group="semel.commands"), key=lambda entry: entry.name):
    app.command(_entry.name, rich_help_panel=_PROOF)(_entry.load())


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            version = importlib.metadata.version("semel")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source)"
        sys.stdout.write(f"semel {version}\n")
        raise typer.Exit


@app.callback()
def options(
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


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and answer its exit code."""
    command = typer.main.get_command(app)
    given = _with_settings_first(sys.argv[1:] if arguments is None else arguments)
    try:
        answer = command.main(args=given, prog_name="semel", standalone_mode=False)
        sys.stdout.flush()
    except exit_codes.Refused as error:
        complain(error.code, error.message)
        return error.exit_code
    except SemelError as error:
        complain(error.code, error.message)
        return exit_codes.exit_code(error)
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
