"""How long a service remembers keys: read from its policy document. No I/O.

What always holds: what cannot be read is no answer, and then the caller's own assumption holds. A key is old a little
before the service forgets it, because the request still has to get there.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

DESCRIBED_AT: Final = "/.well-known/idempotency-policy"
_MARGIN: Final = 0.02
_LEAST_MARGIN: Final = 1.0
_SLASHES: Final = re.compile("//+")


class _Route(msgspec.Struct):
    path: str
    methods: list[str]
    retention: float = msgspec.field(name="retentionSeconds")


class _Document(msgspec.Struct):
    routes: list[_Route]


def address_of(url: str) -> str:
    """Where the policy document of the service behind a URL lies."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{DESCRIBED_AT}"


def retention_in(document: bytes, method: str, url: str) -> float | None:
    """For how many seconds keys of such requests are remembered; None where the document does not say."""
    try:
        routes = msgspec.json.decode(document, type=_Document).routes
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    path = _plain(unquote(urlsplit(url).path))
    return next((route.retention for route in routes if method in route.methods and _fits(route.path, path)), None)


def is_old(age: float, retention: float) -> bool:
    """Whether a key first sent so many seconds ago may be forgotten before it arrives."""
    return age >= retention - max(_LEAST_MARGIN, retention * _MARGIN)


def _fits(pattern: str, path: str) -> bool:
    parts = _plain(pattern).split("/")
    pieces = [".*" if part == "**" else "[^/]+" if part == "*" else re.escape(part) for part in parts]
    return re.fullmatch("/".join(pieces), path, re.DOTALL) is not None


def _plain(path: str) -> str:
    """A path as services take it: slashes too many are not seen."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"
