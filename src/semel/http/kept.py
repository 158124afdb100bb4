"""What is kept of an answer on its way, and whether it may leave yet. No I/O.

What always holds: the part with which a client would have everything it was promised is held until the outcome is
recorded: what has no body is complete with its head, what has a Content-Length with its last byte. A body over the
limit is let go of at once, and not kept at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_BODYLESS: Final = frozenset({204, 304})
_FIRST_WITH_BODY: Final = 200


def has_no_body(status: int) -> bool:
    """Whether an answer of this status ends with its head."""
    return status < _FIRST_WITH_BODY or status in _BODYLESS


class Kept:
    """The body of an answer, as far as it is kept."""

    def __init__(self, most: int) -> None:
        self.seen = 0
        self._most = most
        self._promised: int | None = None
        self._chunks: list[bytes] | None = []

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """The head of the answer is known."""
        lengths = [value.strip() for name, value in headers if name.lower() == "content-length"]
        promised = int(lengths[0]) if lengths and lengths[0].isdecimal() else None
        self._promised = 0 if has_no_body(status) else promised

    def add(self, chunk: bytes) -> None:
        """A part of the body."""
        self.seen += len(chunk)
        if self.seen > self._most:
            self._chunks = None
        elif self._chunks is not None and chunk:
            self._chunks.append(chunk)

    @property
    def is_complete(self) -> bool:
        """Whether a client that has all of this takes it for the end."""
        return self._promised is not None and self.seen >= self._promised

    @property
    def body(self) -> bytes | None:
        """All of it; None where it was too large to be kept."""
        return None if self._chunks is None else b"".join(self._chunks)
