"""The outbox on PostgreSQL where the server is another one than before: a restored dump, a standby, its promotion.

What always holds: numbers of transactions of one cluster mean nothing in another, and no event is lost over the change.
Some may be published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from semel import AsyncSemel
from semel.core.events.outbox import (
    CursorLost,
    MeasureLag,
    OpenCursor,
    PeekEvents,
    PurgeEvents,
    ReadEvents,
    SaveCursor,
    StreamPart,
)
from semel.errors import StoreUnavailable
from semel.events import Backoff, Outbox, Relay
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.sql.settings import Settings
from tests.events.places import Broker, Place, add, place_at
from tests.servers.postgresql import PostgresqlServer, running_standby

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clusters of PostgreSQL")]
Start = Callable[..., AbstractContextManager[PostgresqlServer]]
MANY = 3000
BURN = f"DO $$ BEGIN FOR n IN 1..{MANY} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Clusters(NamedTuple):
    """Two servers; the second one is much further in its numbers of transactions than the first."""

    low: PostgresqlServer
    high: PostgresqlServer


@pytest.fixture(scope="module")
def clusters(start_postgresql: Start) -> Iterator[Clusters]:
    with start_postgresql() as low, start_postgresql() as high:
        high.admin(BURN)
        assert _newest(high) > _newest(low) + MANY // 2
        yield Clusters(low, high)


def _newest(server: PostgresqlServer) -> int:
    return int(server.admin("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")[0][0])


def play(scenario: Callable[[], Awaitable[None]], *places: Place) -> None:
    async def played() -> None:
        try:
            async with asyncio.timeout(60):
                await scenario()
        finally:
            for place in places:
                await place.close()

    asyncio.run(played())


def _relay(semel: AsyncSemel, broker: Any, **settings: Any) -> Relay:
    return Relay(Outbox(semel), broker, backoff=Backoff(first=0, most=0), max_attempts=1, **settings)


async def _publish_all(place: Place, **settings: Any) -> None:
    """All is published, and each part has been saved behind it."""
    broker = Broker()
    for _ in range(2):
        await _relay(place.semel(), broker, **settings).run_once()


async def _publish_none(place: Place, **settings: Any) -> None:
    """The relay has opened its parts while there was nothing."""


async def _publish_half(place: Place, **settings: Any) -> None:
    """A relay is ended in the middle of a window, after its first batch."""
    broker = Broker()

    async def end_after_one(_events: Any) -> None:
        if broker.calls[1:]:
            running.cancel()
            await asyncio.Event().wait()

    broker.before = end_after_one
    running = asyncio.create_task(_relay(place.semel(), broker, batch=2, **settings).run_once())
    with pytest.raises(asyncio.CancelledError):
        await running


WAYS = {"low to high": ("low", "high"), "high to low": ("high", "low")}
STATES = {"all published": _publish_all, "none published": _publish_none, "half published": _publish_half}


@pytest.mark.parametrize(
    ("way", "state", "parts"),
    [
        *(("high to low", state, 1) for state in STATES),
        ("high to low", "half published", 3),
        ("low to high", "half published", 1),
    ],
)
def test_a_dump_that_is_restored_in_another_cluster_loses_no_event(
    clusters: Clusters, way: str, state: str, parts: int
) -> None:
    source, target = (getattr(clusters, name) for name in WAYS[way])
    old = place_at("postgresql", source.new_database())
    before = [f"before {number}" for number in range(6)]
    waiting = [f"waiting {number}" for number in range(3)]

    async def prepare() -> None:
        outbox = Outbox(old.semel())
        await _publish_all(old, parts=parts)  # the tables are there, and a cursor
        await add(outbox, *before, ordering_key="a")
        await STATES[state](old, parts=parts)
        await add(outbox, *waiting, ordering_key="a")

    play(prepare, old)
    new = place_at("postgresql", source.copy_database(old.url, target))

    async def go_on() -> None:
        broker, outbox = Broker(), Outbox(new.semel())
        await add(outbox, "early", ordering_key="a")
        await _relay(new.semel(), broker, parts=parts).run_once()
        demanded = [*([] if state == "all published" else before[2:]), *waiting, "early"]
        assert [name for name in broker.got if name in demanded] == demanded
        broker.got.clear()
        await add(outbox, "late", ordering_key="a")
        await _relay(new.semel(), broker, parts=parts).run_once()
        assert broker.got == ["late"], "from here on all is as usual"
        assert await _relay(new.semel(), broker, parts=parts).run_once() == 0

    play(go_on, new)


@pytest.mark.parametrize("divisions", [(2, 1), (1, 2), (3, 2)], ids=str)
def test_cursors_of_an_older_division_do_not_have_events_published_again_in_the_other_cluster(
    clusters: Clusters, divisions: tuple[int, int]
) -> None:
    older, newer = divisions
    old = place_at("postgresql", clusters.high.new_database())
    published = [f"published {number}" for number in range(8)]

    async def prepare() -> None:
        await _publish_all(old, parts=older)
        await add(Outbox(old.semel()), *published)
        await _publish_all(old, parts=older)
        await _publish_all(old, parts=newer)

    play(prepare, old)
    new = place_at("postgresql", clusters.high.copy_database(old.url, clusters.low))

    async def go_on() -> None:
        broker, semel = Broker(), new.semel()
        await add(Outbox(semel), "waiting")
        for _ in range(2):
            await _relay(new.semel(), broker, parts=newer).run_once()
        assert "waiting" in broker.got
        broker.got.clear()
        relay = _relay(new.semel(), broker, parts=newer)
        await add(Outbox(semel), "late")
        assert (await relay._ask(MeasureLag("default", 100))).streams[0].waiting == 1
        assert [one.event.id for one in (await relay._ask(PeekEvents("default", 10))).events] == ["late"]
        for _ in range(3):
            await _relay(new.semel(), broker, parts=newer).run_once()
        assert broker.got == ["late"], "from here on all is as usual"

    play(go_on, new)


async def _read_nothing(place: Place) -> None:
    """The tables are there, and no relay has ever run."""
    await place.semel().read("k", operation="o")


async def _open_alone(place: Place) -> None:
    """A relay has opened the part, and ended before it read anything."""
    await _relay(place.semel(), Broker())._ask(OpenCursor(StreamPart("default"), bytes(16)))


async def _begin_the_first_window(place: Place) -> None:
    """A relay ends in the middle of the first window that there is."""
    await add(Outbox(place.semel()), *(f"first {number}" for number in range(6)))
    await _publish_half(place)


UNREAD = {"no relay ran": _read_nothing, "opened": _open_alone, "in the first window": _begin_the_first_window}


@pytest.mark.parametrize(
    ("way", "state"), [*(("high to low", state) for state in UNREAD), ("low to high", "in the first window")]
)
def test_a_stream_of_which_no_window_was_completed_loses_nothing_in_another_cluster(
    clusters: Clusters, way: str, state: str
) -> None:
    source, target = (getattr(clusters, name) for name in WAYS[way])
    old = place_at("postgresql", source.new_database())
    waiting = [f"waiting {number}" for number in range(3)]

    async def prepare() -> None:
        await UNREAD[state](old)
        await add(Outbox(old.semel()), *waiting)

    play(prepare, old)
    new = place_at("postgresql", source.copy_database(old.url, target))

    async def go_on() -> None:
        broker, outbox = Broker(), Outbox(new.semel())
        await add(outbox, "early")
        relay = _relay(new.semel(), broker)
        await relay.run_once()
        await add(outbox, "late")
        await relay.run_once()
        demanded = [*waiting, "early", "late"]
        assert [name for name in broker.got if name in demanded] == demanded
        assert await _relay(new.semel(), broker).run_once() == 0, "from here on all is as usual"

    play(go_on, new)


def test_transactions_that_end_while_events_are_given_new_numbers_have_none_of_them_lost(clusters: Clusters) -> None:
    old = place_at("postgresql", clusters.high.new_database())
    waiting = [f"waiting {number}" for number in range(3)]

    async def prepare() -> None:
        await _publish_all(old)
        await add(Outbox(old.semel()), *waiting)

    play(prepare, old)
    new = place_at("postgresql", clusters.high.copy_database(old.url, clusters.low))

    async def go_on() -> None:
        broker = Broker()
        caller, other = await new.caller(), await new.caller()
        await caller.begin()
        await caller.sql("SELECT 1 FROM semel_outbox WHERE id = 'waiting 0' FOR UPDATE")
        relaying = asyncio.create_task(_relay(new.semel(), broker).run_once())
        while not (await other.sql(BLOCKED))[0][0]:
            assert not relaying.done()
        await other.sql("SELECT pg_current_xact_id()")
        await caller.rollback()
        await relaying
        assert broker.got == waiting

    play(go_on, new)


def test_a_transaction_that_is_open_while_a_relay_meets_the_other_cluster_loses_nothing(clusters: Clusters) -> None:
    old = place_at("postgresql", clusters.high.new_database())

    async def prepare() -> None:
        await add(Outbox(old.semel()), "before")
        await _publish_all(old)
        await add(Outbox(old.semel()), "waiting")

    play(prepare, old)
    new = place_at("postgresql", clusters.high.copy_database(old.url, clusters.low))

    async def go_on() -> None:
        broker, semel = Broker(), new.semel()
        caller, looker = await new.caller(), await new.caller()
        await caller.begin()
        await add(Outbox(semel), "open", within=caller.thing)
        relaying = asyncio.create_task(_relay(new.semel(), broker).run_once())
        while not (relaying.done() or (await looker.sql(BLOCKED))[0][0]):
            pass  # to ask is to let the others go on
        await caller.commit()
        try:
            await relaying
        except StoreUnavailable:
            await _relay(new.semel(), broker).run_once()
        await _relay(new.semel(), broker).run_once()
        assert {"waiting", "open"} <= set(broker.got)

    play(go_on, new)


def test_events_that_were_published_before_the_dump_are_purged_in_the_other_cluster(clusters: Clusters) -> None:
    old = place_at("postgresql", clusters.high.new_database())

    async def prepare() -> None:
        await add(Outbox(old.semel()), "a", "b", "c")
        await _publish_all(old)

    play(prepare, old)
    new = place_at("postgresql", clusters.high.copy_database(old.url, clusters.low))

    async def go_on() -> None:
        broker = Broker()
        for name in ("d", "e"):
            await add(Outbox(new.semel()), name)
            await _relay(new.semel(), broker).run_once()
        relay = _relay(new.semel(), broker, keep_for=0)
        await relay.run_once()
        await relay.purge()
        await add(Outbox(new.semel()), "f")
        broker.got.clear()
        await relay.run_once()
        assert broker.got == ["f"]
        caller = await new.caller()
        left = await caller.sql("SELECT id FROM semel_outbox WHERE id < 'd'")
        assert left == [], "they would stay for ever"

    play(go_on, new)


def test_a_standby_is_refused_and_goes_on_once_it_is_promoted(start_postgresql: Start) -> None:
    with start_postgresql() as primary:
        place = place_at("postgresql", primary.new_database())
        broker = Broker()

        async def prepare() -> None:
            await add(Outbox(place.semel()), "before")
            await _relay(place.semel(), broker).run_once()

        play(prepare, place)
        with running_standby(primary) as standby:
            url = place.url.replace(f":{primary.port}/", f":{standby.port}/")
            other = place_at("postgresql", url)

            async def refuse() -> None:
                await add(Outbox(place.semel()), "waiting")
                standby.catch_up()
                with pytest.raises(StoreUnavailable, match="Give the address of the primary"):
                    await _relay(other.semel(), broker).run_once()
                with pytest.raises(StoreUnavailable, match="Give the address of the primary"):
                    await _relay(other.semel(), broker)._ask(OpenCursor(StreamPart("default"), bytes(16)))
                assert broker.got == ["before"]

            play(refuse, place, other)
            primary.stop()
            standby.promote()
            promoted = place_at("postgresql", url)

            async def go_on() -> None:
                await add(Outbox(promoted.semel()), "after")
                await _relay(promoted.semel(), broker).run_once()
                assert broker.got == ["before", "waiting", "after"]
                await _relay(promoted.semel(), broker)._ask(MeasureLag("default", 10))

            play(go_on, promoted)


def test_what_a_relay_remembers_of_a_primary_counts_on_no_standby_that_is_promoted(
    start_postgresql: Start,
) -> None:
    with start_postgresql() as primary:
        place = place_at("postgresql", primary.new_database())
        broker = Broker()
        remembered: list[Any] = []

        async def read() -> None:
            await add(Outbox(place.semel()), "before")
            relay = _relay(place.semel(), broker)
            cursor = (await relay._ask(OpenCursor(StreamPart("default"), bytes(16)))).cursor
            remembered.append((await relay._ask(ReadEvents(cursor, 10))).cursor)

        play(read, place)
        with running_standby(primary) as standby:
            standby.catch_up()
            url = place.url.replace(f":{primary.port}/", f":{standby.port}/")
            primary.stop()
            standby.promote()
            promoted = place_at("postgresql", url)

            async def go_on() -> None:
                # As the primary would say after transactions that have not come over: their numbers are given again.
                (cursor,) = (replace(one, seen="9999:9999:", at=0, until=None) for one in remembered)
                await add(Outbox(promoted.semel()), "after")
                relay = _relay(promoted.semel(), broker)
                with pytest.raises(StoreUnavailable, match="another server"):
                    await relay._ask(ReadEvents(cursor, 10))
                far = replace(cursor, floor=9, number=cursor.number + 99)
                assert (await relay._ask(PurgeEvents(far, 0, 10))).count == 0
                assert await (await promoted.caller()).sql("SELECT part FROM semel_cursor"), "it would begin again"
                assert await relay._ask(SaveCursor(cursor, ())) == CursorLost()
                await relay.run_once()
                assert broker.got == ["before", "after"]

            play(go_on, promoted)


def test_what_a_relay_remembers_counts_no_more_after_the_server_has_crashed(start_postgresql: Start) -> None:
    with start_postgresql() as server:
        place = place_at("postgresql", server.new_database())
        broker = Broker()

        async def crash() -> None:
            relay = _relay(place.semel(), broker)
            cursor = (await relay._ask(OpenCursor(StreamPart("default"), bytes(16)))).cursor
            server.crash()
            other = _relay(place.semel(), broker)  # a pool that has noticed gives a new connection without a word
            # As it was seen before the crash, which has taken back what was not yet written down.
            cursor = replace(cursor, seen="9999:9999:", at=0, until=None)
            await add(other.outbox, "after")
            with pytest.raises(StoreUnavailable, match="restarted"):
                await other._ask(ReadEvents(cursor, 10))
            assert await other._ask(SaveCursor(cursor, ())) == CursorLost()
            await other.run_once()
            assert broker.got == ["after"]

        play(crash, place)


def test_a_cursor_is_not_opened_where_the_connection_turns_out_to_be_one_to_a_standby() -> None:
    outbox = PostgresDialect(Settings.of("postgresql://127.0.0.1/semel")).outbox
    opening = outbox.open(OpenCursor(StreamPart("default"), bytes(16)))
    next(opening)
    is_standby, cluster, newest, top = True, 1, 1, 0
    with pytest.raises(StoreUnavailable, match="A standby cannot tell"):
        opening.send([(is_standby, cluster, newest, top, *(None,) * 8)])
