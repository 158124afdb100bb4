"""`semel reseal`: seal with the active key what is stored under older ones, and count what is left of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import Progress
from rich.text import Text

from semel.api import keyring_of
from semel.cli.exit_codes import usage_error
from semel.cli.printing import console
from semel.cli.store_option import Url, chosen_settings, store_at
from semel.core.sealing.values import Sealer
from semel.stores.sealing.resealing import PLAIN, ResealReport, reseal_store


def reseal(
    url: Url = None,
    *,
    count: Annotated[
        bool, typer.Option("--count", help="Only count what is left of each key; change nothing.")
    ] = False,
    page: Annotated[int, typer.Option(min=1, help="How many rows are looked at together.")] = 500,
) -> None:
    """Seal again what older keys sealed, or what is not sealed, with the active key of the settings file.

    Workers may go on: only what is still as it was read is replaced. After an interruption the next run goes on with
    the rest. The exit code is 1 while something is left: only a key of which nothing is left may be taken out of the
    keyring.
    """
    settings = chosen_settings(url)
    sealer = None if settings is None else keyring_of(settings)
    if sealer is None:
        message = "No key seals here; nothing was done. Write active_key in [security] of a settings file, and name it."
        raise usage_error(message)
    store = store_at(url)
    with _progress() as progress:
        report = reseal_store(store, sealer, page=page, dry_run=count, progress=progress)
    _print(report, sealer)
    if report.left:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    with Progress(console=console(), transient=True) as progress:
        task = progress.add_task("sealing", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print(report: ResealReport, sealer: Sealer) -> None:
    console().print(Text(f"sealed again with {sealer.active}: {report.resealed}", "green"))
    for key_id, number in report.left.items():
        named = "not sealed" if key_id == PLAIN else f"left under {key_id}"
        console().print(Text(f"{named}: {number}", "bold yellow"))
    if report.unreadable:
        console().print(Text(f"of these cannot be opened: {report.unreadable}", "bold red"))
    if not report.left:
        console().print(Text("nothing is left: older keys may be taken out of the keyring", "dim"))
