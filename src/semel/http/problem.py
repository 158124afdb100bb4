"""Problems: what a client is told when its request was not run, as `application/problem+json` (RFC 9457). No I/O.

What always holds: `type` is stable and names one situation; `detail` says whether anything ran and what to do next, and
holds neither the key nor anything of another caller.

Profiles: how a family of services words the same promise. No I/O.

What always holds: a profile chooses headers, statuses and marks; it never changes who runs. Every status of a response
means exactly one of three things: it is the answer (final), nothing happened (retry), nobody knows (unknown).

Problems with the body of a request under WSGI, where a server may not know where it ends. No I/O.

What always holds: they are told before anything ran, and in the same words whichever framework reads the body. A length
is digits alone: what Python reads as a number besides (`1_0`, `-1`) might be something else to whoever stands before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final, Literal

import msgspec

from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    RecordUnreadable,
    ResultNotKept,
    SchemaOutdated,
    SemelError,
    StoreUnavailable,
    TooManyHandlers,
    TooManyWaiting,
    TransactionAborted,
)
from semel.http.response import Response

Meaning = Literal["final", "retry", "unknown"]
Statuses = frozenset[int]

# Said before anything was done: the same request may be sent again, with the same key.
_REFUSED: Final = frozenset(
    {400, 401, 403, 405, 406, 407, 408, 411, 413, 414, 415, 417, 421, 422, 425, 426, 428, 429, 431}
)
_NOT_NOW: Final = frozenset({501, 503, 505})


_SOON: Final = timedelta(seconds=1)
_LATER: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Header names and status codes of one convention (IETF, Stripe, PayPal, OASIS).

    Attributes:
        name: how it is asked for.
        header: the request header with the key.
        replayed: the response header, and its value, that marks a replay.
        in_progress_status: the status for a duplicate while the first still runs.
        reused: the status for a key that stands for another request.
        retry_statuses: statuses that mean that nothing happened.
        stores_failures: whether 5xx are stored as answers; elsewhere nobody knows what they mean.
        ran: the response header, and its value, on every answer of a first run, where the profile wants one.
        first_sent: the request header with the time of the first try, where there is one.
        outside: the status for a first try that is older than what is kept, and the header that says so.
    """

    name: str
    header: str = "Idempotency-Key"
    replayed: tuple[str, str] = ("Idempotency-Replayed", "true")
    ran: tuple[str, str] | None = None
    in_progress_status: int = 409
    reused: int = 422
    retry_statuses: Statuses = _REFUSED | _NOT_NOW
    stores_failures: bool = False
    first_sent: str | None = None
    outside: int = 412
    rejected: tuple[tuple[str, str], ...] = ()

    def meaning(self, status: int) -> Meaning:
        """What a status says of the work behind it."""
        if status in self.retry_statuses:
            return "retry"
        if status >= 500 and not self.stores_failures:  # noqa: PLR2004 - the class of server errors
            return "unknown"
        return "final"


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile(name="ietf"),
        Profile(
            name="stripe-v1",
            replayed=("Idempotent-Replayed", "true"),
            reused=400,
            retry_statuses=frozenset({400, 401, 403, 409, 429}),
            stores_failures=True,
        ),
        Profile(
            name="stripe-v2",
            replayed=("Idempotent-Replayed", "true"),
            reused=400,
            retry_statuses=frozenset(range(400, 500)),
        ),
        Profile(name="paypal", header="PayPal-Request-Id", reused=400),
        Profile(
            name="oasis",
            header="Repeatability-Request-ID",
            replayed=("Repeatability-Result", "accepted"),
            ran=("Repeatability-Result", "accepted"),
            first_sent="Repeatability-First-Sent",
            rejected=(("Repeatability-Result", "rejected"),),
        ),
    )
}


BASE: Final = "urn:semel:problem:"
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Problem:
    """One situation."""

    code: str
    status: int
    title: str
    detail: str
    retry_after: timedelta | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def response(self, describedby: str | None, base: str = BASE) -> Response:
        """As it is sent."""
        body = {"type": f"{base}{self.code}", "title": self.title, "status": self.status, "detail": self.detail}
        headers = [
            ("Content-Type", "application/problem+json"),
            ("Content-Language", "en"),
            ("Cache-Control", "no-store"),
        ]
        if self.retry_after is not None:
            headers.append(("Retry-After", str(max(1, ceil(self.retry_after.total_seconds())))))
        headers.extend(self.headers)
        if describedby:
            headers.append(("Link", f'<{describedby}>; rel="describedby"'))
        return Response(self.status, tuple(headers), msgspec.json.encode(body))


