"""Finding the one record that a person means: by its reference, which may be abbreviated, or by its key."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated

import typer

from semel.cli.exit_codes import Refused, not_found_error, usage_error
from semel.core.key import SHARED
from semel.core.record import Record
from semel.engine.sync_engine import SyncSemelBase

SHORTEST = 8
_REFERENCE = re.compile(r"[0-9a-f]{1,64}")

Which = Annotated[
    str,
    typer.Argument(
        metavar="REFERENCE|KEY",
        help=f"A reference, or its first {SHORTEST} or more hex digits; with --operation, a key.",
        show_default=False,
    ),
]
Operation = Annotated[str | None, typer.Option(help="The operation of the key.", show_default=False)]
Scope = Annotated[str | None, typer.Option(help="The scope of the key. Default: shared.", show_default=False)]


def check_which(which: str, url: str | None) -> None:
    """Refuse a URL in the place of the record, before the URL is looked for elsewhere.

    Raises:
        Refused: it is one.
    """
    if url is None and "://" in which:
        message = (
            f"A record has to be named before the database; nothing was done. Give a reference or key, then {which}. "
            f"semel list {which} shows the references."
        )
        raise usage_error(message)


def find(semel: SyncSemelBase, which: str, operation: str | None, scope: str | None) -> Record:
    """The record meant, finished steps included.

    Raises:
        Refused: it is unknown or ambiguous, or `which` can be neither a reference nor a key.
    """
    if operation is None and scope is not None:
        message = "--scope belongs to a key, and a key needs --operation too; nothing was done."
        raise usage_error(message)
    record = _by_reference(semel, which.lower()) if operation is None else _by_key(semel, which, operation, scope)
    # A listing comes without finished steps; a record deleted since is still shown as it was.
    return semel.read(record.key) or record


def _by_key(semel: SyncSemelBase, value: str, operation: str, scope: str | None) -> Record:
    record = semel.read(value, operation=operation, scope=scope or SHARED)
    if record is None:
        where = f"in the scope {scope!r}" if scope else "in the shared scope (--scope names another)"
        message = (
            f"There is no record for the key {value!r} of {operation!r} {where}; nothing was done. "
            f"A key made of several parts is found by its reference: semel list."
        )
        raise not_found_error(message)
    return record


def _by_reference(semel: SyncSemelBase, reference: str) -> Record:
    if not _REFERENCE.fullmatch(reference):
        message = (
            f"{reference!r} is no reference, which has hex digits only; nothing was done. A key needs --operation."
        )
        raise usage_error(message)
    if len(reference) < SHORTEST:
        message = f"{reference!r} is too short for a reference; nothing was done. Give at least {SHORTEST} hex digits."
        raise usage_error(message)
    found = list(islice(semel.records(reference=reference), 3))
    if not found:
        message = (
            f"There is no record whose reference begins with {reference}; nothing was done. A key needs --operation."
        )
        raise not_found_error(message)
    if len(found) > 1:
        named = ", ".join(record.reference[: len(reference) + SHORTEST] for record in found)
        message = f"{reference} is ambiguous; nothing was done. Records that begin so: {named}. Give more digits."
        raise Refused("ambiguous", message)
    return found[0]
