"""What keeps a page to its reader: headers, and forms that only this site can send.

- A page loads nothing from elsewhere, runs no script and no style that stands in it, and is shown in no frame.
- A form is taken only with a token that belongs to this browser and this user, and only from a page of this site.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from semel.server.api.protection import place_of

COOKIE: Final = "semel_console"
_SAME: Final = frozenset({"same-origin", "none"})
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
BODY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""For pages that show what others have written: no script at all, not even our own."""
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Adds the headers to every answer that does not say otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with)


def new_secret() -> str:
    """What a browser is known by, for its forms."""
    return secrets.token_urlsafe(32)


def token_of(secret: str, user: str) -> str:
    """The token that stands in the forms of one browser for one user."""
    return hmac.new(secret.encode(), user.encode(), hashlib.sha256).hexdigest()


def set_secret(response: Response, request: Request, secret: str) -> None:
    """Have the browser keep its secret: no script reads it, and no other site has it sent."""
    response.set_cookie(
        COOKIE,
        secret,
        path=request.scope.get("root_path", "") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def why_foreign(request: Request, user: str, token: object) -> str | None:
    """Why a form is not of a page that this browser was given here; None: it is."""
    fetched = request.headers.get("sec-fetch-site")
    if fetched is not None and fetched not in _SAME:
        return "it was sent by another site"
    origin = request.headers.get("origin") or request.headers.get("referer")
    if origin is None:
        return "it does not say which page sent it"
    place = place_of(origin)
    if place is None or place != request.headers.get("host"):
        return "it was sent by another site"
    secret = request.cookies.get(COOKIE)
    wanted = "" if secret is None else token_of(secret, user)
    if not wanted or not isinstance(token, str) or not hmac.compare_digest(token.encode(), wanted.encode()):
        return "it is not of a page that this browser was given, or somebody else has signed in since"
    return None
