"""Starlette on PostgreSQL: what the middleware's `transaction=` gives commits with the response, before it is sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route as Path

from semel import SHARED, AsyncSemel, Policy
from semel.engine.clock import Clock
from semel.errors import UsageError
from semel.http import transaction
from semel.http.asgi import IdempotencyMiddleware
from semel.testing.clock import VirtualClock
from tests.servers.databases import Databases

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k-1"}
View = Callable[[Request], Awaitable[Response]]


class Declined(Exception):
    """In the policy: final."""


class Till:
    """An application that books payments, and its database."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
        self.sessions = async_sessionmaker(self.engine)
        self.semel = AsyncSemel(url, policy=Policy(final_errors=(Declined,), in_doubt="hold"), clock=clock)
        self.seen: list[tuple[str, int, list[str]]] = []

    async def post(self, view: View, **request: Any) -> httpx.Response:
        """Ask once."""
        app = Starlette(routes=[Path("/", view, methods=["POST"])])
        app.add_middleware(
            IdempotencyMiddleware, semel=self.semel, scope=SHARED, transaction=lambda request: self.sessions.begin()
        )
        transport = httpx.ASGITransport(self._watched(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
            return await client.post("/", **{"headers": KEY, **request})

    def _watched(self, app: Starlette) -> Any:
        """The application; what is committed when a message is sent is seen."""

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                self.seen.append((message["type"], *await self.committed()))
                await send(message)

            await app(scope, receive, sent)

        return watched

    async def committed(self) -> tuple[int, list[str]]:
        """How many payments are committed, and the statuses of all records, as anybody else sees them."""
        async with self.engine.connect() as connection:
            rows = await connection.execute(sa.text("SELECT count(*) FROM payment"))
            statuses = await connection.execute(sa.text("SELECT status FROM semel_record"))
            return int(rows.scalar_one()), [str(status) for status in statuses.scalars()]


async def book() -> None:
    session: AsyncSession = transaction()
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


async def pay(request: Request) -> Response:
    await book()
    return PlainTextResponse("paid", 201)


async def test_nothing_is_sent_before_response_and_row_are_committed(till: Till) -> None:
    assert (await till.post(pay)).status_code == 201
    assert [(kind, rows, len(records)) for kind, rows, records in till.seen] == [
        ("http.response.start", 1, 1),
        ("http.response.body", 1, 1),
    ]


async def test_a_duplicate_is_replayed(till: Till) -> None:
    first, again = await till.post(pay), await till.post(pay)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (again.headers["idempotency-replayed"], (await till.committed())[0]) == ("true", 1)


@pytest.mark.parametrize("error", [RuntimeError, Declined], ids=["any", "final"])
async def test_an_exception_leaves_neither(till: Till, error: type[Exception]) -> None:
    async def fail(request: Request) -> Response:
        await book()
        raise error

    assert (await till.post(fail)).status_code == 500
    assert await till.committed() == (0, [])


@pytest.mark.parametrize("status", [422, 500])
async def test_an_answer_that_does_not_say_that_it_happened_leaves_neither(till: Till, status: int) -> None:
    async def refuse(request: Request) -> Response:
        await book()
        raise HTTPException(status, "no")

    answer = await till.post(refuse)
    assert (answer.status_code, answer.text) == (status, "no")
    assert await till.committed() == (0, [])
    assert {(rows, len(records)) for _, rows, records in till.seen} == {(0, 0)}


async def test_a_view_that_commits_by_itself_is_no_success(till: Till) -> None:
    async def pay(request: Request) -> Response:
        await book()
        await transaction().commit()
        return PlainTextResponse("paid", 201)

    assert (await till.post(pay)).status_code == 500
    again = await till.post(pay)
    assert (again.status_code, again.json()["type"]) == (409, "urn:semel:problem:in-doubt")
    assert (await till.committed())[0] == 1


async def test_a_stream_is_held_until_the_commit(till: Till) -> None:
    async def stream(request: Request) -> Response:
        await book()
        return StreamingResponse(iter([b"one", b"two"]))

    assert (await till.post(stream)).text == "onetwo"
    assert {(rows, len(records)) for _, rows, records in till.seen} == {(1, 1)}


async def test_without_a_key_there_is_no_transaction(till: Till) -> None:
    assert (await till.post(pay, headers={})).status_code == 500
    assert await till.committed() == (0, [])


async def test_background_work_runs_after_the_commit(till: Till) -> None:
    noted: list[int] = []

    async def note() -> None:
        noted.append((await till.committed())[0])

    async def work(request: Request) -> Response:
        await book()
        return PlainTextResponse("paid", background=BackgroundTask(note))

    await till.post(work)
    assert noted == [1]


async def test_an_operation_in_background_work_has_a_record_of_its_own(till: Till) -> None:
    async def mailed() -> str:
        return "sent"

    async def confirm() -> None:
        await till.semel.run("mail-1", mailed, operation="mail", fingerprint=None)

    async def work(request: Request) -> Response:
        await book()
        return PlainTextResponse("paid", background=BackgroundTask(confirm))

    await till.post(work)
    assert len((await till.committed())[1]) == 2


async def test_background_work_finds_no_transaction(till: Till) -> None:
    found: list[Exception] = []

    async def look() -> None:
        try:
            transaction()
        except UsageError as error:
            found.append(error)

    async def work(request: Request) -> Response:
        await book()
        return PlainTextResponse("paid", background=BackgroundTask(look))

    await till.post(work)
    assert len(found) == 1


async def test_a_stream_without_an_end_is_taken_back_at_max_runtime(till: Till, url: str) -> None:
    clock = VirtualClock()
    other = Till(url, clock)

    async def chunks() -> AsyncIterator[bytes]:
        await book()
        yield b"one"
        clock.advance(15 * 60)
        await asyncio.Event().wait()

    async def stream(request: Request) -> Response:
        return StreamingResponse(chunks())

    assert (await other.post(stream)).status_code == 500
    assert await till.committed() == (0, [])
    await other.semel.close()
    await other.engine.dispose()
