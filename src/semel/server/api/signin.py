"""Who is asking: by a bearer token, by a session of a browser, or as the application says that the server is part of.

- A session is opened with the secret of a token, and looked up with it at every request: a token that is revoked or
  expires takes its sessions along. Sessions live in this process alone, at most half a day.
- What is changed by a session needs its token against forgery, which no other site can read.
"""

from __future__ import annotations

import hmac
import inspect
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from semel.server.access import Role, User
from semel.server.api.protection import MissLimit, check_site, is_https
from semel.server.refusals import Forbidden
from semel.server.tokens import Tokens

COOKIE: Final = "semel_session"
FORGERY_HEADER: Final = "X-Semel-CSRF"
_BEARER: Final = "bearer "
FindUser = Callable[[Request], User | Awaitable[User | None] | None]
"""Says who is asking; None: nobody who is known."""


class SignIn(Protocol):
    """Says who is asking."""

    async def find(self, request: Request) -> User | None:
        """The user; None: nobody who is known."""

    def check_change(self, request: Request) -> None:
        """Refuse a change that the user did not send.

        Raises:
            Forbidden: it may be sent by a page of another site.
        """

    def answer_headers(self, request: Request) -> dict[str, str]:
        """What an answer tells a page of this site that wants to send a change; no other site can read it."""


class ByApplication:
    """The application knows its users, by a cookie or in any other way."""

    def __init__(self, find: FindUser) -> None:
        self._find = find

    async def find(self, request: Request) -> User | None:
        """Ask the application."""
        found = self._find(request)
        return await found if inspect.isawaitable(found) else found

    def check_change(self, request: Request) -> None:
        """Take it for one of a browser, unless it has a header that no browser adds by itself."""
        check_site(request, by_browser="authorization" not in request.headers)

    def answer_headers(self, request: Request) -> dict[str, str]:
        """Nothing: the application has its own ways."""
        del request
        return {}


class Anybody:
    """No authentication: everybody who reaches the server is an admin. Only where a setting says so."""

    async def find(self, request: Request) -> User | None:
        """An admin without a name."""
        del request
        return User("anybody", {Role.ADMIN})

    def check_change(self, request: Request) -> None:
        """Take it for one of a browser."""
        check_site(request, by_browser=True)

    def answer_headers(self, request: Request) -> dict[str, str]:
        """Nothing: nobody is signed in."""
        del request
        return {}


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is signed in."""

    secret: str
    forgery: str
    until: float


class ByToken:
    """Users with a token: in the header of each request, or behind a session of a browser.

    Args:
        tokens: where they are kept.
        limit: how many unknown secrets are looked up.
        monotonic: seconds that only grow.
    """

    _LIFETIME: Final = 12 * 3600.0
    _MOST: Final = 1_000

    def __init__(
        self, tokens: Tokens, *, limit: MissLimit | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._limit = limit or MissLimit()
        self._monotonic = monotonic
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def find(self, request: Request) -> User | None:
        """The owner of the token in the header, or else of the session.

        Raises:
            TooManyMisses: too many from this address were unknown.
        """
        if "authorization" in request.headers:
            return await self.look_up(request, _bearer_of(request))
        name = request.cookies.get(COOKIE, "")
        session = self._session_of(request)
        if session is None:
            return None
        user = await self._tokens.find(session.secret)
        if user is None:
            # Its token has expired or was revoked: nobody guesses here, so that it is no miss of this address.
            self._sessions.pop(name, None)
        return user

    async def look_up(self, request: Request, secret: str) -> User | None:
        """The owner of a secret that somebody shows.

        Raises:
            TooManyMisses: too many from this address were unknown.
        """
        address = "" if request.client is None else request.client.host
        self._limit.check(address, secret)
        user = await self._tokens.find(secret)
        if user is None:
            self._limit.miss(address)
        else:
            self._limit.hit(secret)
        return user

    def check_change(self, request: Request) -> None:
        """A token in the header is sent by whoever has it; a session has to show its token against forgery."""
        if "authorization" in request.headers:
            check_site(request, by_browser=False)
            return
        check_site(request, by_browser=True)
        session = self._session_of(request)
        shown = request.headers.get(FORGERY_HEADER, "")
        if session is None or not hmac.compare_digest(shown.encode(), session.forgery.encode()):
            raise Forbidden(f"The header {FORGERY_HEADER} is missing or wrong; nothing was changed.", because="forgery")

    def open_session(self, request: Request, response: Response, secret: str) -> Session:
        """Sign a browser in."""
        name, session = (
            secrets.token_urlsafe(32),
            Session(secret, secrets.token_urlsafe(32), self._monotonic() + self._LIFETIME),
        )
        self._sessions[name] = session
        if len(self._sessions) > self._MOST:
            self._sessions.popitem(last=False)
        response.set_cookie(
            COOKIE,
            name,
            max_age=int(self._LIFETIME),
            path=request.scope.get("root_path", "") or "/",
            httponly=True,
            samesite="strict",
            secure=is_https(request),
        )
        return session

    def end_session(self, request: Request, response: Response) -> None:
        """Sign a browser out."""
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")

    def answer_headers(self, request: Request) -> dict[str, str]:
        """The token against forgery, which the pages of a session send along with a change."""
        session = self._session_of(request)
        return {} if session is None else {FORGERY_HEADER: session.forgery}

    def _session_of(self, request: Request) -> Session | None:
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        return session if session is not None and session.until > self._monotonic() else None


def _bearer_of(request: Request) -> str:
    given = request.headers["authorization"]
    return given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""
