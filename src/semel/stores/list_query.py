"""The conditions of a list query, composed of fixed texts, one per restriction; values are always bound."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from semel.core.operations import Scan

Mark = Callable[[str, str], str]
"""What stands in the text for a value, by its name and its kind (text, number or digest)."""

_RESTRICTIONS: Final = {
    "status": ("status = {}", "text"),
    "operation": ("operation = {}", "text"),
    "scope": ("scope = {}", "text"),
    "before_us": ("created_us < {}", "number"),
    "after_us": ("created_us >= {}", "number"),
    "process_instance": ("process_instance = {}", "text"),
    "business_key": ("business_key = {}", "text"),
}
_HEX: Final = re.compile(r"[0-9a-f]{0,64}")
_DIGITS: Final = 64


def scan_terms(operation: Scan, mark: Mark) -> tuple[list[str], dict[str, Any]] | None:
    """The conditions of a page, and their values by name in the order of the marks; None where nothing can match."""
    query = operation.query
    terms: list[str] = []
    values: dict[str, Any] = {}
    for name, (term, kind) in _RESTRICTIONS.items():
        wanted = getattr(query, name)
        if wanted is not None:
            terms.append(term.format(mark(name, kind)))
            values[name] = str(wanted) if name == "status" else wanted
    if query.reference is not None:
        if not _HEX.fullmatch(query.reference):
            return None
        terms.append(f"digest BETWEEN {mark('lowest', 'digest')} AND {mark('highest', 'digest')}")
        values["lowest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "0"))
        values["highest"] = bytes.fromhex(query.reference.ljust(_DIGITS, "f"))
    if operation.cursor is not None:
        terms.append(f"(created_us, digest) > ({mark('cursor_us', 'number')}, {mark('cursor_digest', 'digest')})")
        values["cursor_us"], values["cursor_digest"] = operation.cursor
    return terms, values
