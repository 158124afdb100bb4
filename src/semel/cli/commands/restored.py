"""`semel restored`: after a restore from a backup, hold what the store may have forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from semel.cli.exit_codes import usage_error
from semel.cli.printing import as_text, console
from semel.cli.store_option import Url, store_at
from semel.cli.timefmt import duration, local, moment
from semel.core.record import instant, store_instant
from semel.core.store import Capability
from semel.stores.admin import Admin, admin_of

_MICROSECOND = timedelta(microseconds=1)


def restored(
    url: Url = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="The restore point: what came later is forgotten.", show_default=False),
    ] = None,
    hold_for: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="How long callers may still try again.", show_default=False),
    ] = None,
    operation: Annotated[
        list[str] | None,
        typer.Option(help="Only this operation; may be given again. Default: all of them.", show_default=False),
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="Take the mark away.")] = False,
) -> None:
    """Mark a database as restored from a backup, before any worker uses it.

    While the mark stands, a key without a record is recorded as in doubt and held: it may have been claimed after the
    restore point. So is what was unsettled then. People look at each, and resolve it.
    """
    if end == (at is not None or hold_for is not None or bool(operation)) or (not end and not (at and hold_for)):
        message = "Give --at and --for to set the mark, or --end alone to take it away; nothing was done."
        raise usage_error(message)
    store = store_at(url)
    admin = admin_of(store, Capability.RESTORE_HOLD)
    if end:
        taken = admin.end_restored()
        _say(store.name, "the mark is gone, new keys run again" if taken else "there is no mark, nothing was done")
        return
    _mark(store.name, admin, at or "", hold_for or "", operation)


def _mark(name: str, admin: Admin, at: str, hold_for: str, operation: list[str] | None) -> None:
    length = duration(hold_for) // _MICROSECOND
    marked = admin.restored(store_instant(moment(at)), length, tuple(operation) if operation else None)
    _say(name, f"keys without a record are held until {local(instant(marked.mark.until_us))}")
    line = f"{marked.held} unsettled records are held too; see: semel list --status in_doubt"
    console().print(Text(line, "dim"), soft_wrap=True)


def _say(name: str, what: str) -> None:
    console().print(Text.assemble(as_text(name), ": ", (what, "green")), soft_wrap=True)
