"""Transactions: one that the database gives up is run again, and on SQLite a writer never finds out too late."""

import asyncio

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.tables import Payment, Reservation, RoomNight
from tests.hotel.conftest import Build
from tests.hotel.front_desk import FIRST, FrontDesk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_whoever_loses_a_deadlock_is_run_again(build: Build, kind: str, request: pytest.FixtureRequest) -> None:
    desk = await build(request.getfixturevalue(kind).new_database(), rooms=5)
    both, begun = asyncio.Barrier(2), []

    async def book(first: int, second: int) -> None:
        async def work(session: AsyncSession) -> None:
            begun.append(first)
            await _take(session, first)
            if len(begun) <= 2:
                await both.wait()  # each holds what the other one wants
            await _take(session, second)

        await desk.parts.database.transact(work)

    await asyncio.gather(book(1, 2), book(2, 1))
    assert (len(begun), await desk.booked()) == (3, {1: 2, 2: 2})


async def _take(session: AsyncSession, night: int) -> None:
    chosen = update(RoomNight).where(RoomNight.night == FIRST.replace(day=night))
    await session.execute(chosen.values(booked_rooms=RoomNight.booked_rooms + 1))


async def test_who_reads_and_then_writes_loses_no_update(build: Build, any_database: str) -> None:
    desk = await build(any_database, rooms=20)

    async def work(session: AsyncSession) -> None:
        chosen = select(RoomNight).where(RoomNight.night == FIRST).with_for_update()
        night = (await session.scalars(chosen)).one()
        night.booked_rooms += 1

    await asyncio.gather(*(desk.parts.database.transact(work) for _ in range(20)))
    assert await desk.booked() == {1: 20}


async def test_readers_do_not_wait_for_a_writer(any_desk: FrontDesk) -> None:
    async with any_desk.parts.database.writing() as session:
        await _take(session, 1)
        assert await asyncio.wait_for(any_desk.booked(), 60) == {}


async def test_the_database_itself_refuses_to_oversell(any_desk: FrontDesk) -> None:
    with pytest.raises(Exception, match="rooms_sold") as refused:
        await any_desk.change_nights(booked_rooms=2)
    assert type(refused.value).__module__ == IntegrityError.__module__


@pytest.mark.parametrize(("table", "check"), [(Reservation, "reservation_status"), (Payment, "payment_status")])
async def test_the_database_itself_refuses_a_status_that_does_not_exist(
    any_desk: FrontDesk, table: type[Reservation | Payment], check: str
) -> None:
    guest = await any_desk.guest()
    await guest.pay(await guest.ready_to_pay())
    with pytest.raises(Exception, match=check) as refused:
        async with any_desk.parts.database.writing() as session:
            await session.execute(update(table).values(status="PERHAPS"))
    assert type(refused.value).__module__ == IntegrityError.__module__