class Refused(Exception):
    """Ends an exchange with a problem."""

    def __init__(self, given: Problem) -> None:
        super().__init__(given.code)
        self.problem = given


def missing(header: str) -> Problem:
    """A key is required and there is none."""
    return Problem(
        "key-missing",
        400,
        "A key is required",
        f"This request needs the header {header}; nothing ran. Send it again with a key of its own, such as a UUID.",
    )


def malformed(header: str, why: str) -> Problem:
    """The header gives no key."""
    detail = f"The header {header} gives no key: {why}; nothing ran. Send one line, a string of 1 to 255 characters."
    return Problem("key-malformed", 400, "The key cannot be read", detail)


def not_issued(header: str) -> Problem:
    """The key is not one that was signed for this caller. Which part of it is wrong is nobody's business."""
    detail = (
        f"The key in {header} was not issued to this caller; nothing ran. Send it as it was issued, or ask for one."
    )
    return Problem("key-malformed", 400, "The key was not issued to this caller", detail)


def expired_key(header: str) -> Problem:
    """The signed key is right, and too old."""
    detail = (
        f"The key in {header} has expired; nothing ran. Have it signed again, which leaves it the same operation, and "
        f"send the request again."
    )
    return Problem("key-malformed", 400, "The key has expired", detail)


def unusable() -> Problem:
    """The values that the route takes its key from give none."""
    detail = "No valid idempotency key can be derived from this request; nothing ran. Correct it and send it again."
    return Problem("key-malformed", 400, "The key cannot be read", detail)


def path_malformed() -> Problem:
    """The path holds what a framework may take for nothing."""
    detail = "The path holds control characters; nothing ran. Leave them out and send the request again."
    return Problem("path-malformed", 400, "The path cannot be read", detail)


def ambiguous(why: str) -> Problem:
    """The body has no single meaning; `why` is a clause."""
    detail = f"The body is ambiguous: {why}; nothing ran. Correct it and send it again."
    return Problem("body-ambiguous", 400, "Ambiguous JSON", detail)


def too_large(limit: int) -> Problem:
    """The body is over the limit."""
    detail = f"With a key a body may take at most {limit} bytes here; nothing ran."
    return Problem("body-too-large", 413, "The body is too large", detail)


def unauthenticated(www_authenticate: str) -> Problem:
    """Nobody is behind the request."""
    detail = "A key belongs to somebody, and this request does not say to whom; nothing ran. Sign in first."
    return Problem(
        "not-authenticated", 401, "Not authenticated", detail, headers=(("WWW-Authenticate", www_authenticate),)
    )


def outside(profile: Profile) -> Problem:
    """The first try is older than what is kept."""
    detail = (
        "The first try of this request is older than what is kept here, so it cannot be told whether it ran before. "
        "Find out what became of it, then start over with a new key."
    )
    return Problem("key-expired", profile.outside, "The key is too old", detail, headers=profile.rejected)


def contradicts_length(*, runs_again: bool) -> Problem:
    """The application's answer is shorter or longer than it says."""
    then = (
        "What it did is not kept; ask again with the same key."
        if runs_again
        else "The request was carried out, and will not run again under this key. Ask for the resource itself."
    )
    detail = f"The response was shorter or longer than its Content-Length, so it is neither sent nor kept. {then}"
    return Problem("response-length", 500, "The response contradicts its length", detail)


def not_committed() -> Problem:
    """The transaction of the request has ended without a commit."""
    detail = (
        "The request was worked on, and what it did was not committed: nothing of it is there. This is a fault of the "
        "service, and the same request will fail again until it is mended."
    )
    return Problem("not-committed", 500, "Nothing was committed", detail)


def commit_unknown() -> Problem:
    """The transaction of the request has ended, and its commit could not be seen."""
    detail = "The request was worked on, and its commit could not be confirmed. Ask again with the same key."
    return Problem("commit-unknown", _UNAVAILABLE, "The commit could not be confirmed", detail, _SOON)


