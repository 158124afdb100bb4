"""FastAPI: streams, background work, and routes wherever they are: included, mounted, beside others."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Response, WebSocket
from fastapi.responses import FileResponse, StreamingResponse

from semel.http.fastapi import IdempotentRoute, describe
from tests.unit.http.fastapi_shop import KEY, Shop, Shops, is_replay, making

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shops() -> AsyncIterator[Shops]:
    async with making() as make:
        yield make


@pytest.fixture
def shop(shops: Shops) -> Shop:
    return shops()


async def test_a_stream_is_replayed_whole(shop: Shop) -> None:
    async def order() -> Response:
        shop.happened()
        return StreamingResponse(iter([b"one", b"two"]), media_type="text/plain")

    shop.post("/", order)
    first, again = await shop.twice()
    assert (first.text, again.text, is_replay(again)) == ("onetwo", "onetwo", True)


async def test_a_generator_is_an_endpoint(shop: Shop) -> None:
    def order() -> Iterator[int]:
        yield shop.happened()
        yield shop.happened()

    shop.post("/", order)
    first, again = await shop.twice()
    assert (first.content, is_replay(again)) == (again.content, True)
    assert len(shop.effects) == 2


async def test_a_file_is_replayed(shop: Shop, tmp_path: Path) -> None:
    tmp_path.joinpath("ticket").write_bytes(b"seat 1")

    async def order() -> Response:
        shop.happened()
        return FileResponse(tmp_path / "ticket")

    shop.post("/", order)
    first, again = await shop.twice()
    assert (first.content, again.content, len(shop.effects)) == (b"seat 1", b"seat 1", 1)


async def test_background_tasks_run_once_and_after_the_outcome_was_recorded(shop: Shop) -> None:
    async def note() -> None:
        record = await shop.semel.read("k-1", operation="POST /", scope="alice")
        shop.effects.append(None if record is None else record.status)

    async def order(background: BackgroundTasks) -> None:
        background.add_task(note)

    shop.post("/", order)
    await shop.twice()
    assert shop.effects == ["completed"]


async def test_a_path_with_parameters_is_one_operation_and_each_path_has_its_own_keys(shop: Shop) -> None:
    async def pay(order_id: int) -> int:
        shop.happened()
        return order_id

    shop.post("/orders/{order_id}/pay", pay)
    assert (await shop.ask("/orders/1/pay")).json() == 1
    assert (await shop.ask("/orders/2/pay")).json() == 2
    found = await shop.semel.read(("/orders/1/pay", "k-1"), operation="POST /orders/*/pay", scope="alice")
    assert found is not None


async def test_a_route_of_an_included_router_has_its_whole_path(shop: Shop) -> None:
    shop.post("", shop.happened)
    shop.app.include_router(shop.router, prefix="/v1/orders")
    transport = httpx.ASGITransport(shop.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        await client.post("/v1/orders", headers=KEY)
    assert await shop.semel.read("k-1", operation="POST /v1/orders", scope="alice") is not None


async def test_the_dependency_may_come_with_the_inclusion(shop: Shop) -> None:
    router = APIRouter(route_class=IdempotentRoute)
    router.add_api_route("/", shop.happened, methods=["POST"])
    shop.app.include_router(router, dependencies=[Depends(shop.once)])
    assert is_replay((await shop.twice())[1])


async def test_the_same_key_under_another_mount_is_another_request(shop: Shop) -> None:
    shop.post("/", shop.happened)
    inner = FastAPI()
    inner.include_router(shop.router)
    shop.app.mount("/a", inner)
    shop.app.mount("/b", inner)
    assert [(await shop.ask(path)).status_code for path in ("/a/", "/b/", "/a/")] == [200, 422, 200]
    assert len(shop.effects) == 1


@pytest.mark.parametrize(("content", "status"), [(b"four", 413), (b"no", 400)])
async def test_problems_of_a_mounted_application_link_below_its_mount(
    shops: Shops, content: bytes, status: int
) -> None:
    shop = shops(max_body=3)
    shop.post("/", shop.happened)
    inner = FastAPI()
    inner.include_router(shop.router)
    describe(inner)
    shop.app.mount("/a", inner)
    headers = {**KEY, "Content-Type": "application/json"}
    answer = await shop.ask("/a/", content=content, headers=headers)
    assert answer.status_code == status
    assert answer.headers["link"] == '</a/.well-known/idempotency-policy>; rel="describedby"'


async def test_what_a_client_puts_into_a_mount_stays_inside_the_link(shops: Shops) -> None:
    shop = shops(max_body=3)
    shop.post("/", shop.happened)
    inner = FastAPI()
    inner.include_router(shop.router)
    describe(inner)
    shop.app.mount("/{tenant}", inner)
    answer = await shop.ask("/a%0D%0AX-Evil:%20%D0%BA/", content=b"four")
    assert answer.headers["link"].startswith("</a%0D%0AX-Evil%3A%20%D0%BA/.well-known/")


async def test_an_application_may_use_the_route_class_for_all_its_routes(shop: Shop) -> None:
    shop.app.router.route_class = IdempotentRoute
    shop.app.add_api_route("/all", shop.happened, methods=["POST"], dependencies=[Depends(shop.once)])
    assert is_replay((await shop.twice("/all"))[1])


async def test_a_route_without_the_dependency_is_an_ordinary_route(shop: Shop) -> None:
    router = APIRouter(route_class=IdempotentRoute)
    router.add_api_route("/free", shop.happened, methods=["POST"])
    shop.app.include_router(router)
    await shop.twice("/free")
    assert len(shop.effects) == 2


async def test_other_methods_pass_unless_chosen(shop: Shop) -> None:
    shop.router.add_api_route("/", shop.happened, methods=["PUT"])
    shop.app.include_router(shop.router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
        answers = [await client.put("/", headers=KEY) for _ in range(2)]
    assert [answer.json() for answer in answers] == [1, 2]


async def test_overridden_in_a_test_it_does_nothing(shop: Shop) -> None:
    shop.post("/", shop.happened)
    shop.app.dependency_overrides[shop.once] = lambda: None
    await shop.twice()
    assert len(shop.effects) == 2


@pytest.mark.parametrize("scope", ["function", "request"])
async def test_a_dependency_sees_a_good_end_of_a_first_run_and_of_a_replay(shop: Shop, scope: Any) -> None:
    async def told() -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            shop.effects.append(error)
            raise
        shop.effects.append("end")

    async def order(_: Annotated[None, Depends(told, scope=scope)]) -> None:
        shop.effects.append("order")

    shop.post("/", order)
    await shop.twice()
    assert shop.effects == ["order", "end", "end"]


async def test_a_websocket_of_the_same_router_is_let_through(shop: Shop) -> None:
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    shop.router.add_api_websocket_route("/talk", talk)
    shop.app.include_router(shop.router)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    await shop.app({"type": "websocket", "path": "/talk", "headers": [], "query_string": b""}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]


async def test_the_policy_document_tells_the_routes_and_problems_link_to_it(shops: Shops) -> None:
    shop = shops(required=True)
    shop.post("/orders/{number}", lambda: None)
    describe(shop.app)
    problem = await shop.ask("/orders/1", headers={"Authorization": "alice"})
    assert problem.headers["link"] == '</.well-known/idempotency-policy>; rel="describedby"'
    async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
        document = (await client.get("/.well-known/idempotency-policy")).json()
    assert [(route["path"], route["required"]) for route in document["routes"]] == [("/orders/*", True)]


async def test_a_problem_links_to_nothing_where_no_document_is_served(shops: Shops) -> None:
    shop = shops(required=True)
    shop.post("/", lambda: None)
    assert "link" not in (await shop.ask(headers={"Authorization": "alice"})).headers


async def test_two_requests_at_once_run_once(shop: Shop) -> None:
    async def order() -> int:
        await asyncio.sleep(0)
        return shop.happened()

    shop.post("/", order)
    await shop.ask(headers={"Authorization": "alice"})
    answers = await asyncio.gather(*(shop.ask() for _ in range(5)))
    assert {answer.json() for answer in answers} == {2}
