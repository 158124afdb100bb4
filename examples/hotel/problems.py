"""Refusals: what the hotel says no to, as problem+json (RFC 9457)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse

from semel.errors import TryLater

TITLES = {
    "malformed": "The request cannot be read",
    "not-signed-in": "Nobody is signed in",
    "not-json": "JSON is wanted",
    "other-site": "This came from another site",
    "not-found": "There is no such thing",
    "sold-out": "Sold out",
    "illegal-transition": "The reservation is not in that state",
    "payment-running": "Another payment is running",
    "expired": "The reservation has expired",
    "declined": "The card was declined",
    "gateway-unavailable": "The payment gateway does not answer",
    "try-again": "Not now",
}


class Refused(Exception):
    """The answer is no. `detail` says what happened, whether anything ran, and what to do next."""

    namespace: ClassVar[str] = "hotel"
    titles: ClassVar[Mapping[str, str]] = TITLES

    def __init__(
        self, status: int, code: str, detail: str, *, retry_after: timedelta | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, round(retry_after.total_seconds())))}
        kind = {"type": f"urn:{self.namespace}:problem:{code}", "title": self.titles[code], "status": status}
        self.body = {**kind, "detail": detail, **more}


def problem(refused: Refused) -> JSONResponse:
    """The response for a refusal."""
    return JSONResponse(refused.body, refused.status, refused.headers, "application/problem+json")


async def refusal(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for `Refused`."""
    assert isinstance(error, Refused)
    return problem(error)


async def later(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for what semel says about another time: somebody else runs, or the database gave up."""
    assert isinstance(error, TryLater)
    detail = f"Nothing is lost. Send the same request again, with the same key. ({error.code})"
    return problem(Refused(503, "try-again", detail, retry_after=error.retry_after))
