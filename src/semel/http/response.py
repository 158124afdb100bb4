"""A response as it is kept and replayed, and which headers go along. No I/O.

What always holds: the body is kept byte for byte and headers as pairs in order; a replay carries no header outside the
allow-list, so nothing that belongs to one caller or one moment (cookies, challenges, dates, trace ids) is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

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


class Response(msgspec.Struct, frozen=True):
    """A response that was stored, or is to be sent."""

    status: int
    headers: Pairs
    body: bytes

    def marked(self, marks: Iterable[tuple[str, str]]) -> Response:
        """The same, with further headers, and not to be cached whatever the application said."""
        headers = [pair for pair in self.headers if pair[0].lower() != "cache-control"]
        return Response(self.status, (*headers, *marks, _NOT_CACHED), self.body)


class NotKept:
    """Stands for a response of which nothing is stored but that it was given: no codec can keep it."""


def kept(status: int, headers: Iterable[tuple[str, str]], body: bytes, allowed: frozenset[str]) -> Response:
    """What is stored of a response."""
    pairs = [(name, value) for name, value in headers if name.lower() in allowed and not _BROKEN.search(value)]
    return Response(status, tuple(pairs), body)