def transaction_ended() -> Problem:
    """The view has ended the transaction that its response was to be recorded in."""
    detail = (
        "The request was worked on, and its outcome could not be recorded together with what it did. This is a fault "
        "of the service. Find out what became of the request before it is sent again."
    )
    return Problem("transaction-ended", 500, "The outcome was not recorded", detail)


def rolled_back() -> Problem:
    """The outcome could not be recorded in the transaction of the request, which is rolled back."""
    detail = (
        "The request was worked on, its outcome could not be recorded, and so all of it was rolled back. Ask again "
        "with the same key."
    )
    return Problem("rolled-back", _UNAVAILABLE, "It was rolled back", detail, _SOON)


def of(error: SemelError, profile: Profile, in_progress_status: int | None = None) -> Problem:
    """What an error of semel means to a client."""
    match error:
        case KeyReused():
            detail = (
                "The key was used before with another request; nothing ran. Use a new key for a new request, or send "
                "the same request again."
            )
            return Problem("key-reused", profile.reused, "The key stands for another request", detail)
        case TooManyWaiting():
            detail = (
                "The first request with this key is still being worked on, and too many wait here; nothing ran now. "
                "Ask again later with the same key."
            )
            return Problem("too-many-waiting", _UNAVAILABLE, "Too many wait", detail, error.retry_after)
        case TooManyHandlers():
            detail = "As many requests as may are being worked on here; nothing ran. Ask again with the same key."
            return Problem("too-many-handlers", _UNAVAILABLE, "Too much work", detail, error.retry_after)
        case InProgress():
            detail = "The first request with this key is still being worked on; nothing ran now. Ask again later."
            return Problem(
                "in-progress",
                in_progress_status or profile.in_progress_status,
                "Still running",
                detail,
                error.retry_after,
            )
        case InDoubt():
            detail = (
                "A request with this key started before and its outcome is not known; nothing ran now. It is being "
                "looked into; ask again with the same key."
            )
            return Problem("in-doubt", 409, "The outcome is not known", detail, getattr(error, "retry_after", None))
        case FailedBefore():
            detail = "The request with this key failed before, and that is final; nothing ran now. Use a new key."
            return Problem("failed-before", 500, "It failed before", detail)
        case ResultNotKept():
            detail = (
                "The request with this key was carried out before, and its response was not kept; nothing ran now. "
                "Ask for the resource itself."
            )
            return Problem("response-not-kept", 409, "Done, and the response was not kept", detail)
        case LeaseLost():
            detail = "The request was worked on, and its outcome could not be recorded. Ask again with the same key."
            return Problem("lease-lost", _UNAVAILABLE, "The outcome was not recorded", detail, _SOON)
        case StoreUnavailable() if error.ran:
            detail = "The request was worked on, and its outcome could not be recorded. Ask again with the same key."
            return Problem("not-recorded", _UNAVAILABLE, "The outcome was not recorded", detail, _SOON)
        case StoreUnavailable() | TransactionAborted():
            detail = "What is needed to run this once cannot be reached; nothing ran. Ask again with the same key."
            return Problem("store-unavailable", _UNAVAILABLE, "Try again later", detail, error.retry_after)
        case RecordUnreadable() | SchemaOutdated():
            detail = "What is known of this key cannot be read by this release; nothing ran. Ask again later."
            return Problem("record-unreadable", _UNAVAILABLE, "Try again later", detail, _LATER)
    detail = "What became of the request is not known. Ask again with the same key."
    return Problem("refused", 500, "It could not be run", detail)


_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def length_of(given: str | None) -> int:
    """How long a body says it is; without a word on it there is none.

    Raises:
        Refused: what it says is no number.
    """
    if given and _LENGTH.fullmatch(given) is None:
        raise Refused(length_malformed())
    return int(given or 0)


def incomplete() -> Problem:
    """It was cut off."""
    detail = "The body ended before it was whole; nothing ran. Send the request again with the same key."
    return Problem("body-incomplete", 400, "The body is incomplete", detail)


def length_malformed() -> Problem:
    """What it says of its length cannot be read."""
    detail = "The header Content-Length is no number; nothing ran. Correct it and send the request again."
    return Problem("length-malformed", 400, "The length cannot be read", detail)


def length_required() -> Problem:
    """It does not say how long it is, and its end cannot be told."""
    detail = "This server cannot tell where the body ends; nothing ran. Send it again with a Content-Length."
    return Problem("length-required", 411, "A length is required", detail)
