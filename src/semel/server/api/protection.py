"""What stands between the network and the actions: headers, sizes, sites, hosts, and a limit on misses.

- Every answer says that it is not to be kept, sniffed, framed or run.
- A change is taken as JSON alone, from this site alone where a browser sends it, and up to a size; all of that is
  checked before anything of the body is read as a value.
- Whoever signs in with what is unknown is soon refused without a look into the store. Secrets that were good a moment
  ago are looked at all the same: others at the same address cannot shut anybody out.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from semel.server.refusals import Forbidden, Invalid

MOST_BYTES: Final = 64 * 1024
_SAME: Final = frozenset({"same-origin", "none"})
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TooLarge(Invalid):
    """The body of a request is larger than what is read."""

    code = "too_large"


class WrongType(Invalid):
    """The body of a request is no JSON."""

    code = "not_json"


class TooManyMisses(Forbidden):
    """Somebody at this address has tried too many secrets that are unknown."""

    code = "too_many_misses"


class Protection:
    """Adds the headers, and answers to the right hosts alone.

    Args:
        app: what is protected.
        hosts: the names that the server answers to, without ports; None: to any.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None = None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if self._hosts is not None and _host_of(scope) not in self._hosts:
            # Else a page of another site, whose name was made to lead here, could ask in the name of its visitor.
            await send_with({"type": "http.response.start", "status": 421, "headers": []})
            await send_with({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send_with)


def _host_of(scope: Scope) -> str:
    """The name that was asked for; empty where there is none, or what was sent is none."""
    for name, value in scope["headers"]:
        if name == b"host":
            try:
                return (urlsplit(f"//{value.decode('latin-1')}").hostname or "").lower()
            except ValueError:  # such as brackets that no address is in
                return ""
    return ""


def place_of(origin: str) -> str | None:
    """Host and port of an origin or an address; None where what was sent is neither."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def is_https(request: Request) -> bool:
    """Whether the browser speaks TLS, here or to a proxy in front; the origin was compared with the host before."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")


def check_site(request: Request, *, by_browser: bool) -> None:
    """Refuse a change that a page of another site sends.

    Args:
        request: the request.
        by_browser: whether the user is known by what a browser sends by itself: then it has to say where it comes from.

    Raises:
        Forbidden: it is one.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_foreign = (site is not None and site not in _SAME) or (
        origin is not None and place_of(origin) != request.headers.get("host")
    )
    if is_foreign or (by_browser and site is None and origin is None):
        raise Forbidden("It does not come from a page of this site; nothing was changed.", because="other_site")


def check_texts(request: Request) -> None:
    """Refuse an address with NUL in it: nothing that is kept has such a name, and not every store can be asked for it.

    Raises:
        Invalid: there is one.
    """
    named = (*request.path_params.values(), *(text for pair in request.query_params.multi_items() for text in pair))
    if any(isinstance(text, str) and "\0" in text for text in named):
        raise Invalid("An address holds no NUL character; nothing was done.", because="query")


async def read_json(request: Request) -> bytes:
    """The body of a change.

    Raises:
        WrongType: it is not said to be JSON.
        TooLarge: it is larger than what is read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WrongType("A change is sent as application/json; nothing was changed.")
    return await read_bounded(request)


async def read_bounded(request: Request) -> bytes:
    """The body of a request, up to the size that is read.

    Raises:
        TooLarge: it is larger.
    """
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > MOST_BYTES:
            raise TooLarge(f"A body has at most {MOST_BYTES:,} bytes; nothing was changed.")
    return bytes(read)


class MissLimit:
    """Counts secrets that were unknown, by address.

    Args:
        most: how many are looked up in a minute.
        monotonic: seconds that only grow.
    """

    _WINDOW: Final = 60.0
    _TRUSTED: Final = 300.0
    _ADDRESSES: Final = 10_000

    def __init__(self, most: int = 10, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._monotonic = monotonic
        self._misses: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._good: OrderedDict[bytes, float] = OrderedDict()

    def check(self, address: str, secret: str) -> None:
        """Refuse to look a secret up, where too many from this address were unknown.

        Raises:
            TooManyMisses: they were.
        """
        began, count = self._misses.get(address, (0.0, 0))
        now = self._monotonic()
        if count < self._most or now - began >= self._WINDOW or self._good.get(_mark(secret), 0.0) > now:
            return
        raise TooManyMisses(
            "Too many secrets from this address were unknown; nothing was done. Wait a minute.",
            retry_after=self._WINDOW - (now - began),
        )

    def miss(self, address: str) -> None:
        """One was unknown."""
        began, count = self._misses.pop(address, (0.0, 0))
        now = self._monotonic()
        if not count or now - began >= self._WINDOW:
            began, count = now, 0
        self._misses[address] = (began, count + 1)
        if len(self._misses) > self._ADDRESSES:
            self._misses.popitem(last=False)

    def hit(self, secret: str) -> None:
        """One was good."""
        self._good[_mark(secret)] = self._monotonic() + self._TRUSTED
        self._good.move_to_end(_mark(secret))
        if len(self._good) > self._ADDRESSES:
            self._good.popitem(last=False)


def _mark(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
