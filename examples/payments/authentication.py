"""Whose request it is: an API key, or a signed-in browser; of either only the digest is stored.

What always holds: nobody who is not known does anything but open an account or look at the first page, and whoever
comes later finds the account in `request.state.account`. A browser that was led here by another site is refused.

There is no password here, so whoever signs in by a name opens a new account. Put your own sign-in in this place.
"""

import hashlib
import re
import secrets
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.hotel.frame import is_of_another_site
from examples.hotel.problems import problem
from examples.payments.parts import Caller, Parts
from examples.payments.problems import Refused
from examples.payments.tables import Account, Credential

COOKIE: Final = "payments"
LASTS: Final = timedelta(days=30)
OPEN: Final = re.compile(r"/|/health|/sign-in|/sign-out|/accounts|/sample\.csv|/static/.*")
"""What can be asked for by nobody in particular."""
_LONGEST_NAME: Final = 80
_MOST_FORM: Final = 4096


class Authentication:
    """Leaves the account in the state of the request; refuses what a stranger must not do."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the key, or at the cookie."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        account, refused = await self._look(request)
        scope.setdefault("state", {})["account"] = account
        response = self.app if refused is None else self._refusal(request, refused)
        return await response(scope, receive, send)

    async def _look(self, request: Request) -> tuple[Caller | None, Refused | None]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            account = await self._find(token.strip(), "key", None)
        else:
            if request.method not in ("GET", "HEAD", "OPTIONS") and is_of_another_site(request):
                return None, Refused(403, "other-site", "Nothing was done. Send it from the page of this service.")
            account = await self._find(request.cookies.get(COOKIE, ""), "session", LASTS)
        if account is None and not OPEN.fullmatch(request.url.path):
            return None, Refused(401, "unknown-account", "Nothing was done. Send a known API key, or sign in.")
        return account, None

    async def _find(self, token: str, kind: str, lasts: timedelta | None) -> Caller | None:
        if not token:
            return None
        chosen = select(Account).join(Credential).where(Credential.digest == digest_of(token), Credential.kind == kind)
        if lasts is not None:
            chosen = chosen.where(Credential.created_at > self._parts.settings.clock() - lasts)
        async with self._parts.database.reading() as session:
            account = await session.scalar(chosen)
        return None if account is None else Caller(account.id, account.name)

    @staticmethod
    def _refusal(request: Request, refused: Refused) -> Response:
        if refused.status == 401 and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/", 303)
        if refused.status == 401:
            refused.headers["WWW-Authenticate"] = "Bearer"
        return problem(refused)


def digest_of(token: str) -> str:
    """What is stored of a secret. Ours are random and long, so that a plain digest does."""
    return hashlib.sha256(token.encode()).hexdigest()


def routes(parts: Parts) -> list[Route]:
    """The two addresses at which a browser signs in and out."""

    async def sign_in(request: Request) -> Response:
        form = await _form(request)
        token = secrets.token_urlsafe(32)
        now = parts.settings.clock()
        signed_in = await parts.database.transact(partial(_sign_in, form, token, now))
        response = RedirectResponse("/" if signed_in else "/?refused=key", 303)
        if signed_in:
            secure = request.url.scheme == "https"
            response.set_cookie(COOKIE, token, int(LASTS.total_seconds()), httponly=True, samesite="lax", secure=secure)
        return response

    async def sign_out(request: Request) -> Response:
        async with parts.database.writing() as session:
            token = request.cookies.get(COOKIE, "")
            await session.execute(delete(Credential).where(Credential.digest == digest_of(token)))
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE)
        return response

    return [Route("/sign-in", sign_in, methods=["POST"]), Route("/sign-out", sign_out, methods=["POST"])]


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            raise Refused(400, "malformed", "Nothing was done. Send a name or a key.")
    return {name: values[0].strip() for name, values in parse_qs(body.decode(errors="replace")).items()}


async def _sign_in(form: dict[str, str], token: str, now: datetime, session: AsyncSession) -> bool:
    """A new session: for the account of an API key, or for a new account of that name."""
    if key := form.get("api_key"):
        known = await session.get(Credential, digest_of(key))
        if known is None or known.kind != "key":
            return False
        account_id = known.account_id
    else:
        name = form.get("name", "")
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise Refused(400, "malformed", f"Nothing was done. A name has 1 to {_LONGEST_NAME} characters.")
        account_id = f"acc_{secrets.token_hex(12)}"
        session.add(Account(id=account_id, name=name, email=None, created_at=now))
        await session.flush()
    session.add(Credential(digest=digest_of(token), account_id=account_id, kind="session", created_at=now))
    await session.flush()
    return True
