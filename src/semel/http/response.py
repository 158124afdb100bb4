"""How much of an answer is kept on its way through, and whether it is whole. No I/O.

Invariants: a client that has every byte it was promised takes the answer for complete, so an answer without a body ends
with its head, and one with a Content-Length with its last byte. A body over the limit is let go of at once, and not
kept at all. A body whose length is not the one that was promised is never taken for a whole one.

A response as it is kept and replayed, and which headers go along. No I/O.

What always holds: the body is kept byte for byte and headers as pairs in order; a replay carries no header outside the
allow-list, so nothing that belongs to one caller or one moment (cookies, challenges, dates, trace ids) is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from semel.core.codec import ClosedStruct

Pairs = tuple[tuple[str, str], ...]

REPLAYED: Final = frozenset(
    {
        "allow",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "deprecation",
        "etag",
        "last-modified",
        "link",
        "location",
        "retry-after",
        "vary",
    }
)
"""Headers that say something about what was made, and nothing about for whom or when it was sent."""

NEVER: Final = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "set-cookie",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
"""Headers that no allow-list lets through: secrets, and what belongs to one connection."""

_BROKEN: Final = re.compile(r"[\r\n\0]")
_NOT_CACHED: Final = ("Cache-Control", "no-store")


class Response(ClosedStruct, frozen=True):
    """A response that was stored, or is to be sent."""

    status: int
    headers: Pairs
    body: bytes

    def with_headers(self, marks: Iterable[tuple[str, str]]) -> Response:
        """The same, with further headers, and not to be cached whatever the application said."""
        headers = [pair for pair in self.headers if pair[0].lower() != "cache-control"]
        return Response(self.status, (*headers, *marks, _NOT_CACHED), self.body)


class NotKept:
    """Stands for a response of which nothing is stored but that it was given: no codec can keep it."""


def storable_response(
    status: int, headers: Iterable[tuple[str, str]], body: bytes, allowed: frozenset[str]
) -> Response:
    """What is stored of a response: never what it says itself to belong to one connection."""
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        lowered = name.lower()
        if lowered == "connection":
            listed = {one.strip().lower() for one in value.split(",")}
            allowed -= listed
            kept = [pair for pair in kept if pair[0].lower() not in listed]
        elif lowered in allowed and not _BROKEN.search(value):
            kept.append((name, value))
    return Response(status, tuple(kept), body)


_BODYLESS: Final = frozenset({204, 304})
_FIRST_WITH_BODY: Final = 200
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def has_no_body(status: int) -> bool:
    """Whether an answer of this status ends with its head."""
    return status < _FIRST_WITH_BODY or status in _BODYLESS


class Answered(msgspec.Struct, frozen=True, eq=False):
    """What the application has answered.

    Attributes:
        status: its status.
        headers: in order, repeated ones included.
        body: None where it is not kept.
        contradiction: how its length contradicts its Content-Length, where it does.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    contradiction: str | None = None


class ResponseBuffer:
    """The body of an answer, as far as it is kept. `most` is the number of bytes that may be."""

    def __init__(self, most: int) -> None:
        self.seen = 0
        self.status = 0
        self._headers: Sequence[tuple[str, str]] = ()
        self._most = most
        self._lengths: frozenset[str] = frozenset()
        self._promised: int | None = None
        self._chunks: list[bytes] | None = []

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """The head of the answer is known."""
        self.status, self._headers = status, headers
        self._lengths = frozenset(value.strip() for name, value in headers if name.lower() == "content-length")
        if has_no_body(status):
            # What it says of a length, if anything, is about another answer, for which it stands.
            self._lengths, self._promised = frozenset(), 0
        else:
            numbers = [int(value) for value in self._lengths if _LENGTH.fullmatch(value)]
            self._promised = min(numbers, default=None)

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
    def is_over_limit(self) -> bool:
        """Whether it was too large to be kept."""
        return self._chunks is None

    def whole(self) -> Answered:
        """The answer has ended: what there is of it."""
        body = None if self._chunks is None else b"" if has_no_body(self.status) else b"".join(self._chunks)
        return Answered(self.status, self._headers, body, self._contradiction())

    def cut_off(self) -> Answered:
        """The answer is stopped before its end: nothing of its body is kept."""
        return Answered(self.status, self._headers, None)

    def _contradiction(self) -> str | None:
        if all(_LENGTH.fullmatch(value) and int(value) == self.seen for value in self._lengths):
            return None
        said = ", ".join(sorted(value[:20] for value in self._lengths))
        return f"a body of {self.seen} bytes under a Content-Length of {said}"


def kept_whole(most: int, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> Answered:
    """An answer that is there at once, as far as it is kept."""
    buffer = ResponseBuffer(most)
    buffer.begin(status, headers)
    buffer.add(body)
    return buffer.whole()
