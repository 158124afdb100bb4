"""How long a service remembers keys, read from its policy document. Flows; no I/O.

- A document that cannot be read is no answer: the client's own setting applies, and it is asked for again next time.
- A key counts as old a little before the service forgets it, because the request still has to arrive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from semel.client.models import Fetch
from semel.core.flow import Flow

POLICY_PATH: Final = "/.well-known/idempotency-policy"
_MARGIN: Final = 0.02
_LEAST_MARGIN: Final = 1.0
_SKEW: Final = 60.0
_FRESH: Final = 300.0
_SLASHES: Final = re.compile("//+")


class _Route(msgspec.Struct):
    path: str
    methods: list[str]
    retention: float = msgspec.field(name="retentionSeconds")


class _Document(msgspec.Struct):
    routes: list[_Route]


class RetentionCache:
    """How long services remember keys, as they last said."""

    def __init__(self, assumed: float, monotonic: Callable[[], float]) -> None:
        self._assumed = assumed
        self._monotonic = monotonic
        self._read: dict[str, tuple[bytes, float]] = {}

    def of(self, method: str, url: str) -> Flow[float]:
        """For how many seconds keys of such requests are remembered."""
        address = address_of(url)
        document, since = self._read.get(address, (b"", float("-inf")))
        now = self._monotonic()
        if now - since >= _FRESH:
            found: bytes | None = yield Fetch(address)
            # A service that gives no answer, as while it is down, has not said that there is no document.
            if found is not None:
                self._read[address] = document, _ = found, now
        told = retention_in(document, method, url)
        return self._assumed if told is None else told


def address_of(url: str) -> str:
    """Where the policy document of the service behind a URL lies."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{POLICY_PATH}"


def retention_in(document: bytes, method: str, url: str) -> float | None:
    """For how many seconds keys of such requests are remembered; None where the document does not say."""
    try:
        routes = msgspec.json.decode(document, type=_Document).routes
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    path = _plain(unquote(urlsplit(url).path))
    return next((route.retention for route in routes if method in route.methods and _fits(route.path, path)), None)


def is_old(age: float, retention: float) -> bool:
    """Whether a key first sent so many seconds ago may be forgotten before it arrives.

    One that was sent in the future may be of any age: the clock was set back.
    """
    margin = retention * _MARGIN
    return not -max(_SKEW, margin) <= age < retention - max(_LEAST_MARGIN, margin)


def _fits(pattern: str, path: str) -> bool:
    parts = _plain(pattern).split("/")
    pieces = [".*" if part == "**" else "[^/]+" if part == "*" else re.escape(part) for part in parts]
    return re.fullmatch("/".join(pieces), path, re.DOTALL) is not None


def _plain(path: str) -> str:
    """A path as services take it: slashes too many are not seen."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"
