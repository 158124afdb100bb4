"""Requests, responses and effects of the client as values, independent of the HTTP library. No I/O.

A stored request never holds credentials: headers are stored by allow-list, and the URL without user and password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from semel.core.flow import Flow
from semel.core.key import Key
from semel.core.record import Status
from semel.engine.engine import CallOptions

Headers = tuple[tuple[str, str], ...]

INTENT: Final = "Semel-Intent"
"""The header that names what a request is about. It is taken out before the request is sent."""

SUBJECT: Final = "Semel-Subject"
"""The header that names whose data is in a request, for `semel erase --journal`. It is taken out, too."""

OWN_HEADERS: Final = (INTENT, SUBJECT)
"""What is said to this client alone, and never sent."""

KEPT: Final = frozenset({"accept", "accept-language", "content-encoding", "content-language", "content-type", "prefer"})
"""Which headers are kept with a request, so that it can be sent again by another process."""

_NOT_REPLAYED: Final = frozenset({"connection", "keep-alive", "set-cookie", "set-cookie2", "transfer-encoding"})


class StoredRequest(msgspec.Struct, frozen=True):
    """A request as it is kept until its outcome is definite; `body` is None where it is not to be kept."""

    method: str
    url: str
    headers: Headers
    body: bytes | None
    first_sent: float


class Reply(msgspec.Struct, frozen=True):
    """A whole answer: the body as it came over the wire, in the encoding that the headers name."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for known, value in self.headers if known.lower() == name), None)

    def to_keep(self) -> Reply:
        """What is kept of it: everything but what belongs to one connection or to one caller's session."""
        kept = tuple((name, value) for name, value in self.headers if name.lower() not in _NOT_REPLAYED)
        return Reply(self.status, kept, self.body)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A request on its way out, without the key that it is sent with; `original` is the library's own."""

    original: Any
    method: str
    url: str
    headers: Headers
    body: bytes
    intent: str | None
    given_key: str | None
    key_header: str
    subject: str | None = None

    @property
    def fingerprint(self) -> tuple[str, str, str, str]:
        """What is asked: the same intent with another one is a mistake of the caller."""
        kind = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        # A new boundary is made for every form that is sent; the parts are what counts.
        rest, _, boundary = kind.partition("boundary=") if kind.lower().startswith("multipart/") else (kind, "", "")
        line = b"--" + boundary.strip('"').encode()
        body = self.body.replace(line, b"--") if boundary else self.body
        return self.method, self.url, rest, sha256(body).hexdigest()

    @property
    def place(self) -> str:
        """Where it goes, without the query."""
        return f"{self.method} {self.url.partition('?')[0]}"

    def saved(self, now: float, also: frozenset[str], *, body: bool) -> StoredRequest:
        """What is kept of it; `also` are more headers to keep."""
        names = KEPT | also | ({self.key_header.lower()} if self.given_key is not None else frozenset())
        headers = tuple((name, value) for name, value in self.headers if name.lower() in names)
        return StoredRequest(self.method, self.url, headers, self.body if body else None, now)


def outgoing(
    original: Any,
    *,
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    header: str | Callable[[str, str], str],
) -> Outgoing:
    """A request of any library; what it says to this client alone is not among the headers."""
    plain = _without_user(url)
    name = header if isinstance(header, str) else header(method, plain)
    rest = tuple(headers)
    own = tuple(known.lower() for known in OWN_HEADERS)
    return Outgoing(
        original=original,
        method=method.upper(),
        url=plain,
        headers=tuple((known, value) for known, value in rest if known.lower() not in own),
        body=body,
        intent=only(rest, INTENT),
        given_key=only(rest, name),
        key_header=name,
        subject=only(rest, SUBJECT),
    )


def drop_own(headers: MutableMapping[str, Any]) -> None:
    """Take out what is said to this client alone."""
    for name in OWN_HEADERS:
        headers.pop(name, None)


def only(headers: Headers, name: str) -> str | None:
    """The value of a header, if there is one."""
    return next((value for known, value in headers if known.lower() == name.lower()), None)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


@dataclass(frozen=True, slots=True)
class Look:
    """Asks for the record of a key; answered with a `Record` or None."""

    key: Key


@dataclass(frozen=True, slots=True)
class Carry:
    """Asks to run `flow` once for a key; answered with its `Result`, raises what the flow raises."""

    key: Key
    asked: CallOptions
    flow: Flow[Reply]


@dataclass(frozen=True, slots=True)
class Keep:
    """Asks to keep the request with the running attempt.

    Answered with what the first attempt kept, and whether an earlier one may have had its effect.
    """

    saved: StoredRequest


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Asks to send a request with this value in its key header; answered with a `Reply`, raises `TransportFailed`."""

    outgoing: Outgoing
    key: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for what lies at an address; answered with its bytes, none where nothing lies there, or None: no answer."""

    url: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Asks to let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Asks to delete what has expired, and to mark what nobody works at any more as in doubt."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Asks for all records of a status, or of an intent; answered with a list."""

    scope: str
    status: Status | None = None
    intent: str | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Asks to send an unfinished request again, through the caller's client; answered with the library's response."""

    send: Callable[[Any], Any]
    pending: Any


@dataclass(frozen=True, slots=True)
class Cancel:
    """Asks to end a doubt: nothing more will be done. Answered with whether there was one."""

    key: Key
    why: str


class TransportFailed(Exception):
    """No answer came. `sent` says whether the request may have arrived, `again` whether another try is of use."""

    def __init__(self, error: Exception, *, sent: bool, again: bool = True) -> None:
        super().__init__(type(error).__name__)
        self.error = error
        self.sent = sent
        self.again = again


class Ended(Exception):
    """A try, or all of them, ended without success: with an answer, or with the library's error."""

    def __init__(self, reply: Reply | None, error: Exception | None, place: str) -> None:
        how = type(error).__name__ if reply is None else f"status {reply.status}"
        super().__init__(f"{place}: {how}")
        self.reply = reply
        self.error = error

    def told(self) -> Reply:
        """The answer for the caller; where there is none, the library's own error is raised."""
        if self.reply is not None:
            return self.reply
        assert self.error is not None  # noqa: S101 - an end has one or the other
        raise self.error


class Refused(Ended):
    """The service refused it, and will under this key: the next one asked for takes a new key."""


class NotExecuted(Ended):
    """No try was carried out: nothing has to be found out."""


class OutcomeUnknown(Ended):
    """It may have run: the key is kept, and asked with again."""
