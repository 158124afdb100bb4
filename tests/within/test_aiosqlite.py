"""aiosqlite, and SQLAlchemy on top of it: the record commits with what they commit. within.md, table and points 1 to 8.

The last kind is set up as SQLAlchemy recommends for SQLite: the driver begins nothing, an event sends BEGIN IMMEDIATE.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from semel import SHARED, AsyncSemel, Policy
from semel.errors import InProgress, KeyReused, NotInTransaction, TransactionAborted, UsageError
from semel.http import transaction
from semel.http.asgi import IdempotencyMiddleware
from semel.stores.sqlite import migrate
from tests.within.test_wrapped import ROW, seen
from tests.within.world import REJECT, store

pytestmark = pytest.mark.anyio

KINDS = ["aiosqlite", "connection", "session", "scoped", "immediate"]
Handler = Callable[[], Awaitable[Any]]


class Caller:
    """A connection as its owner sees it; nobody waits for a lock."""

    def __init__(self, thing: Any, engine: AsyncEngine | None) -> None:
        self.thing = thing
        self._engine = engine

    @classmethod
    async def of(cls, kind: str, path: Path, **settings: Any) -> "Caller":
        if kind == "aiosqlite":
            return cls(await aiosqlite.connect(path, timeout=0, **settings), None)
        engine = engine_of(path, immediate=kind == "immediate", **settings)
        if kind == "connection":
            return cls(await engine.connect(), engine)
        if kind == "scoped":
            return cls(async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: None), engine)
        return cls(AsyncSession(engine), engine)

    async def sql(self, text: str) -> None:
        if self._engine is None:
            await (await self.thing.execute(text)).close()
        else:
            await self.thing.execute(sa.text(text))

    async def link(self) -> aiosqlite.Connection:
        """What its statements are sent through."""
        if self._engine is None:
            return self.thing  # type: ignore[no-any-return]
        connection = self.thing if hasattr(self.thing, "sync_connection") else await self.thing.connection()
        return (await connection.get_raw_connection()).driver_connection  # type: ignore[no-any-return]

    async def commit(self) -> None:
        await self.thing.commit()

    async def rollback(self) -> None:
        await self.thing.rollback()

    async def close(self) -> None:
        await self.thing.close()
        if self._engine is not None:
            await self._engine.dispose()


def engine_of(path: Path, *, immediate: bool = False, timeout: float = 0, **settings: Any) -> AsyncEngine:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": timeout}, **settings)
    if immediate:

        def connected(connection: Any, _: object) -> None:
            connection.isolation_level = None

        def begun(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        sa.event.listen(engine.sync_engine, "connect", connected)
        sa.event.listen(engine.sync_engine, "begin", begun)
    return engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "semel.db"
    migrate(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE effect (name TEXT)")
    connection.close()
    return path


@pytest.fixture
async def semel(path: Path) -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel(store(path)) as semel:
        yield semel


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def caller(kind: str, path: Path) -> AsyncIterator[Caller]:
    caller = await Caller.of(kind, path)
    yield caller
    await caller.close()


async def call(semel: AsyncSemel, caller: Caller, handler: Handler | None = None, **settings: Any) -> Any:
    async def writes() -> str:
        await caller.sql(ROW)
        return "charged"

    return await semel.within(caller.thing).run(
        "o-1", handler or writes, operation="charge", **{"fingerprint": None, **settings}
    )


async def done() -> str:
    return "done"


async def test_record_and_rows_commit_together(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    assert (await call(semel, caller)).value == "charged"
    assert seen(path) == ([], [])
    await caller.commit()
    assert seen(path) == (["row"], ["completed"])


async def test_record_and_rows_roll_back_together(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    await call(semel, caller)
    await caller.rollback()
    assert seen(path) == ([], [])


async def test_the_record_joins_what_was_written_before(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    await caller.sql(ROW)
    await call(semel, caller)
    await caller.rollback()
    assert seen(path) == ([], [])


async def test_a_record_alone_is_the_transactions_too(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    await call(semel, caller, done)
    await caller.commit()
    assert seen(path) == ([], ["completed"])


async def test_one_within_outlives_a_commit_around_it(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    async with semel.within(caller.thing):
        for key in ("o-1", "o-2"):
            await semel.run(key, lambda: caller.sql(ROW), operation="charge", fingerprint=None)
            await caller.commit()
    assert seen(path) == (["row"] * 2, ["completed"] * 2)


async def test_what_was_committed_is_replayed_and_other_arguments_are_refused(
    semel: AsyncSemel, caller: Caller
) -> None:
    await call(semel, caller)
    await caller.commit()
    assert (await call(semel, caller)).replayed
    with pytest.raises(KeyReused):
        await call(semel, caller, fingerprint=1)


async def test_a_new_file_is_set_up_from_the_thread_of_the_connection(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new.db"
    sqlite3.connect(path).close()
    caller = await Caller.of("aiosqlite" if kind == "immediate" else kind, path)
    async with AsyncSemel(store(path)) as semel:
        await call(semel, caller, done)
        await caller.commit()
        assert await semel.read("o-1", operation="charge")
    await caller.close()


async def test_an_error_of_the_handler_is_settled(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    async def fails() -> None:
        await caller.sql(ROW)
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await call(semel, caller, fails, policy=Policy(final_errors=(ValueError,)))
    await caller.commit()
    assert seen(path) == (["row"], ["failed"])


@pytest.mark.parametrize("again", [False, True], ids=["alone", "and-begin"])
async def test_commit_inside_the_handler_is_caught(semel: AsyncSemel, caller: Caller, path: Path, again: bool) -> None:
    async def commits() -> str:
        await caller.sql(ROW)
        await caller.commit()
        if again:
            await caller.sql(ROW)
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await call(semel, caller, commits)
    assert seen(path)[0] == ["row"]


async def test_rollback_inside_the_handler_is_caught(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    async def takes_back() -> str:
        await caller.sql(ROW)
        await caller.rollback()
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await call(semel, caller, takes_back)
    await caller.rollback()
    assert seen(path) == ([], [])


async def test_a_handler_that_commits_while_others_write_is_told_that_it_did(semel: AsyncSemel, path: Path) -> None:
    """With BEGIN IMMEDIATE the next transaction cannot even begin; the claim's is ended all the same."""
    caller, other = await Caller.of("immediate", path), sqlite3.connect(path, timeout=0)

    async def commits() -> str:
        await caller.commit()
        other.execute(ROW)
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        await call(semel, caller, commits)
    other.close()
    await caller.close()


