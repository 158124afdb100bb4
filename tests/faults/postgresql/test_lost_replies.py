"""F36: the server committed and its reply never came. The nonce in the row tells whose write it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from semel import AsyncSemel, Semel
from semel.core.operations import Complete, Fail, Granted, Recorded
from semel.core.record import Failure
from semel.errors import StoreUnavailable
from tests.decorated import CallStyle, call
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import MakeUser, claim
from tests.proxy.plan import Cut, How
from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as proxy:
        yield proxy


def next_reply() -> Cut:
    """The reply to the next statement; it was executed and committed when it is dropped."""
    return Cut(Direction.TO_CLIENT, 1, How.DROP, kind="CommandComplete")


def test_a_claim_whose_reply_was_lost_is_granted_to_the_same_nonce(make_user: MakeUser, proxy: Proxy) -> None:
    user, mine = make_user(proxy.url), claim("k")
    user.completed("warm")
    proxy.plan(next_reply())
    with pytest.raises(StoreUnavailable, match="is not known"):
        user.one(mine, Granted)
    granted = user.one(mine, Granted)
    assert (granted.lease.nonce, granted.lease.fence) == (mine.nonce, 1)


def test_a_completion_whose_reply_was_lost_is_recorded_once(
    make_user: MakeUser, proxy: Proxy, outsider: Outsider
) -> None:
    user = make_user(proxy.url)
    granted = user.one(claim("k"), Granted)
    proxy.plan(next_reply())
    with pytest.raises(StoreUnavailable, match="is not known"):
        user.one(Complete(granted.lease, b"done"), Recorded)
    before = outsider.look("SELECT updated_us FROM semel_record")
    assert user.one(Complete(granted.lease, b"done"), Recorded).at_us == before[0][0]
    assert outsider.look("SELECT updated_us FROM semel_record") == before


def test_a_failure_whose_reply_was_lost_is_recorded_once(make_user: MakeUser, proxy: Proxy) -> None:
    user = make_user(proxy.url)
    granted = user.one(claim("k"), Granted)
    ending = Fail(granted.lease, "final", Failure("Refused", "no"), doubtful=False)
    proxy.plan(next_reply())
    with pytest.raises(StoreUnavailable):
        user.one(ending, Recorded)
    user.one(ending, Recorded)


def test_the_connection_after_a_lost_reply_is_a_new_one(make_user: MakeUser, proxy: Proxy) -> None:
    user = make_user(proxy.url)
    user.completed("warm")
    proxy.forget()
    proxy.plan(next_reply())
    with pytest.raises(StoreUnavailable):
        user.one(claim("k"), Granted)
    user.one(claim("other"), Granted)
    assert [one.kind for one in proxy.seen].count("StartupMessage") == 1


@pytest.mark.parametrize("statement", [1, 2], ids=["the claim", "the completion"])
def test_a_caller_does_not_notice_a_lost_reply(
    proxy: Proxy, colour: str, call_style: CallStyle, statement: int
) -> None:
    ran: list[str] = []
    lost = Cut(Direction.TO_CLIENT, statement, How.DROP, kind="CommandComplete")
    value = once(colour, call_style, proxy.url, lambda: ran.append("k"), lambda: proxy.plan(lost))
    assert lost.done.is_set()
    assert (value, ran) == ("done", ["k"])


def once(colour: str, style: CallStyle, url: str, effect: Callable[[], None], warmed: Callable[[], None]) -> str:
    """The value of one call, on a connection that is open already."""

    def handler() -> str:
        effect()
        return "done"

    async def awaited() -> str:
        return handler()

    async def ask() -> str:
        async with AsyncSemel(url) as semel:
            await semel.read("k", operation="charge")
            warmed()
            value: str = (await call(style, semel, "k", awaited, operation="charge")).value
            return value

    if colour == "loop":
        return asyncio.run(ask())
    with Semel(url) as semel:
        semel.read("k", operation="charge")
        warmed()
        value: str = call(style, semel, "k", handler, operation="charge").value
        return value


def lost_commit() -> Cut:
    return Cut(Direction.TO_CLIENT, 1, How.DROP, kind="CommandComplete")


def test_a_caller_whose_commit_got_no_reply_asks_again_and_gets_the_outcome(
    url: str, proxy: Proxy, outsider: Outsider, call_style: CallStyle
) -> None:
    outsider.look("CREATE TABLE IF NOT EXISTS booking (id text)")
    outsider.look("TRUNCATE booking")
    with Semel(url) as semel:

        def book(connection: psycopg.Connection[Any]) -> str:
            connection.execute("INSERT INTO booking VALUES ('k')")
            return "booked"

        with psycopg.connect(proxy.url) as connection:
            with semel.within(connection):
                call(call_style, semel, "k", lambda: book(connection), operation="book")
            proxy.plan(lost_commit())
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
        with psycopg.connect(proxy.url) as connection, semel.within(connection):
            again = call(call_style, semel, "k", lambda: book(connection), operation="book")
    assert (again.value, again.replayed) == ("booked", True)
    assert outsider.look("SELECT count(*) FROM booking") == [(1,)]


async def _commit_without_reply(url: str, proxy: Proxy, style: CallStyle) -> tuple[str, bool]:
    async with AsyncSemel(url) as semel:
        connection = await asyncpg.connect(proxy.url)

        async def book() -> str:
            await connection.execute("INSERT INTO booking VALUES ('k')")
            return "booked"

        transaction = connection.transaction()
        await transaction.start()
        async with semel.within(connection):
            await call(style, semel, "k", book, operation="book")
        proxy.plan(lost_commit())
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await transaction.commit()
        await connection.close()
        connection = await asyncpg.connect(proxy.url)
        async with connection.transaction(), semel.within(connection):
            again = await call(style, semel, "k", book, operation="book")
        await connection.close()
        return again.value, again.replayed


def test_the_same_on_an_event_loop(url: str, proxy: Proxy, outsider: Outsider, call_style: CallStyle) -> None:
    outsider.look("CREATE TABLE IF NOT EXISTS booking (id text)")
    outsider.look("TRUNCATE booking")
    assert asyncio.run(_commit_without_reply(url, proxy, call_style)) == ("booked", True)
    assert outsider.look("SELECT count(*) FROM booking") == [(1,)]
