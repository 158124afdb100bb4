"""`transaction=` with every library that `within` knows: effect and record commit together, by item and by page.

What always holds: the effects that are counted are those of the items that are counted, whatever failed on the way.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batches, BatchStatus, Item, Skip, async_runner, sync_runner
from semel.batch.batches import stoppable
from semel.engine import context
from semel.errors import KeyReused, RecordNotFound, UsageError
from semel.stores.urls import store_from_url
from tests.batch.desk import Desk
from tests.events.test_transactions import COUNT, LIBRARIES, TABLE, Begin, Begun, Library
from tests.servers.records import emptied

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
CHOSEN = [
    "sqlite3",
    "aiosqlite",
    "psycopg",
    "asyncpg",
    "sqlalchemy-async-asyncpg",
    "pymysql",
    "asyncmy",
]


class Declined(Exception):
    """The effect did not happen."""


class Office:
    """A desk on a database of one library, and a look at it from outside."""

    def __init__(self, library: Library, url: str, count: Callable[[], int]) -> None:
        self.library = library
        self.url = url
        self.count_effects = count
        self.desk = Desk("async" if library.is_async else "sync", lambda: store_from_url(url))
        self.stack = AsyncExitStack()

    async def run(
        self, batch: Any, work: Callable[[Item], Any] | None = None, begin: Begin | None = None, **settings: Any
    ) -> BatchStatus:
        """Run a batch whose handler writes a row, and does `work` then."""
        begun = await (begin or self.library.commits)(self.url, self.stack)

        def write(item: Item, session: Any) -> Any:
            self.desk.ran.append(item.id)
            begun.write(session)
            return None if work is None else work(item)

        async def awrite(item: Item, session: Any) -> Any:
            self.desk.ran.append(item.id)
            await begun.write(session)
            return None if work is None else work(item)

        handler = awrite if self.library.is_async else write
        given = {"concurrency": 2, "page": 4, "transaction": begun.transaction, **settings}
        return await self.desk.run(batch, handler=handler, **given)


@pytest.fixture(params=CHOSEN)
async def office(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Office]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    library = LIBRARIES[request.param]
    if library.server == "sqlite":
        path = tmp_path / "semel.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(TABLE)

        def count() -> int:
            with closing(sqlite3.connect(path)) as looking:
                return int(looking.execute(COUNT).fetchone()[0])

        office = Office(library, f"sqlite:///{path}", count)
    else:
        databases = request.getfixturevalue(library.server)
        url = emptied(databases, databases.url, TABLE, "DELETE FROM consumer_effect")
        office = Office(library, url, lambda: int(databases.admin(COUNT, url)[0][0]))
    yield office
    await office.stack.aclose()
    await office.desk.close()


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_every_effect_is_there_once(office: Office, commit: str) -> None:
    batch = await office.desk.start(10)
    status = await office.run(batch, lambda item: item.position, commit=commit)
    assert (status.state, status.completed, office.count_effects()) == ("completed", 10, 10)
    assert [result.value for result in await office.desk.results(batch)] == list(range(10))
    await office.run(batch, commit=commit)
    assert office.count_effects() == len(office.desk.ran) == 10


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_what_fails_leaves_no_effect_and_the_others_theirs(office: Office, commit: str) -> None:
    def work(item: Item) -> None:
        if item.position == 5:
            raise Declined("no")
        if item.position == 6:
            raise Skip("nothing to do")

    batch = await office.desk.start(10)
    status = await office.run(batch, work, commit=commit, max_attempts=2)
    assert (status.completed, status.failed, status.skipped) == (8, 1, 1)
    assert office.count_effects() == 8
    (failed,) = await office.desk.results(batch, status="failed")
    assert (failed.id, failed.attempts, failed.error and failed.error.message) == ("i5", 2, "no")
    assert await office.desk.do(lambda: batch.retry("failed")) == 1
    assert (await office.run(batch, commit=commit)).completed == 9
    assert office.count_effects() == 9


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_a_cancellation_inside_a_handler_leaves_no_effect_and_the_others_theirs(
    office: Office, commit: str
) -> None:
    def work(item: Item) -> None:
        if item.position == 5:
            raise asyncio.CancelledError

    batch = await office.desk.start(10)
    status = await office.run(batch, work, commit=commit)
    assert (status.state, status.completed, status.failed, office.count_effects()) == ("completed", 9, 1, 9)


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_what_ends_the_run_leaves_no_effect_of_its_item_and_the_rest_to_others(
    office: Office, commit: str
) -> None:
    class Ended(BaseException):
        pass

    def work(item: Item) -> None:
        if item.position == 5:
            raise Ended

    batch = await office.desk.start(10)
    with pytest.raises(Ended):
        await office.run(batch, work, commit=commit)
    status = await office.run(batch, commit=commit, wait=False)
    assert (status.state, status.completed, office.count_effects()) == ("completed", 10, 10)


@pytest.mark.parametrize("commit", ["item", "page"])
@pytest.mark.parametrize("kind", [KeyReused, RecordNotFound, UsageError])
async def test_a_refusal_by_semel_that_a_handler_meets_fails_its_item_alone(
    office: Office, commit: str, kind: type[UsageError]
) -> None:
    def work(item: Item) -> None:
        if item.position == 5:
            raise kind("of a call inside the handler")

    batch = await office.desk.start(10)
    status = await office.run(batch, work, commit=commit)
    assert (status.state, status.completed, status.failed, office.count_effects()) == ("completed", 9, 1, 9)


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_a_transaction_that_does_not_commit_stops_the_run(office: Office, commit: str) -> None:
    batch = await office.desk.start(4)
    with pytest.raises(UsageError, match="did not commit"):
        await office.run(batch, begin=office.library.forgets, commit=commit, concurrency=1)
    status = await office.desk.do(batch.status)
    assert (status.completed, office.count_effects()) == (0, 0)


def keeping_errors(library: Library) -> Begin:
    """What begins transactions of which an error leaves nothing, and is not heard of again."""

    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        begun = await library.commits(url, stack)

        @contextmanager
        def keep() -> Iterator[Any]:
            with suppress(Declined), begun.transaction() as session:
                yield session

        @asynccontextmanager
        async def keep_async() -> AsyncIterator[Any]:
            with suppress(Declined):
                async with begun.transaction() as session:
                    yield session

        return Begun(keep_async if library.is_async else keep, begun.write)

    return begin


@pytest.mark.parametrize("commit", ["item", "page"])
async def test_a_transaction_that_keeps_errors_to_itself_stops_the_run(office: Office, commit: str) -> None:
    def work(item: Item) -> None:
        if item.position == 5:
            raise Declined

    batch = await office.desk.start(8)
    with pytest.raises(UsageError, match="kept an error to itself"):
        await office.run(batch, work, begin=keeping_errors(office.library), commit=commit, concurrency=1)
    status = await office.desk.do(batch.status)
    assert status.completed == office.count_effects() == (5 if commit == "item" else 4)
    assert (await office.run(batch, commit=commit)).completed == office.count_effects() == 8


async def test_an_item_of_a_page_that_commits_as_a_whole_has_no_key_for_the_next_service(office: Office) -> None:
    def work(_item: Item) -> None:
        context.derived_here("POST https://bank.example")

    batch = await office.desk.start(4)
    with pytest.raises(UsageError, match='belong to commit="item"'):
        await office.run(batch, work, commit="page")
    assert office.count_effects() == 0


@pytest.mark.parametrize("decision", ["pause", "stop"])
async def test_a_page_that_is_stopped_on_its_way_leaves_no_effect_and_runs_anew(
    office: Office, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    if decision == "pause" and office.library.server == "sqlite":
        pytest.skip("there the page holds the only lock that whoever pauses has to wait for")
    for runner in (async_runner, sync_runner):
        monkeypatch.setattr(runner, "_POLL", 0.0)
    stops: list[Callable[[], None]] = []
    batch = stoppable(await office.desk.start(8), stops.append)
    engine_elsewhere = Semel(store_from_url(office.url))

    def decide(item: Item) -> None:
        if item.position == 1:
            if decision == "stop":
                stops[0]()
            else:
                with ThreadPoolExecutor(1) as elsewhere:
                    elsewhere.submit(Batches(engine_elsewhere).get("b").pause).result(30)

    with engine_elsewhere:
        status = await office.run(batch, decide, commit="page", concurrency=1, page=4)
    assert (status.completed, office.count_effects()) == (0, 0)
    assert office.desk.ran == ["i0", "i1"], "what ran ended, and nothing else began"
    if decision == "pause":
        await office.desk.do(batch.resume)
    assert (await office.run(batch, commit="page")).completed == office.count_effects() == 8


@pytest.mark.parametrize("decision", ["pause", "stop"])
async def test_an_item_that_has_waited_for_its_transaction_does_not_begin_after_the_end(
    office: Office, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    if decision == "pause" and office.library.server == "sqlite":
        pytest.skip("there the first item holds the only lock that whoever pauses has to wait for")
    for runner in (async_runner, sync_runner):
        monkeypatch.setattr(runner, "_POLL", 0.0)
    stops: list[Callable[[], None]] = []
    batch = stoppable(await office.desk.start(8), stops.append)
    engine_elsewhere, decided = Semel(store_from_url(office.url)), threading.Event()

    def decide(_item: Item) -> None:
        if decision == "stop":
            stops[0]()
        else:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(Batches(engine_elsewhere).get("b").pause).result(30)
        decided.set()

    with engine_elsewhere:
        status = await office.run(batch, decide, begin=in_turns(office.library, decided))
    assert decided.is_set()
    assert office.desk.ran == ["i0"], "nothing else began"
    assert status.completed == office.count_effects() == 1


def in_turns(library: Library, decided: threading.Event) -> Begin:
    """Transactions of which all but the first wait, as in a pool whose connections are all taken."""

    async def begin(url: str, stack: AsyncExitStack) -> Begun:
        begun, is_first = await library.commits(url, stack), itertools.count()

        @contextmanager
        def transaction() -> Iterator[Any]:
            if next(is_first):
                assert decided.wait(30)
            with begun.transaction() as session:
                yield session

        @asynccontextmanager
        async def atransaction() -> AsyncIterator[Any]:
            if next(is_first):
                assert await asyncio.to_thread(decided.wait, 30)
            async with begun.transaction() as session:
                yield session

        return Begun(atransaction if library.is_async else transaction, begun.write)

    return begin
