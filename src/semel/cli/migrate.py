"""`semel migrate`: bring a database to the schema of this release, or print the SQL that would."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.text import Text

from semel.cli.exits import refused
from semel.cli.place import VARIABLE, Url, as_place, named
from semel.cli.printing import console, shown
from semel.entry import open_store
from semel.stores.sqlite import SqliteStore, pending_sql
from semel.stores.sqlite import migrate as apply
from semel.stores.sqlite.versions import schema_sql


def migrate(
    url: Url = None,
    *,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that is pending there, or all of it, and change nothing.")
    ] = False,
) -> None:
    """Apply the migrations that a database still needs.

    An SQLite file is created where there is none. Running it again changes nothing.
    """
    if sql and not (url or os.environ.get(VARIABLE)):
        sys.stdout.write(schema_sql())
        return
    path = _file(named(url))
    if sql:
        sys.stdout.write(pending_sql(path) or "-- Nothing is pending.\n")
        return
    applied = apply(path)
    done = f"applied {', '.join(f'{version:04}' for version in applied)}" if applied else "up to date, nothing to apply"
    console().print(Text.assemble(shown(path), ": ", (done, "green")))


def _file(place: str) -> str:
    store = open_store(as_place(place))
    if isinstance(store, SqliteStore):
        return store.path
    message = f"{store.name} has no schema to migrate; nothing was done."
    raise refused(message)
