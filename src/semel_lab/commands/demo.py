"""The command itself; what it plays is loaded when it is asked for."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from semel.cli.exit_codes import OTHER
from semel_lab.demo.scenario import story


def demo(
    *,
    payments: Annotated[int, typer.Option(min=1, max=99, help="How many payments.")] = 6,
    workers: Annotated[int, typer.Option(min=2, max=32, help="How many worker processes.")] = 4,
    duplicates: Annotated[int, typer.Option(min=1, max=1000, help="How often each payment is asked for.")] = 50,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The same seed tells the same story.", show_default=False)
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep records and ledger in this new or empty folder.", show_default=False),
    ] = None,
) -> None:
    """Watch payments happen once: many duplicates, several processes, one of them killed.

    Takes about ten seconds. The exit code is 0 only if the ledger holds.
    """
    told = story(
        payments=payments,
        workers=workers,
        duplicates=duplicates,
        seed=secrets.randbelow(10_000) if seed is None else seed,
    )
    from semel_lab.demo.main import play

    if not play(told, keep).holds:
        raise typer.Exit(OTHER)
