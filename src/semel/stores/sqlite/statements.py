"""Commands: what a plan yields to a driver. Frozen values; the statements come from `statements.sql` alone.

What always holds: values are bound, never written into a text. The only text made at run time is the name of a
savepoint, which cannot be bound; it is hexadecimal digits. Every reply carries the store's clock as it was read for
that command.

Listing records: one page per command, and what SQLite has to be told to find it by the right index.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec

from semel.core.operations import Claim, Query, Scan
from semel.core.record import NOTHING, Status
from semel.stores.list_query import scan_terms
from semel.stores.rows import RECORD_COLUMNS, TEXT_COLUMNS, about_values, claim_values, load_statements

Row = tuple[Any, ...]
Reply = tuple[list[Row], int, int]
"""Rows, how many rows were changed, and the store's now."""


class Kind(IntEnum):
    """Where a command may run, in rising order of what it needs."""

    READ = 0
    """A look-up by primary key: any connection."""
    SCAN = 1
    """A longer reading: any connection, but not in an event loop."""
    WRITE = 2
    """The writer's transaction, or the caller's."""
    ENTER = 3
    """The first write into the caller's transaction: one must be open, or begin by itself."""
    SAVEPOINT = 4
    """Mark the caller's transaction."""
    RELEASE = 5
    """Demand that the mark is still there."""


class Command(msgspec.Struct, frozen=True):
    """One statement with its values."""

    kind: Kind
    text: str
    values: dict[str, Any] = {}


def _as_expression(column: str) -> str:
    return f"CAST({column} AS BLOB)" if column in TEXT_COLUMNS else f"+{column}"


SQL: Final = load_statements(
    "semel.stores.sqlite",
    "statements.sql",
    {
        "record": ", ".join(RECORD_COLUMNS),
        "record_joined": ", ".join(map(_as_expression, RECORD_COLUMNS)),
        "restrictions": "{restrictions}",
    },
)
_ABOUT: Final = ", ".join(f":{name}" for name in ("subject", "business_key", "process_instance", "requester", "tags"))
# Most claims are about nothing in particular, and to bind five times None costs more than all other values together.
_WITHOUT_ABOUT: Final = {
    name: text.replace(_ABOUT, "NULL, NULL, NULL, NULL, NULL") for name, text in SQL.items() if _ABOUT in text
}
_TEXTS: Final = [index for index, column in enumerate(RECORD_COLUMNS) if column in TEXT_COLUMNS]


# How bytes are bound. For an object of type bytes sqlite3 looks for an adapter, a conform method and another adapter,
# at each execution; for a bytearray it does not. That was a tenth of the time of a claim.
blob = bytearray


def claiming(statement: str, claim: Claim, *, lease_us: int) -> Command:
    """One of the three statements that claim."""
    kind = Kind.ENTER if statement == "claim_joined" else Kind.WRITE
    values = claim_values(claim, lease_us=lease_us)
    for name in ("digest", "fingerprint", "nonce"):
        values[name] = blob(values[name])
    if claim.about == NOTHING:
        return Command(kind, _WITHOUT_ABOUT[statement], values)
    return Command(kind, SQL[statement], {**values, **about_values(claim.about)})


def seen_many(digests: Sequence[bytes]) -> Command:
    """Look several keys up at once: a third of the time that single look-ups take."""
    if len(digests) == 1:
        return Command(Kind.READ, SQL["seen"], {"digest": blob(digests[0])})
    size = 1 << (len(digests) - 1).bit_length()  # few different texts, so that all stay prepared
    names = _NAMES[:size] if size <= len(_NAMES) else [f"d{i}" for i in range(size)]
    padded = [*digests, *[digests[-1]] * (size - len(digests))]
    return Command(Kind.READ, _seen_text(size), dict(zip(names, map(blob, padded), strict=True)))


_NAMES: Final = [f"d{i}" for i in range(64)]
_seen_texts: dict[int, str] = {}


def _seen_text(size: int) -> str:
    text = _seen_texts.get(size)
    if text is None:
        text = SQL["seen_many"].replace(":digests", ", ".join(f":d{i}" for i in range(size)))
        _seen_texts[size] = text
    return text


def savepoint(name: str) -> Command:
    """Mark the caller's transaction, so that its end can be noticed."""
    return Command(Kind.SAVEPOINT, f'SAVEPOINT "{name}"', {"mark": name})


def release(name: str) -> Command:
    """Demand the mark; it is gone if the transaction ended in between."""
    return Command(Kind.RELEASE, f'RELEASE "{name}"', {"mark": name})


def texts_decoded(row: Row) -> Row:
    """A row of `{record_joined}` as one of `{record}`."""
    plain = list(row)
    for index in _TEXTS:
        if plain[index] is not None:
            plain[index] = plain[index].decode()
    return tuple(plain)


# Literally the WHERE of the partial index, without which SQLite cannot know that the index holds all that is asked for.
_OPEN: Final = "status IN ('running', 'in_doubt')"


def scan_command(operation: Scan) -> Command | None:
    """The command for a page and one record more, which tells whether there are more; None where nothing can match."""
    found = scan_terms(operation, lambda name, _: f":{name}")
    if found is None:
        return None
    terms, values = found
    query = operation.query
    if query.status in (Status.RUNNING, Status.IN_DOUBT):
        terms.append(_OPEN)
    text = _text(terms, narrow=_is_narrow(query))
    return Command(Kind.SCAN, text, {**values, "limit": operation.limit + 1})


def _is_narrow(query: Query) -> bool:
    narrow = (query.reference or None, query.business_key, query.process_instance)
    return query.status in (Status.RUNNING, Status.IN_DOUBT) or any(term is not None for term in narrow)


def _text(terms: list[str], *, narrow: bool) -> str:
    text = SQL["scan"].replace("{restrictions}", " AND ".join(terms) or "TRUE")
    if not narrow:
        return text
    # Without statistics SQLite would rather walk all records by time than sort the few that a narrow index gives; the
    # sign makes an expression of the column, and so keeps it from the index by time.
    columns, _, rest = text.partition(" FROM ")
    return f"{columns} FROM {rest.replace('created_us', '+created_us')}"
