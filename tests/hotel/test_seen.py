"""What the server saw: bounded in every direction, and without a word of a body or a cookie."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from examples.hotel.parts import SignedIn
from examples.hotel.seen import Seen

pytestmark = pytest.mark.anyio


class Behind:
    """What stands behind `Seen`: holds every request until it is let go, then answers or raises."""

    def __init__(self) -> None:
        self.arrived, self.go = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.status = 200
        self.go.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.arrived.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Signed:
    """Stands for the sign-in: the user is who the header says."""

    def __init__(self, app: Seen) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [value for name, value in scope["headers"] if name == b"x-user"]
        scope["state"] = {"user": SignedIn(int(names[0]), "Ada") if names else None}
        await self.app(scope, receive, send)


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def client(behind: Behind) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(Signed(Seen(behind)), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://hotel", headers={"X-User": "1"})


async def seen(client: httpx.AsyncClient, user: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/seen", headers={"X-User": str(user)})).json()
    return found


async def test_a_request_without_an_answer_is_waiting(client: httpx.AsyncClient, behind: Behind) -> None:
    behind.go.clear()
    posting = asyncio.create_task(client.post("/reservations"))
    await behind.arrived.wait()
    request = (await seen(client))["latest"][0]
    behind.go.set()
    await posting
    assert (request["status"], request["became"]) == (None, "waiting")


async def test_a_request_that_fails_is_in_doubt(client: httpx.AsyncClient, behind: Behind) -> None:
    behind.error = RuntimeError("lost")
    await client.post("/reservations")
    assert (await seen(client))["latest"][0]["became"] == "in doubt"


@pytest.mark.parametrize(("status", "became"), [(201, "ran"), (409, "refused"), (503, "refused"), (500, "in doubt")])
async def test_a_status_says_what_became_of_it(
    client: httpx.AsyncClient, behind: Behind, status: int, became: str
) -> None:
    behind.status = status
    await client.post("/reservations")
    assert (await seen(client))["latest"][0]["became"] == became


async def test_the_key_is_shown_without_its_quotes_whichever_header_has_it(client: httpx.AsyncClient) -> None:
    await client.post("/reservations", headers={"Idempotency-Key": '"one"'})
    await client.post("/reservations/R001/pay", headers={"Payment-Idempotency-Key": "two"})
    assert [request["key"] for request in (await seen(client))["latest"]] == ["two", "one"]


async def test_neither_body_nor_cookie_is_kept(client: httpx.AsyncClient) -> None:
    await client.post("/reservations?query=secret", json={"card": "secret"}, headers={"Cookie": "session=secret"})
    assert "secret" not in json.dumps(await seen(client))


async def test_only_posts_to_reservations_are_written_down(client: httpx.AsyncClient) -> None:
    await client.get("/reservations/R001")
    await client.post("/sign-out")
    assert (await seen(client))["requests"] == 0


async def test_the_oldest_request_makes_room_and_is_still_counted(client: httpx.AsyncClient) -> None:
    for _ in range(45):
        await client.post("/reservations")
    found = await seen(client)
    assert (found["requests"], found["ran"], len(found["latest"])) == (45, 45, 40)


async def test_a_long_key_and_a_long_path_are_cut(client: httpx.AsyncClient) -> None:
    await client.post("/reservations/" + "p" * 900, headers={"Idempotency-Key": "k" * 900})
    request = (await seen(client))["latest"][0]
    assert (len(request["path"]), len(request["key"])) == (80, 80)


async def test_the_user_seen_longest_ago_makes_room(client: httpx.AsyncClient) -> None:
    for user in range(1, 502):
        await client.post("/reservations", headers={"X-User": str(user)})
    assert [(await seen(client, user))["requests"] for user in (1, 2, 501)] == [0, 1, 1]
