"""Who is asking: a session cookie with a random token, of which only the digest is stored.

What always holds: nobody who is not signed in changes anything, and whoever comes later finds the user in
`request.state.user`. What browsers send for pages of other sites is refused, and a POST has to be JSON: together with
`SameSite=Lax` that keeps forged forms out. The forms that sign in and out cannot be JSON, and set a cookie whether or
not one came along.

There is no password here, so every sign-in makes a new guest: knowing a name must not open its reservations. Put your
own authentication in this place.
"""

import hashlib
import json
import secrets
from datetime import timedelta
from urllib.parse import parse_qs

from sqlalchemy import delete, select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.hotel.frame import is_of_another_site
from examples.hotel.parts import Parts, SignedIn
from examples.hotel.problems import Refused, problem
from examples.hotel.tables import Session, User

COOKIE = "session"
LASTS = timedelta(days=30)
FORMS = ("/sign-in", "/sign-out")


class SignIn:
    """Leaves the user in the state of the request; refuses what a stranger must not do."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the cookie."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        user = await self._user(request.cookies.get(COOKIE))
        scope.setdefault("state", {})["user"] = user
        refused = _refused(request, user)
        return await (self.app if refused is None else problem(refused))(scope, receive, send)

    async def _user(self, token: str | None) -> SignedIn | None:
        if not token:
            return None
        async with self._parts.database.reading() as session:
            since = self._parts.settings.clock() - LASTS
            chosen = select(User).join(Session).where(Session.token_digest == digest_of(token))
            user = await session.scalar(chosen.where(Session.created_at > since))
        return None if user is None else SignedIn(user.id, user.name)


def _refused(request: Request, user: SignedIn | None) -> Refused | None:
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return None
    if is_of_another_site(request):
        return Refused(403, "other-site", "Nothing was done. Open the hotel's own page, and send it from there.")
    if request.url.path in FORMS:
        return None
    if user is None:
        return Refused(401, "not-signed-in", "Nothing was done. Sign in, and send the same request again.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refused(415, "not-json", "Nothing was done. Send JSON, with the content type application/json.")
    return None


def routes(parts: Parts) -> list[Route]:
    """The two addresses that come and go."""

    async def sign_in(request: Request) -> Response:
        name, wants_json = await _name(request)
        token = secrets.token_urlsafe(32)
        now = parts.settings.clock()
        async with parts.database.writing() as session:
            user = User(name=name, created_at=now)
            session.add(user)
            await session.flush()
            session.add(Session(token_digest=digest_of(token), user_id=user.id, created_at=now))
        response = Response(status_code=204) if wants_json else RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, int(LASTS.total_seconds()), httponly=True, samesite="lax", secure=secure)
        return response

    async def sign_out(request: Request) -> Response:
        async with parts.database.writing() as session:
            token = request.cookies.get(COOKIE, "")
            await session.execute(delete(Session).where(Session.token_digest == digest_of(token)))
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE)
        return response

    return [Route("/sign-in", sign_in, methods=["POST"]), Route("/sign-out", sign_out, methods=["POST"])]


async def _name(request: Request) -> tuple[str, bool]:
    """The name that was given, and whether it came as JSON."""
    body = await request.body()
    wants_json = request.headers.get("content-type", "").startswith("application/json")
    try:
        name = json.loads(body)["name"] if wants_json else parse_qs(body.decode())["name"][0]
        name = name.strip()
        name.encode()  # half of a surrogate pair is JSON, and no text
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refused(400, "malformed", "Nobody was signed in. Send a name.") from error
    if not 1 <= len(name) <= 80 or "\x00" in name:
        raise Refused(400, "malformed", "Nobody was signed in. A name has 1 to 80 characters.")
    return name, wants_json


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