async def test_checkpoint_and_effect_commit_together(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    async def handler() -> None:
        await semel.current().step("book", caller.sql, ROW, within=caller.thing)
        assert seen(path) == ([], ["running"])
        await caller.commit()

    await semel.run("o-1", handler, operation="charge", fingerprint=None)
    record = await semel.read("o-1", operation="charge")
    assert record is not None
    assert ([step.name for step in record.steps], seen(path)[0]) == (["book"], ["row"])


@pytest.mark.parametrize("keeps", [True, False], ids=["committed", "rolled-back"])
async def test_a_step_runs_again_only_if_it_was_rolled_back(
    semel: AsyncSemel, caller: Caller, path: Path, keeps: bool
) -> None:
    runs = []

    async def book() -> None:
        runs.append("book")
        await caller.sql(ROW)

    async def handler() -> None:
        attempt = semel.current()
        await attempt.step("book", book, within=caller.thing)
        await (caller.commit() if keeps or attempt.number > 1 else caller.rollback())
        if attempt.number == 1:
            raise OSError

    with suppress(OSError):
        await semel.run("o-1", handler, operation="charge", fingerprint=None)
    await semel.run("o-1", handler, operation="charge", fingerprint=None)
    assert (len(runs), seen(path)) == (1 if keeps else 2, (["row"], ["completed"]))


async def test_a_duplicate_is_refused_and_its_connection_stays_usable(
    semel: AsyncSemel, caller: Caller, kind: str, path: Path
) -> None:
    second = await Caller.of(kind, path)
    await call(semel, caller)
    with pytest.raises(InProgress):
        await call(semel, second, policy=REJECT)
    await caller.commit()
    assert (await call(semel, second, policy=REJECT)).replayed
    await second.commit()
    assert seen(path) == (["row"], ["completed"])
    await second.close()


@pytest.mark.parametrize("immediate", [False, True], ids=["default", "immediate"])
async def test_sessions_with_one_key_run_it_once(semel: AsyncSemel, path: Path, immediate: bool) -> None:
    engine = engine_of(path, immediate=immediate, timeout=60)

    async def once() -> bool:
        async with AsyncSession(engine) as session, session.begin():

            async def writes() -> str:
                await session.execute(sa.text(ROW))
                return "charged"

            return (await semel.within(session).run("o-1", writes, operation="charge", fingerprint=None)).replayed

    replayed = await asyncio.gather(*(once() for _ in range(4)))
    assert (sorted(replayed), seen(path)) == ([False, True, True, True], (["row"], ["completed"]))
    await engine.dispose()


async def test_a_transaction_that_has_read_what_others_changed_is_aborted(semel: AsyncSemel, path: Path) -> None:
    caller = await Caller.of("aiosqlite", path)
    await caller.sql("BEGIN")
    await caller.thing.execute_fetchall("SELECT * FROM effect")
    with sqlite3.connect(path) as other:
        other.execute(ROW)
    other.close()
    with pytest.raises(TransactionAborted):
        await call(semel, caller)
    await caller.close()


class Gate:
    """Stops the thread of a connection where it is about to run a statement that begins so."""

    def __init__(self, start: str) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self.reached = asyncio.Event()

    async def guard(self, caller: Caller) -> None:
        await (await caller.link()).set_trace_callback(self._traced)

    def _traced(self, statement: str) -> None:
        if statement.startswith(self._start) and not self._open.is_set():
            self._loop.call_soon_threadsafe(self.reached.set)
            self._open.wait(60)

    def open(self) -> None:
        self._open.set()


async def cancelled_at(statement: str, semel: AsyncSemel, caller: Caller) -> None:
    """A call whose task is cancelled while the thread runs a statement that begins so."""
    gate = Gate(statement)
    await gate.guard(caller)
    task = asyncio.create_task(call(semel, caller))
    await gate.reached.wait()
    task.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_claim_that_was_granted_is_given_back(semel: AsyncSemel, caller: Caller, path: Path) -> None:
    await cancelled_at("INSERT INTO semel_record", semel, caller)
    await caller.commit()
    assert seen(path) == ([], ["failed"])
    assert not (await call(semel, caller)).replayed


async def test_a_claim_is_given_back_before_what_the_caller_does_next(
    semel: AsyncSemel, caller: Caller, path: Path
) -> None:
    """Cancelled again, it waits for nothing; the thread keeps the order."""
    gate = Gate("INSERT INTO semel_record")
    await gate.guard(caller)
    task = asyncio.create_task(call(semel, caller))
    await gate.reached.wait()
    task.cancel()
    await asyncio.sleep(0)  # a turn of the loop: the first cancellation arrives
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    await caller.commit()
    assert seen(path) == ([], ["failed"])


async def test_a_cancelled_claim_is_rolled_back_with_the_transaction(
    semel: AsyncSemel, caller: Caller, path: Path
) -> None:
    await cancelled_at("INSERT INTO semel_record", semel, caller)
    await caller.rollback()
    assert seen(path) == ([], [])


async def test_an_outcome_is_recorded_although_its_caller_is_cancelled_meanwhile(
    semel: AsyncSemel, caller: Caller, path: Path
) -> None:
    await cancelled_at("RELEASE", semel, caller)
    await caller.commit()
    assert seen(path) == (["row"], ["completed"])


@pytest.mark.parametrize("kind", ["aiosqlite", "connection"])
async def test_autocommit_is_refused(semel: AsyncSemel, path: Path, kind: str) -> None:
    caller = await Caller.of(kind, path, isolation_level=None if kind == "aiosqlite" else "AUTOCOMMIT")
    with pytest.raises(NotInTransaction, match="autocommit"):
        await call(semel, caller)
    assert seen(path) == ([], [])
    await caller.close()


async def test_autocommit_with_an_open_transaction_is_joined(semel: AsyncSemel, path: Path) -> None:
    caller = await Caller.of("aiosqlite", path, isolation_level=None)
    await caller.sql("BEGIN")
    await call(semel, caller)
    await caller.sql("ROLLBACK")
    assert seen(path) == ([], [])
    await caller.close()


async def test_another_file_is_refused(semel: AsyncSemel, kind: str, tmp_path: Path) -> None:
    other = await Caller.of(kind, tmp_path / "other.db")
    with pytest.raises(NotInTransaction, match=r"other\.db"):
        await call(semel, other)
    await other.close()


def test_a_session_of_another_server_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="leads to postgresql"):
        AsyncSemel(store(path)).within(AsyncSession(create_async_engine("postgresql+asyncpg://nowhere")))


