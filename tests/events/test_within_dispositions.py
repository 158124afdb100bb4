"""What comes of a delivery inside a transaction of the caller, `handle(event, within=session)`, on every SQL store.

What always holds: whatever is told of an event is decided in the caller's transaction and commits with it; an error
leaves the block, and `failed` tells what became of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from semel.errors import EventInvalid, UsageError
from semel.events import Consumer, Disposition, Event
from semel.testing import Crash
from tests.events.desk import NO_CHANCE, TYPE, Declined, Registered, an_event
from tests.events.test_transactions import Begun, Office, office

__all__ = ["office"]
pytestmark = [pytest.mark.slow, pytest.mark.anyio, pytest.mark.covering]
WITH_CONNECTIONS = ("sqlite3", "aiosqlite", "psycopg", "asyncpg", "pymysql", "asyncmy", "sqlalchemy-async-asyncpg")


class RolledBack(Exception):
    """Raised by a caller who wants no part of it."""


@dataclass
class Desk:
    """A consumer whose events are handled in transactions of the caller."""

    office: Office
    begun: Begun

    def consumer(self, handler: Callable[..., Any], *types: str, **settings: Any) -> Consumer[Any]:
        consumer: Consumer[Any] = Consumer(self.office.semel, "billing", backoff=NO_CHANCE, **settings)

        async def run(**given: Any) -> Any:
            return handler(**given)

        run.__signature__ = inspect.signature(handler)  # type: ignore[attr-defined]
        run.__annotations__ = handler.__annotations__
        consumer.on(*(types or (TYPE,)))(run if self.office.library.is_async else handler)
        return consumer

    async def handle(self, consumer: Consumer[Any], event: Event, *, rolls_back: bool = False) -> Disposition:
        """Handle an event as the documentation shows it: what leaves the block is told to `failed`."""
        try:
            return await self.handle_inside(consumer, event, rolls_back=rolls_back)
        except RolledBack:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the handler raised
            given: Disposition = await self.office.wait(consumer.failed(event, error))
            return given

    async def handle_inside(self, consumer: Consumer[Any], event: Event, *, rolls_back: bool = False) -> Disposition:
        given: Disposition
        if self.office.library.is_async:
            async with self.begun.transaction() as session:
                await self.begun.write(session)  # SQLite's only lock is held from here on
                given = await consumer.handle(event, within=session)
                if rolls_back:
                    raise RolledBack
        else:
            with self.begun.transaction() as session:
                self.begun.write(session)
                given = cast("Disposition", consumer.handle(event, within=session))
                if rolls_back:
                    raise RolledBack
        return given

    async def alone(self, consumer: Consumer[Any], event: Event) -> Disposition:
        """Handle an event without a transaction."""
        given: Disposition = await self.office.wait(consumer.handle(event))
        return given


@pytest.fixture
async def desk(office: Office) -> Desk:
    if office.library.server == "sqlite":
        await office.record()  # makes the tables; a transaction that is open would keep them out
    return Desk(office, await office.library.commits(office.url, office.stack))


def nothing() -> None:
    """A handler that does nothing."""


def fail(error: BaseException) -> Callable[..., Any]:
    def raising() -> None:
        raise error

    return raising


def take_registered(data: Registered) -> None:
    raise AssertionError(data)


Act = Callable[[Desk], Awaitable[Disposition]]


def deliver(
    handler: Callable[..., Any], *types: str, times: int = 1, event: Event | None = None, **settings: Any
) -> Act:
    async def act(desk: Desk) -> Disposition:
        consumer = desk.consumer(handler, *types, **settings)
        for _ in range(times - 1):
            await desk.handle(consumer, event or an_event())
        return await desk.handle(consumer, event or an_event())

    return act


async def deliver_another_body(desk: Desk) -> Disposition:
    consumer = desk.consumer(nothing)
    await desk.handle(consumer, an_event())
    await desk.handle(consumer, an_event(data={"capacity_kw": 51}))
    return await desk.handle(consumer, an_event(data={"capacity_kw": 51}))


async def deliver_after_doubt(desk: Desk) -> Disposition:
    broken = desk.consumer(fail(OSError("?")), in_doubt="hold")
    assert (await desk.alone(broken, an_event())).status == "in_doubt"
    return await desk.handle(desk.consumer(nothing, in_doubt="hold"), an_event())


async def deliver_while_running(desk: Desk) -> Disposition:
    with pytest.raises(Crash):
        await desk.alone(desk.consumer(fail(Crash("killed"))), an_event())
    return await desk.handle(desk.consumer(nothing), an_event())


@dataclass(frozen=True)
class Row:
    """A row of the table: what happens, and what it is called."""

    name: str
    act: Act
    status: str
    action: str
    record: str | None
    letters: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


FINAL: dict[str, Any] = {"final_errors": (Declined,)}
BROKEN = fail(OSError("no route"))
TABLE = (
    Row("the handler returned", deliver(nothing), "processed", "ack", "completed"),
    Row("it was completed before", deliver(nothing, times=2), "duplicate", "ack", "completed"),
    Row("its type is ignored", deliver(nothing, "moved", unknown="ignore"), "ignored", "ack", None),
    Row("another worker runs it", deliver_while_running, "in_progress", "retry", "running"),
    Row("an error", deliver(BROKEN), "failed", "retry", "failed"),
    Row("it waits for a person", deliver_after_doubt, "in_doubt", "dead_letter", "in_doubt", (("in_doubt", 2),)),
    Row("a final error", deliver(fail(Declined()), **FINAL), "rejected", "dead_letter", "failed", (("rejected", 1),)),
    Row(
        "a final error, delivered again",
        deliver(fail(Declined()), times=3, **FINAL),
        "rejected",
        "dead_letter",
        "failed",
        (("rejected", 3),),
    ),
    Row(
        "the last attempt",
        deliver(BROKEN, times=2, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 1),),
    ),
    Row(
        "attempts used up, delivered again",
        deliver(BROKEN, times=4, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 3),),
    ),
    Row("the same id with another body", deliver_another_body, "reused", "dead_letter", "completed", (("reused", 2),)),
    Row(
        "data that does not decode",
        deliver(take_registered, event=an_event(data={"capacity_kw": "much"})),
        "invalid",
        "dead_letter",
        "failed",
        (("invalid", 1),),
    ),
    Row(
        "data without a fingerprint",
        deliver(nothing, times=2, event=an_event(data="e" + "\u0301" * 31)),
        "invalid",
        "dead_letter",
        None,
        (("invalid", 2),),
    ),
    Row(
        "an unknown type that is given up",
        deliver(nothing, "moved", unknown="dead_letter"),
        "unknown_type",
        "dead_letter",
        "failed",
        (("unknown_type", 1),),
    ),
    Row("an unknown type that is refused", deliver(nothing, "moved"), "unknown_type", "retry", "failed"),
)


@pytest.mark.parametrize("row", TABLE, ids=str)
@pytest.mark.parametrize("office", WITH_CONNECTIONS, indirect=True)
async def test_a_delivery_in_a_transaction_of_its_caller_has_the_disposition_of_the_table(desk: Desk, row: Row) -> None:
    given = await row.act(desk)
    assert (given.status, given.action) == (row.status, row.action)
    record = await desk.office.record()
    assert (None if record is None else str(record.status)) == row.record
    letters = await desk.office.letters(desk.consumer(nothing))
    assert [(letter.reason, letter.seen) for letter in letters] == list(row.letters)


@pytest.mark.parametrize("office", WITH_CONNECTIONS, indirect=True)
async def test_a_letter_is_rolled_back_with_the_transaction_that_it_was_written_in(desk: Desk) -> None:
    consumer, other = desk.consumer(nothing), an_event(data={"capacity_kw": 51})
    await desk.handle(consumer, an_event())
    with pytest.raises(RolledBack):
        await desk.handle(consumer, other, rolls_back=True)
    assert await desk.office.letters(consumer) == []
    assert (await desk.handle(consumer, other)).status == "reused"
    assert len(await desk.office.letters(consumer)) == 1


@pytest.mark.parametrize("office", ["sqlite3", "aiosqlite"], indirect=True)
async def test_an_event_that_can_have_no_record_leaves_the_block(desk: Desk) -> None:
    consumer = desk.consumer(nothing, scope=lambda event: event.data["tenant"])
    with pytest.raises(EventInvalid, match="KeyError"):
        await desk.handle_inside(consumer, an_event())
    assert desk.office.count_effects() == 0


@pytest.mark.parametrize("office", ["sqlite3", "aiosqlite"], indirect=True)
async def test_an_event_joins_no_transaction_that_its_caller_did_not_give(desk: Desk) -> None:
    """Its failure would be told and not raised: the block would commit half of it, and the next attempt the whole."""
    runs: list[str] = []
    consumer, semel = desk.consumer(lambda: runs.append("ran")), desk.office.semel
    if desk.office.library.is_async:
        async with desk.begun.transaction() as session, semel.within(session):
            with pytest.raises(UsageError, match=r"inside within\(\).*nothing ran"):
                await consumer.handle(an_event())
            given = await consumer.handle(an_event(), within=session)
    else:
        with desk.begun.transaction() as session, semel.within(session):
            with pytest.raises(UsageError, match=r"inside within\(\).*nothing ran"):
                consumer.handle(an_event())
            given = cast("Disposition", consumer.handle(an_event(), within=session))
    assert (given.status, runs) == ("processed", ["ran"])
