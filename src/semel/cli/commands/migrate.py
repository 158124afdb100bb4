"""`semel migrate`: bring a database to the schema of this release, or print the SQL that would."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated, Literal

import typer
from rich.text import Text

from semel.api import open_store
from semel.cli.printing import as_text, console
from semel.cli.store_option import VARIABLE, Url, as_place, chosen_settings, chosen_url
from semel.core.store import Capability
from semel.stores.admin import admin_of
from semel.stores.sqlite.migrations import schema


class Half(StrEnum):
    """The halves of a migration."""

    PRE = "pre"
    POST = "post"


def migrate(
    url: Url = None,
    *,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that is pending there, or all of it, and change nothing.")
    ] = False,
    half: Annotated[
        Half | None,
        typer.Option(
            help="pre: what workers of the release before can live with (default). post: the rest, once they are gone.",
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Also make the indexes for searching, without holding anybody up.")
    ] = False,
    partitions: Annotated[
        int, typer.Option(min=0, max=1024, help="Hash partitions of the record table, when it is created.")
    ] = 0,
) -> None:
    """Apply the migrations that a database still needs.

    An SQLite file, the tables on a server and a DynamoDB table are created where there are none. Running it again
    changes nothing. --half and --partitions are for SQL servers, --search for these and DynamoDB.
    """
    settings = chosen_settings(url)
    if sql and settings is None and not (url or os.environ.get(VARIABLE)):
        sys.stdout.write(schema().creation_sql())
        return
    store = open_store(as_place(chosen_url(url, settings)))
    if half or partitions:
        admin_of(store, Capability.ONLINE_MIGRATION)
    if search:
        admin_of(store, Capability.SEARCH_INDEXES)
    admin = admin_of(store, Capability.MIGRATE)
    wanted: Literal["pre", "post"] | None = None if half is None else half.value
    if sql:
        text = admin_of(store, Capability.MIGRATION_SQL).pending_sql(wanted, search=search, partitions=partitions)
        sys.stdout.write(text or "-- Nothing is pending.\n")
        return
    _say(admin.name, admin.migrate(wanted, search=search, partitions=partitions))
    left = admin.pending()
    if left:
        line = f"pending: {', '.join(left)}. Once no worker of the release before runs: semel migrate --half post"
        console().print(Text(line, "yellow"), soft_wrap=True)


def _say(name: str, applied: list[str]) -> None:
    done = f"applied {', '.join(applied)}" if applied else "up to date, nothing to apply"
    console().print(Text.assemble(as_text(name), ": ", (done, "green")), soft_wrap=True)
