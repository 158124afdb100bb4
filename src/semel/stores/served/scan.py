"""Listing records: one page per command, put together from fixed texts, one per restriction.

What always holds: what the caller asks for is bound, never written into the text; the texts here are all there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from semel.core.operations import Scan

_RESTRICTIONS: Final = {
    "status": "{row}status = ?{text}",
    "operation": "{row}operation = ?{text}",
    "scope": "{row}scope = ?{text}",
    "before_us": "{row}created_us < ?{number}",
    "after_us": "{row}created_us >= ?{number}",
    "process_instance": "{row}process_instance = ?{text}",
    "business_key": "{row}business_key = ?{text}",
}
_CURSOR: Final = "({row}created_us, {row}digest) > (?{number}, ?{digest})"
_REFERENCE: Final = "{row}digest BETWEEN ?{digest} AND ?{digest}"
_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_DIGITS: Final = 64


def scan_terms(operation: Scan, row: str, casts: Mapping[str, str]) -> tuple[str, list[Any]] | None:
    """The condition of a page and its values; None where nothing can match. `casts` are types, or empty."""
    query = operation.query
    terms: list[str] = []
    values: list[Any] = []
    for name, term in _RESTRICTIONS.items():
        wanted = getattr(query, name)
        if wanted is not None:
            terms.append(term)
            values.append(str(wanted) if name == "status" else wanted)
    if query.reference is not None:
        if not _HEX.fullmatch(query.reference):
            return None
        terms.append(_REFERENCE)
        values += [bytes.fromhex(query.reference.ljust(_DIGITS, digit)) for digit in "0f"]
    if operation.cursor is not None:
        terms.append(_CURSOR)
        values += operation.cursor
    names = {name: f"::{kind}" if kind else "" for name, kind in casts.items()}
    text = " AND ".join(terms) or "TRUE"
    return text.format(row=row, **names), values
