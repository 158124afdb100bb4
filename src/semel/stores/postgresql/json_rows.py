"""Records that a statement gives out as one text in JSON."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from semel.stores.rows import RECORD_COLUMNS
from semel.stores.sql.dialect import Row

_BYTES: Final = tuple(RECORD_COLUMNS.index(name) for name in ("digest", "fingerprint", "nonce", "outcome"))
_ESCAPE: Final = re.compile(rb"\\(\\|[0-7]{3})")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def row_of(found: str) -> Row:
    """The columns of a record, in the order in which the statement named them."""
    row = list(_decode(found).values())
    for place in _BYTES:
        row[place] = None if row[place] is None else _bytes_of(row[place])
    return tuple(row)


def _bytes_of(text: str) -> bytes:
    """Bytes as the server writes them, which the caller's session decides by `bytea_output`: in hex, or escaped."""
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    return _ESCAPE.sub(lambda hit: b"\\" if hit[1] == b"\\" else bytes([int(hit[1], 8)]), text.encode())
