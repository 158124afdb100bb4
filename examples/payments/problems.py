"""Refusals: what the service says no to, as problem+json (RFC 9457)."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from examples.hotel import problems
from semel.errors import TryLater

T = TypeVar("T")


class Refused(problems.Refused):
    """The answer is no. `detail` says what happened, whether anything ran, and what to do next."""

    namespace: ClassVar[str] = "payments"
    titles: ClassVar[Mapping[str, str]] = {
        "malformed": "The request cannot be read",
        "unknown-account": "Nobody is signed in",
        "other-site": "This came from another site",
        "not-found": "There is no such thing",
        "email-taken": "There is an account with this address",
        "declined": "The card was declined",
        "gateway-unavailable": "The payment gateway does not answer",
        "payment-closed": "The payment was given up",
        "not-refundable": "So much cannot be given back",
        "insufficient-funds": "The balance is too small",
        "key-missing": "A key is wanted",
        "key-reused": "This key was used for something else",
        "unknown-format": "The file has a format that is not known",
        "file-too-large": "The file is too large",
        "file-invalid": "Some lines of the file cannot be paid",
        "wrong-state": "The bulk is not in that state",
        "try-again": "Not now",
    }


async def later(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for what semel says about another time: somebody else runs, or the database gave up."""
    assert isinstance(error, TryLater)
    detail = f"Nothing is lost. Send the same request again, with the same key. ({error.code})"
    return problems.problem(Refused(503, "try-again", detail, retry_after=error.retry_after))


async def read_body(request: Request, kind: type[T]) -> T:
    """The body of a request, which is JSON."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.DecodeError as error:
        raise Refused(400, "malformed", f"Nothing was done. {error}.") from error


def key_reused(what: str) -> Refused:
    """The key is that of something else, which is kept for longer than semel knows the key."""
    return Refused(422, "key-reused", f"Nothing was done: this key made another {what} before. Take a new key.")


def not_found(what: str) -> Refused:
    """There is none, or it belongs to somebody else, which is the same to whoever asks."""
    return Refused(404, "not-found", f"There is no such {what} of yours.")
