"""Listing records: one page per command, and what SQLite has to be told to find it by the right index."""

from __future__ import annotations

from typing import Final

from semel.core.operations import Query, Scan
from semel.core.record import Status
from semel.stores.scanning import scan_terms
from semel.stores.sqlite.commands import SQL, Command, Kind

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
