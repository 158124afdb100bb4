"""Listing records: one page per command, put together from fixed texts, one per restriction.

What always holds: what the caller asks for is bound, never written into the text; the texts here are all there are.
"""

from __future__ import annotations

import re
from typing import Any, Final

from semel.core.operations import Query, Scan
from semel.core.record import Status
from semel.stores.sqlite.commands import SQL, Command, Kind

_RESTRICTIONS: Final = {
    "status": "status = :status",
    "operation": "operation = :operation",
    "scope": "scope = :scope",
    "before_us": "created_us < :before_us",
    "after_us": "created_us >= :after_us",
    "process_instance": "process_instance = :process_instance",
    "business_key": "business_key = :business_key",
}
_CURSOR: Final = "(created_us, digest) > (:cursor_us, :cursor_digest)"
_REFERENCE: Final = "digest BETWEEN :lowest AND :highest"
# Literally the WHERE of the partial index, without which SQLite cannot know that the index holds all that is asked for.
_OPEN: Final = "status IN ('running', 'in_doubt')"
_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_DIGITS: Final = 64


def scan_command(operation: Scan) -> Command | None:
    """The command for a page and one record more, which tells whether there are more; None where nothing can match."""
    query = operation.query
    values: dict[str, Any] = {"limit": operation.limit + 1}
    terms = []
    for name, term in _RESTRICTIONS.items():
        wanted = getattr(query, name)
        if wanted is not None:
            terms.append(term)
            values[name] = str(wanted) if name == "status" else wanted
    if query.status in (Status.RUNNING, Status.IN_DOUBT):
        terms.append(_OPEN)
    if query.reference is not None:
        if not _HEX.fullmatch(query.reference):
            return None
        terms.append(_REFERENCE)
        values["lowest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "0"))
        values["highest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "f"))
    if operation.cursor is not None:
        terms.append(_CURSOR)
        values["cursor_us"], values["cursor_digest"] = operation.cursor
    return Command(Kind.SCAN, _text(terms, narrow=_is_narrow(query)), values)


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
