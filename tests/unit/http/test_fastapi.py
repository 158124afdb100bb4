"""FastAPI: the dependency claims after all others; what the route answers is captured, replayed or released."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, Depends, Form, Header, HTTPException, Request, Response, UploadFile
from fastapi.responses import JSONResponse

from semel import AsyncAttempt, AsyncSemel, Policy
from semel.http.fastapi import Idempotency
from tests.unit.http.fastapi_shop import KEY, Busy, Declined, Shop, Shops, is_replay, making

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shops() -> AsyncIterator[Shops]:
    async with making() as make:
        yield make


@pytest.fixture
def shop(shops: Shops) -> Shop:
    return shops()


async def test_a_request_runs_once_and_its_exact_answer_is_replayed(shop: Shop) -> None:
    shop.post("/", lambda: {"effect": shop.happened()}, status_code=201)
    first, again = await shop.twice()
    assert (first.status_code, first.json(), is_replay(first)) == (201, {"effect": 1}, False)
    assert (again.status_code, again.content, is_replay(again)) == (201, first.content, True)


async def test_without_a_key_every_request_runs(shop: Shop) -> None:
    shop.post("/", shop.happened)
    await shop.twice(headers={"Authorization": "alice"})
    assert len(shop.effects) == 2


async def test_the_key_belongs_to_whom_the_scope_dependency_names(shop: Shop) -> None:
    shop.post("/", shop.happened)
    await shop.ask()
    other = await shop.ask(headers={**KEY, "Authorization": "bob"})
    assert other.json() == 2


async def test_the_scope_may_be_a_function_of_the_request(shops: Shops) -> None:
    async def leave_caller(request: Request) -> None:
        request.state.caller = request.headers["authorization"]

    shop = shops(scope=lambda request: request.state.caller + request.native.headers["authorization"])
    shop.post("/", shop.happened, dependencies=[Depends(leave_caller)])
    await shop.ask()
    assert (await shop.ask(headers={**KEY, "Authorization": "bob"})).json() == 2


async def test_nobody_is_401_and_nothing_runs(shop: Shop) -> None:
    shop.post("/", shop.happened)
    answer = await shop.ask(headers={"Idempotency-Key": "k-1"})
    assert (answer.status_code, shop.effects) == (401, [])


async def test_whoever_lost_the_right_gets_403_and_no_replay_wherever_the_check_stands(shop: Shop) -> None:
    revoked: list[str] = []

    async def check(authorization: Annotated[str, Header()]) -> None:
        if authorization in revoked:
            raise HTTPException(403)

    async def order(_: Annotated[None, Depends(check)]) -> int:
        return shop.happened()

    shop.post("/", order)
    await shop.ask()
    revoked.append("alice")
    answer = await shop.ask()
    assert (answer.status_code, is_replay(answer)) == (403, False)


async def test_a_missing_key_is_400_where_it_is_required(shops: Shops) -> None:
    shop = shops(required=True)
    shop.post("/", shop.happened)
    answer = await shop.ask(headers={"Authorization": "alice"})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:semel:problem:key-missing")
    assert shop.effects == []


async def test_who_may_not_ask_is_told_so_before_the_key_is_missed(shops: Shops) -> None:
    def nobody() -> None:
        raise HTTPException(401)

    shop = shops(required=True, scope=Depends(nobody))
    shop.post("/", shop.happened)
    assert (await shop.ask(headers={})).status_code == 401


async def test_another_body_under_the_same_key_is_422(shop: Shop) -> None:
    async def order(amount: Annotated[int, Body(embed=True)]) -> int:
        return shop.happened()

    shop.post("/", order)
    await shop.ask(json={"amount": 10})
    answer = await shop.ask(json={"amount": 11})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:semel:problem:key-reused")


async def test_what_is_said_of_a_request_that_is_not_valid_is_not_kept(shop: Shop) -> None:
    async def order(amount: Annotated[int, Body(embed=True)]) -> int:
        return shop.happened()

    shop.post("/", order)
    for answer in await shop.twice(json={"amount": "many"}):
        assert (answer.json()["detail"][0]["type"], is_replay(answer)) == ("int_parsing", False)


@pytest.mark.parametrize(("status", "times"), [(401, 2), (403, 2), (422, 2), (429, 2), (404, 1), (409, 1)])
async def test_an_http_exception_counts_by_its_status(shop: Shop, status: int, times: int) -> None:
    async def order() -> None:
        shop.happened()
        raise HTTPException(status, "no")

    shop.post("/", order)
    answers = await shop.twice()
    assert [answer.json() for answer in answers] == [{"detail": "no"}] * 2
    assert len(shop.effects) == times


@pytest.mark.parametrize(("error", "times"), [(Declined, 1), (RuntimeError, 1), (Busy, 2)])
async def test_what_an_exception_handler_answers_is_kept_unless_nothing_happened(
    shop: Shop, error: type[Exception], times: int
) -> None:
    async def order() -> None:
        shop.happened()
        raise error

    async def handle(request: Request, error: Exception) -> Response:
        return JSONResponse({"sorry": True}, 409)

    shop.post("/", order)
    shop.app.add_exception_handler(error, handle)
    for answer in await shop.twice():
        assert (answer.status_code, answer.json()) == (409, {"sorry": True})
    assert len(shop.effects) == times


async def test_what_an_exception_handler_answers_to_a_final_error_is_kept_whatever_its_status(shop: Shop) -> None:
    async def order() -> None:
        shop.happened()
        raise Declined

    async def handle(request: Request, error: Exception) -> Response:
        return JSONResponse({"sorry": True}, 400)

    shop.post("/", order)
    shop.app.add_exception_handler(Declined, handle)
    first, again = await shop.twice()
    assert (first.status_code, again.json(), is_replay(again)) == (400, {"sorry": True}, True)
    assert len(shop.effects) == 1


@pytest.mark.parametrize(("error", "times"), [(Busy, 2), (Declined, 1), (RuntimeError, 2)])
async def test_any_other_exception_is_recorded_by_policy(shop: Shop, error: type[Exception], times: int) -> None:
    async def order() -> None:
        shop.happened()
        raise error

    shop.post("/", order)
    assert [answer.status_code for answer in await shop.twice()] == [500, 500]
    assert len(shop.effects) == times


async def test_an_exception_reaches_the_server(shop: Shop) -> None:
    async def order() -> None:
        raise RuntimeError("out of paper")

    shop.post("/", order)
    shop.app.include_router(shop.router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
        with pytest.raises(RuntimeError, match="out of paper"):
            await client.post("/", headers=KEY)


async def test_a_parameter_gets_the_attempt(shop: Shop) -> None:
    async def order(attempt: Annotated[AsyncAttempt, Depends(shop.once)]) -> bool:
        return attempt is shop.semel.current()

    shop.post("/", order)
    assert (await shop.ask()).json() is True


async def test_a_parameter_gets_none_without_a_key(shop: Shop) -> None:
    async def order(attempt: Annotated[AsyncAttempt | None, Depends(shop.once)]) -> bool:
        return attempt is None

    shop.post("/", order)
    assert (await shop.ask(headers={"Authorization": "alice"})).json() is True


async def test_a_parameter_gets_none_where_the_policy_runs_without_a_record(shops: Shops, tmp_path: Path) -> None:
    down = AsyncSemel(f"sqlite:///{tmp_path}/missing/records.db", policy=Policy(store_down="run"))
    once = Idempotency(down, scope=Depends(lambda: "alice"))

    async def order(attempt: Annotated[AsyncAttempt | None, Depends(once)]) -> bool:
        return attempt is None

    shop = shops()
    shop.router.dependencies.clear()
    shop.post("/", order)
    assert (await shop.ask()).json() is True
    await down.close()


async def test_asked_for_twice_it_claims_once(shop: Shop) -> None:
    async def order(attempt: Annotated[AsyncAttempt, Depends(shop.once, use_cache=False)]) -> str:
        return attempt.derive("charge")

    shop.post("/", order)
    first, again = await shop.twice()
    assert (first.json(), is_replay(again)) == (again.json(), True)


async def test_a_plain_function_has_the_current_attempt_too(shop: Shop) -> None:
    def order() -> str:
        return shop.semel.current().derive("charge")

    shop.post("/", order)
    assert len((await shop.ask()).json()) == 64


async def test_forms_and_files_are_parsed(shop: Shop) -> None:
    pytest.importorskip("python_multipart", reason="FastAPI reads forms with python-multipart")

    async def order(name: Annotated[str, Form()], file: UploadFile) -> list[str]:
        shop.happened()
        return [name, (await file.read()).decode()]

    shop.post("/", order)
    first = await shop.ask(data={"name": "a"}, files={"file": io.BytesIO(b"content")})
    again = await shop.ask(data={"name": "a"}, files={"file": io.BytesIO(b"content")})
    assert first.json() == again.json() == ["a", "content"]
    assert len(shop.effects) == 1


async def test_a_body_over_the_limit_is_413_and_nothing_runs(shops: Shops) -> None:
    shop = shops(max_body=3)
    shop.post("/", shop.happened)
    assert (await shop.ask(content=b"four")).status_code == 413
    assert shop.effects == []


async def test_without_a_key_there_is_no_limit(shops: Shops) -> None:
    shop = shops(max_body=3)

    async def order(request: Request) -> int:
        return len(await request.body())

    shop.post("/", order)
    assert (await shop.ask(content=b"four", headers={})).json() == 4


async def test_the_key_may_be_computed_from_the_body(shops: Shops) -> None:
    shop = shops(key=lambda request: request.body.decode() or None)

    async def order(request: Request) -> str:
        shop.happened()
        return (await request.body()).decode()

    shop.post("/", order)
    event: Any = {"content": b"event-1", "headers": {"Authorization": "alice"}}
    first, again = await shop.twice(**event)
    assert (first.json(), is_replay(again)) == ("event-1", True)


async def test_a_request_for_which_no_key_can_be_computed_passes(shops: Shops) -> None:
    shop = shops(key=lambda request: None)

    async def order(request: Request) -> str:
        shop.happened()
        return (await request.body()).decode()

    shop.post("/", order)
    first, again = await shop.twice(content=b"event", headers={"Authorization": "alice"})
    assert first.json() == again.json() == "event"
    assert len(shop.effects) == 2
