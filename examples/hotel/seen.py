"""What the server saw: every POST to a reservation, with its key, its status and what became of it.

What always holds: a user sees requests of their own alone. Neither a body nor a cookie is looked at, let alone kept.
Everything is in the memory of this process and bounded: so many requests per user, so many users, so many characters.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, Literal

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Became = Literal["waiting", "ran", "replayed", "refused", "in doubt"]

_PER_USER: Final = 40
_USERS: Final = 500
_LONGEST: Final = 80
_KEY_HEADERS: Final = ("payment-idempotency-key", "idempotency-key")

_DECLINED: Final = 402  # the card was asked: this ran, although the answer is no
_NOT_NOW: Final = 503
_FAILED: Final = 500


@dataclass(slots=True)
class Request:
    """One request, from its start to its end."""

    number: int
    method: str
    path: str
    key: str | None
    status: int | None = None
    became: Became = "waiting"

    def as_json(self) -> dict[str, object]:
        """What the panel shows of it."""
        names = ("number", "method", "path", "key", "status", "became")
        return {name: getattr(self, name) for name in names}


class History:
    """The latest requests of one user, and how many there were in all."""

    def __init__(self) -> None:
        self.latest: deque[Request] = deque(maxlen=_PER_USER)
        self.requests = 0
        self.ran = 0

    def as_json(self) -> dict[str, object]:
        """The newest first."""
        requests = [request.as_json() for request in reversed(self.latest)]
        return {"requests": self.requests, "ran": self.ran, "latest": requests}


class Seen:
    """Writes down what comes and what leaves, and answers `GET /seen`.

    It stands inside the middleware that knows the user, and outside the one that knows the keys.

    Args:
        app: the application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._process = secrets.token_hex(4)
        self._last = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at a request and hand it on."""
        if scope["type"] == "http":
            path = scope["path"]
            if path == "/seen" and scope["method"] == "GET":
                return await self._answer(scope, send)
            user = user_id(scope)
            if user is not None and scope["method"] == "POST" and path.startswith("/reservations"):
                return await self._watch(user, scope, receive, send)
        return await self.app(scope, receive, send)

    async def _watch(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        history = self._history(user)
        request = Request(self._number(), scope["method"], scope["path"][:_LONGEST], _key(Headers(scope=scope)))
        history.latest.append(request)
        history.requests += 1

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                request.became = _became(message["status"], Headers(raw=list(message.get("headers", ()))))
                history.ran += request.became == "ran"
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            if request.status is None:  # it raised, or was cancelled: nobody knows how far it came
                request.status, request.became = _FAILED, "in doubt"

    def _number(self) -> int:
        """Rises with time on this machine, so that a page can sort what several processes saw."""
        self._last = max(self._last + 1, monotonic_ns() // 1000)
        return self._last

    def _history(self, user: str) -> History:
        """The history of a user; the user seen longest ago makes room for a new one."""
        history = self._histories.pop(user, None) or History()
        self._histories[user] = history
        if len(self._histories) > _USERS:
            self._histories.popitem(last=False)
        return history

    async def _answer(self, scope: Scope, send: Send) -> None:
        user = user_id(scope)
        history = self._histories.get(user) if user is not None else None
        told = {"user": user, "process": self._process, **(history or History()).as_json()}
        body = json.dumps(told).encode()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200 if user is not None else 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def user_id(scope: Scope) -> str | None:
    """Who is signed in, as the session middleware found it."""
    user = scope.get("state", {}).get("user")
    return None if user is None else str(user.id)


def _key(headers: Headers) -> str | None:
    """The key, cut short and without the quotes that a structured header has; keys differ long before."""
    for name in _KEY_HEADERS:
        if name in headers:
            return headers[name].strip('" ')[:_LONGEST]
    return None


def _became(status: int, headers: Headers) -> Became:
    if headers.get("idempotency-replayed") == "true":
        return "replayed"
    if status < 400 or status == _DECLINED:
        return "ran"
    return "in doubt" if status >= _FAILED and status != _NOT_NOW else "refused"
