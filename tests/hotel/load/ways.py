"""The way from a user to a server: a transport that stays with one server and goes on to the next when it is gone.

What always holds: every answer and every lost connection is counted, by server and route, before anybody acts on it;
the address in a request is the same at whichever server it arrives, as behind any balancer.
"""

import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from tests.hotel.load.processes import HOST, ServerProcess

HOTEL = "http://hotel.test"


@dataclass
class Ways:
    """All ways, and what was seen on them."""

    servers: Sequence[ServerProcess]
    secure: ssl.SSLContext = field(default_factory=ssl.create_default_context)  # to make one takes long
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    on_the_way: set[tuple[int, int, str]] = field(default_factory=set)
    """Server, user and route of every request that has no answer yet."""

    def paying_at(self, server: ServerProcess) -> set[int]:
        """The users whose payment runs there."""
        return {user for number, user, route in self.on_the_way if number == server.number and route == "pay"}


class Way(httpx.AsyncBaseTransport):
    """The way of one user."""

    def __init__(self, ways: Ways, user: int, first: int) -> None:
        self._ways = ways
        self._user = user
        self._at = first % len(ways.servers)
        # A pool of one's own: a shared one looks at all its connections for every request. Idle ones are dropped sooner
        # here than at the servers, so that no request meets a connection that is just being closed.
        self._below = httpx.AsyncHTTPTransport(verify=ways.secure, limits=httpx.Limits(keepalive_expiry=2))

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._below.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send to the server of this user; with the next request to the next one, if there was no answer."""
        ways, server = self._ways, self._ways.servers[self._at]
        route = request.url.path.rpartition("/")[2]
        mark = (server.number, self._user, route)
        ways.on_the_way.add(mark)
        try:
            response = await self._below.handle_async_request(_addressed(request, server.port))
            body = await response.aread()
        except httpx.TransportError:
            ways.lost[server.number] += 1
            self._at = (self._at + 1) % len(ways.servers)
            raise
        finally:
            ways.on_the_way.discard(mark)
        ways.answers[route, response.status_code] += 1
        if response.status_code >= 500 and response.status_code != 503:
            ways.broken.append(f"server {server.number}: {route} answered {response.status_code}: {body[:300]!r}")
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body))


def _addressed(request: httpx.Request, port: int) -> httpx.Request:
    url = request.url.copy_with(host=HOST, port=port)
    return httpx.Request(
        request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
    )