async def test_a_closed_connection_is_refused(semel: AsyncSemel, path: Path) -> None:
    caller = await Caller.of("aiosqlite", path)
    await caller.close()
    with pytest.raises(NotInTransaction, match="not open"):
        await call(semel, caller)


def test_a_connection_that_is_not_opened_yet_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="not been opened"):
        AsyncSemel(store(path)).within(engine_of(path).connect())


def test_a_release_of_aiosqlite_without_the_way_into_its_thread_is_refused(path: Path) -> None:
    strange = type("Connection", (), {"__module__": "aiosqlite.core"})()
    with pytest.raises(UsageError, match=r"aiosqlite 0\.20, 0\.21 or 0\.22"):
        AsyncSemel(store(path)).within(strange)


@pytest.mark.parametrize("immediate", [False, True], ids=["default", "immediate"])
async def test_a_session_whose_transaction_was_ended_inside_begin_is_told_so(
    semel: AsyncSemel, path: Path, immediate: bool
) -> None:
    caller = await Caller.of("immediate" if immediate else "session", path)

    async def ends() -> str:
        await caller.rollback()
        return "done"

    with pytest.raises(NotInTransaction, match="not open any more"):
        async with caller.thing.begin():
            await call(semel, caller, ends)
    await caller.close()


async def test_a_session_that_needs_a_rollback_is_transaction_aborted(semel: AsyncSemel, path: Path) -> None:
    class Base(orm.DeclarativeBase):
        """Rows of a user."""

    class Missing(Base):
        __tablename__ = "nowhere"
        name: orm.Mapped[str] = orm.mapped_column(primary_key=True)

    caller = await Caller.of("session", path)
    caller.thing.add(Missing(name="row"))
    with pytest.raises(sa.exc.OperationalError):
        await caller.thing.flush()
    with pytest.raises(TransactionAborted):
        await call(semel, caller)
    await caller.close()


async def test_a_request_and_its_rows_commit_together(semel: AsyncSemel, path: Path) -> None:
    engine = engine_of(path, immediate=True, timeout=60)
    sessions = async_sessionmaker(engine)

    async def pay(request: Request) -> Response:
        await transaction().execute(sa.text(ROW))
        return PlainTextResponse("paid", 201)

    app = Starlette(routes=[Route("/", pay, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, semel=semel, scope=SHARED, transaction=lambda _: sessions.begin())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://till") as client:
        answers = await asyncio.gather(*(client.post("/", headers={"Idempotency-Key": "k-1"}) for _ in range(3)))
    assert [(answer.status_code, answer.text) for answer in answers] == [(201, "paid")] * 3
    assert seen(path) == (["row"], ["completed"])
    await engine.dispose()
