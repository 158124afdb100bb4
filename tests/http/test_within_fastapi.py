"""FastAPI on PostgreSQL: the response and the rows of the endpoint's session commit together, before it is sent."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from semel import SHARED, AsyncSemel, Policy
from semel.errors import UsageError
from semel.http import transaction
from semel.http.fastapi import Idempotency, IdempotentRoute
from tests.servers.databases import Databases

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k-1"}


class Declined(Exception):
    """In the policy: final."""


class Till:
    """An application that books payments, and its database."""

    def __init__(self, url: str) -> None:
        self.engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
        self.sessions = async_sessionmaker(self.engine)
        self.semel = AsyncSemel(url, policy=Policy(final_errors=(Declined,), in_doubt="hold"))
        session = Depends(self.session, scope="function")
        self.once = Idempotency(self.semel, scope=SHARED, transaction=session)
        self.router = APIRouter(route_class=IdempotentRoute, dependencies=[Depends(self.once)])
        self.asked = session
        self.seen: list[Any] = []
        self.commits = True

    async def session(self) -> AsyncIterator[AsyncSession]:
        """As users write it."""
        async with self.sessions.begin() as session:
            yield session
            if not self.commits:
                raise ConnectionError("the database is gone")

    async def post(self, endpoint: Any, **request: Any) -> httpx.Response:
        """Ask once."""
        if not self.router.routes:
            self.router.add_api_route("/", endpoint, methods=["POST"], status_code=201)
        app = FastAPI()
        app.include_router(self.router)
        transport = httpx.ASGITransport(self._watched(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
            return await client.post("/", **{"headers": KEY, **request})

    def _watched(self, app: FastAPI) -> Any:
        """The application; what is committed when its answer begins is seen."""

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                if message["type"] == "http.response.start":
                    self.seen.append((await self.payments(), await self.records()))
                await send(message)

            await app(scope, receive, sent)

        return watched

    async def payments(self) -> int:
        """How many rows are committed."""
        async with self.engine.connect() as connection:
            return int((await connection.execute(sa.text("SELECT count(*) FROM payment"))).scalar_one())

    async def records(self) -> list[str]:
        """The statuses of all records that are committed."""
        return [record.status async for record in self.semel.records()]


async def book(session: AsyncSession) -> None:
    await session.execute(sa.text("INSERT INTO payment VALUES (1)"))


@pytest.fixture(scope="module")
def url(postgresql: Databases) -> str:
    """A database for all of these tests: to make one takes longer than a test."""
    return postgresql.new_database()


@pytest.fixture
async def till(url: str) -> AsyncIterator[Till]:
    till = Till(url)
    await till.semel.read("nothing", operation="none")  # makes the tables
    async with till.engine.begin() as connection:
        await connection.execute(sa.text("CREATE TABLE IF NOT EXISTS payment (amount int)"))
        await connection.execute(sa.text("TRUNCATE payment, semel_record, semel_step"))
    yield till
    await till.semel.close()
    await till.engine.dispose()


async def test_response_and_row_are_committed_before_anything_is_sent(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)

    assert (await till.post(pay)).status_code == 201
    assert till.seen == [(1, ["completed"])]


async def test_a_duplicate_is_replayed(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> str:
        await book(session)
        return "paid"

    first, again = await till.post(pay), await till.post(pay)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (again.headers["idempotency-replayed"], await till.payments()) == ("true", 1)


async def test_the_endpoint_finds_its_session_by_name_too(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> bool:
        return transaction() is session

    assert (await till.post(pay)).json() is True


async def test_an_attempt_is_current(till: Till) -> None:
    async def pay() -> str:
        return till.semel.current().derive("charge")

    assert len((await till.post(pay)).json()) == 64


@pytest.mark.parametrize("error", [RuntimeError, Declined], ids=["any", "final"])
async def test_an_exception_leaves_neither(till: Till, error: type[Exception]) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        raise error

    assert (await till.post(pay)).status_code == 500
    assert (await till.payments(), await till.records()) == (0, [])


async def test_a_statement_that_fails_leaves_neither(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        await session.execute(sa.text("SELECT 1 / 0"))

    assert (await till.post(pay)).status_code == 500
    assert (await till.payments(), await till.records()) == (0, [])


async def test_an_endpoint_that_is_cut_off_leaves_neither(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await till.post(pay)
    assert (await till.payments(), await till.records()) == (0, [])


@pytest.mark.parametrize("status", [404, 422])
async def test_an_http_exception_leaves_neither(till: Till, status: int) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        raise HTTPException(status, "no")

    answer = await till.post(pay)
    assert (answer.status_code, answer.json()) == (status, {"detail": "no"})
    assert (await till.payments(), await till.records()) == (0, [])


async def test_a_request_that_is_not_valid_leaves_neither(till: Till) -> None:
    async def pay(amount: Annotated[int, Body()]) -> None:
        pass

    assert (await till.post(pay)).status_code == 422
    assert await till.records() == []


async def test_a_request_that_is_not_valid_is_logged_as_rolled_back(
    till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    async def pay(amount: Annotated[int, Body()]) -> None:
        pass

    caplog.set_level(logging.DEBUG, "semel")
    await till.post(pay)
    assert [(line.levelno, line.getMessage().split()[0]) for line in caplog.records if line.name == "semel"][:1] == [
        (logging.DEBUG, "rolled_back")
    ]


async def test_an_answer_that_says_nothing_happened_is_sent_and_leaves_neither(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked], background: BackgroundTasks) -> Response:
        await book(session)
        background.add_task(till.seen.append, "background")
        return JSONResponse({"amount": "too much"}, 422, {"X-Mine": "1"})

    answer = await till.post(pay)
    assert (answer.status_code, answer.json(), answer.headers["x-mine"]) == (422, {"amount": "too much"}, "1")
    assert till.seen == [(0, []), "background"]


async def test_background_work_is_outside_the_transaction(till: Till) -> None:
    async def confirm() -> None:
        result = await till.semel.run("mail-1", send, operation="mail", fingerprint=None)
        till.seen.append((result.value, await till.records()))

    async def send() -> str:
        return "sent"

    async def pay(background: BackgroundTasks) -> None:
        background.add_task(confirm)

    await till.post(pay)
    assert till.seen[-1] == ("sent", ["completed", "completed"])


async def test_an_answer_that_is_one_is_kept_with_the_rows(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> Response:
        await book(session)
        return JSONResponse("no such account", 404)

    assert [(await till.post(pay)).status_code for _ in range(2)] == [404, 404]
    assert (await till.payments(), await till.records()) == (1, ["completed"])


async def test_a_commit_that_fails_leaves_neither_and_the_answer_is_not_sent(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)

    till.commits = False
    assert (await till.post(pay)).status_code == 500
    till.commits = True
    assert (await till.post(pay)).status_code == 201
    assert await till.payments() == 1


async def test_an_endpoint_that_ends_the_transaction_is_caught(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        await session.rollback()
        await session.begin()

    assert (await till.post(pay)).status_code >= 500
    assert "completed" not in await till.records()


async def test_an_endpoint_that_commits_by_itself_is_no_success(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)
        await session.commit()

    assert (await till.post(pay)).status_code == 500
    again = await till.post(pay)
    assert (again.status_code, again.json()["type"]) == (409, "urn:semel:problem:in-doubt")
    assert await till.payments() == 1


async def test_a_stream_is_refused_and_leaves_neither(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> Response:
        await book(session)
        return StreamingResponse(iter([b"paid"]))

    assert (await till.post(pay)).status_code == 500
    assert (await till.payments(), await till.records()) == (0, [])


async def test_another_body_under_the_same_key_is_422(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked], amount: Annotated[int, Body()]) -> None:
        await book(session)

    await till.post(pay, json=1)
    assert (await till.post(pay, json=2)).json()["type"] == "urn:semel:problem:key-reused"
    assert await till.payments() == 1


async def test_without_a_key_the_endpoint_has_its_session_and_no_record(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, till.asked]) -> None:
        await book(session)

    await till.post(pay, headers={})
    assert (await till.payments(), await till.records()) == (1, [])


async def test_a_session_that_commits_after_the_response_is_refused_when_the_route_is_made(till: Till) -> None:
    async def pay(session: Annotated[AsyncSession, Depends(till.session)]) -> None:
        pass

    with pytest.raises(UsageError, match='scope="function"'):
        till.router.add_api_route("/", pay, methods=["POST"])
