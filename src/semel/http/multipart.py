"""A form in parts, so that it is recognised under another boundary, which clients choose anew each time. No I/O.

What always holds: a form is taken apart only where every reader takes it apart in the same way. Text before the first
part or behind the last, lines that end without a carriage return, what only looks like a delimiter, headers that are
folded or there twice: readers differ there, so such a form has no parts and is compared as it stands.
"""

from __future__ import annotations

import re
from typing import Final

from semel.http.content_type import ContentType

_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_./:=?-]{1,70}")
_MOST_PARTS: Final = 1000
_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n]*)")

Part = tuple[list[bytes], bytes]
"""The header lines of a part, sorted, their names in small letters; and its content."""


def parts_of(body: bytes, content_type: ContentType) -> list[Part] | None:
    """The parts of a form; None where it can be read in more than one way."""
    boundary = (content_type.parameters or {}).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        return None
    delimiter = b"--" + boundary.encode()
    first, *pieces = (b"\r\n" + body).split(b"\r\n" + delimiter, _MOST_PARTS + 1)
    if first or not pieces or pieces.pop() not in (b"--", b"--\r\n") or body.count(delimiter) != len(pieces) + 1:
        return None
    parts = [_part(piece) for piece in pieces]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


def _part(piece: bytes) -> Part | None:
    """One part: what stands between two delimiters."""
    head, blank, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = [_LINE.fullmatch(line) for line in head.split(b"\r\n")]
    found = {line.group(1).lower(): line.group(2) for line in lines if line is not None}
    if not piece.startswith(b"\r\n") or not blank or len(found) != len(lines):
        return None
    return sorted(name + b":" + value for name, value in found.items()), content
