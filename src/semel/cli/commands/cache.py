"""`semel cache purge`: take one record out of the cache in front of the store, and leave the record."""

from __future__ import annotations

import typer
from rich.text import Text

from semel.cli.lookup import Operation, Scope, Which, check_which, find
from semel.cli.printing import console
from semel.cli.store_option import Url, open_engine

cache = typer.Typer(help="Look after the cache in front of the store, which SEMEL_CACHE names.", no_args_is_help=True)


@cache.callback()
def _group() -> None:
    """Look after the cache in front of the store, which SEMEL_CACHE names."""


@cache.command("purge")
def purge(which: Which, url: Url = None, *, operation: Operation = None, scope: Scope = None) -> None:
    """Take one record out of the cache; the record stays, and is cached anew when it is used.

    Processes that keep copies of their own forget them within `local_for` of their cache.
    """
    check_which(which, url)
    with open_engine(url) as semel:
        record = find(semel, which, operation, scope)
        semel.purge_cached(record.key)
    console().print(Text.assemble(("purged", "bold green"), f" {record.reference[:16]}; its record was not touched"))
