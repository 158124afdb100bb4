"""Tills of Starlette and FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from fastapi import APIRouter, BackgroundTasks, Body, Depends, FastAPI, HTTPException, Path, Response
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException as Aborted
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from semel import SHARED, AsyncSemel
from semel.http import transaction
from semel.http.asgi import IdempotencyMiddleware
from semel.http.fastapi import Idempotency, IdempotentRoute
from tests.http.tills import libraries as by
from tests.http.tills.crowd import Gate, Seen, ask_in_tasks
from tests.http.tills.libraries import AsyncLibrary
from tests.http.tills.till import HEADER, NO, Till
from tests.http.tills.told import Told


class AwaitedTill(Till):
    """What both have in common: an event loop of their own, and a client in the same process."""

    has_background = True

    def __init__(self, url: str, library: Callable[[str], AsyncLibrary]) -> None:
        super().__init__(url)
        self.prepare()
        self._runner = asyncio.Runner()
        self.semel = AsyncSemel(url)
        self.library = library(url)
        self.has_commit = not isinstance(self.library, by.Asyncpg) or isinstance(self.library, by.AsyncPsycopg)
        self._app = self._made()
        self._runner.run(self.semel.read("nothing", operation="none"))  # makes the tables

    def _made(self) -> Any:
        raise NotImplementedError

    def ask(self, what: str = "pays", key: str = "k-1") -> Told:
        """Ask once."""
        return self._runner.run(self.post(what, key))

    async def post(self, what: str, key: str) -> Told:
        """Ask once, in the loop."""
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://till") as client:
            answer = await client.post(f"/{what}", headers={HEADER: key}, json={"amount": 1})
        return Told.of(answer.status_code, answer.headers, answer.json)

    def crowd(self, gate: Gate, *, with_owner: bool) -> Seen:
        """Ask `/slow` many times together, while others use the connections of the same pool."""

        async def ask() -> Told:
            return await self.post("slow", "k-1")

        library = self.library
        return self._runner.run(ask_in_tasks(ask, gate, library.use, library.held, with_owner=with_owner))

    async def view(self, what: str, connection: Any) -> None:
        """What the views have in common."""
        await self.library.book(connection)
        match what:
            case "slow":
                await asyncio.to_thread(self.gate.wait)
            case "raises":
                raise RuntimeError("after the row")
            case "commits":
                await connection.commit()
            case "commits-as-text":
                await self.library.book(connection, "COMMIT")
            case "rolls-back":
                await self.library.book(connection, "ROLLBACK")

    def work_later(self) -> None:
        """What a view leaves for after the answer."""
        self.background += 1

    def close(self) -> None:
        """Let go of connections."""
        self._runner.run(self.semel.close())
        self._runner.run(self.library.close())
        self._runner.close()


class StarletteTill(AwaitedTill):
    """The ASGI middleware around Starlette."""

    def _made(self) -> Any:
        async def pay(request: Request) -> PlainTextResponse:
            what = request.path_params["what"]
            await self.view(what, transaction())
            if what == "aborts":
                raise Aborted(NO)
            return PlainTextResponse(
                "paid", NO if what == "refuses" else 201, background=BackgroundTask(self.work_later)
            )

        app = Starlette(routes=[Route("/{what}", pay, methods=["POST"])])
        app.add_middleware(
            IdempotencyMiddleware,
            semel=self.semel,
            scope=SHARED,
            transaction=lambda request: self.library.unit(commits=self.commits),
        )
        return app


class FastapiTill(AwaitedTill):
    """The route class and dependency of FastAPI."""

    def _made(self) -> Any:
        async def session() -> AsyncIterator[Any]:
            async with self.library.unit(commits=self.commits) as connection:
                yield connection

        shared = Depends(session, scope="function")
        once = Idempotency(self.semel, scope=SHARED, transaction=shared)

        async def pay(
            tasks: BackgroundTasks,
            response: Response,
            connection: Any = shared,
            what: str = Path(),
            amount: int = Body(embed=True),
        ) -> str:
            await self.view(what, connection)
            if what == "aborts":
                raise HTTPException(NO)
            tasks.add_task(self.work_later)
            if what == "refuses":
                response.status_code = NO
            return "paid"

        router = APIRouter(route_class=IdempotentRoute, dependencies=[Depends(once)])
        router.add_api_route("/{what}", pay, methods=["POST"], status_code=201)
        app = FastAPI()
        app.include_router(router)
        return app
