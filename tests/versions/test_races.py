"""Writers that meet: of two that have read the same version, exactly one wins, and the other one is told."""

import asyncio
from collections.abc import Awaitable

import pytest

from semel.errors import ConcurrentModification
from semel.versions import Unchanged, Write, Written, update_versioned, upsert
from tests.versions.conftest import Opener
from tests.versions.doors import DOORS, Door, Session

pytestmark = [pytest.mark.anyio, pytest.mark.covering]

A = {"id": "a-1"}
ON = {"state": "on"}
WRITERS = 4
WITH_A_SERVER = [name for name, door in DOORS.items() if door.server != "sqlite"]
SERVERS = pytest.mark.parametrize("door", WITH_A_SERVER, indirect=True)
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()",
    # Not innodb_trx: what it shows stays the same for as long as somebody keeps looking.
    "mariadb": "SELECT variable_value + 0 FROM information_schema.global_status"
    " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
    "mysql": "SELECT variable_value + 0 FROM performance_schema.global_status"
    " WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


async def in_one_go(session: Session, write: Write) -> Written | Unchanged | ConcurrentModification:
    try:
        done = await session.write(write)
    except ConcurrentModification as refused:
        await session.rollback()
        return refused
    await session.commit()
    return done


async def until_somebody_waits(door: Door, watcher: Session) -> None:
    while (await watcher.sql(WAITING[door.server])) == [(0,)]:
        await watcher.rollback()  # each look is a transaction of its own, or it shows the first one again
    await watcher.rollback()


async def after_each_other(
    door: Door, opened: Opener, first: Write, second: Write
) -> Awaitable[Written | Unchanged | ConcurrentModification]:
    """`first` is written, `second` waits for its row, then `first` commits. Gives what becomes of `second`."""
    one, two, watcher = await opened(), await opened(), await opened()
    await one.write(first)
    late = asyncio.create_task(in_one_go(two, second))
    await until_somebody_waits(door, watcher)
    await one.commit()
    return late


async def stored(opened: Opener) -> list[tuple[object, ...]]:
    return await (await opened()).sql("SELECT state, version FROM asset")


async def test_of_many_with_the_same_version_exactly_one_wins(opened: Opener) -> None:
    await in_one_go(await opened(), upsert("asset", A, ON))
    sessions = [await opened() for _ in range(WRITERS)]
    answers = await asyncio.gather(
        *(
            in_one_go(session, update_versioned("asset", A, {"state": f"by-{n}"}, expected=1))
            for n, session in enumerate(sessions)
        )
    )
    winners = [n for n, answer in enumerate(answers) if answer == Written(2)]
    assert len(winners) == 1
    assert [answer.found for answer in answers if isinstance(answer, ConcurrentModification)] == [2] * (WRITERS - 1)
    assert await stored(opened) == [(f"by-{winners[0]}", 2)]


async def test_of_many_new_rows_exactly_one_is_made(opened: Opener) -> None:
    sessions = [await opened() for _ in range(WRITERS)]
    answers = await asyncio.gather(*(in_one_go(session, upsert("asset", A, ON)) for session in sessions))
    assert answers.count(Written(1)) == 1
    assert [answer.found for answer in answers if isinstance(answer, ConcurrentModification)] == [1] * (WRITERS - 1)


async def test_of_many_events_in_any_order_the_newest_stays(opened: Opener) -> None:
    sessions = [await opened() for _ in range(WRITERS)]
    answers = await asyncio.gather(
        *(
            in_one_go(session, upsert("asset", A, {"state": f"at-{n}"}, newer=n))
            for n, session in enumerate(reversed(sessions), 1)
        )
    )
    assert answers[-1] == Written(WRITERS)
    assert await stored(opened) == [(f"at-{WRITERS}", WRITERS)]


async def test_who_read_before_another_committed_is_refused(opened: Opener) -> None:
    early, other = await opened(), await opened()
    await in_one_go(other, upsert("asset", A, ON))
    seen = await early.sql("SELECT version FROM asset")
    await early.rollback()
    assert await in_one_go(other, update_versioned("asset", A, {"state": "other"}, expected=seen[0][0])) == Written(2)
    refused = await in_one_go(early, update_versioned("asset", A, {"state": "early"}, expected=seen[0][0]))
    assert isinstance(refused, ConcurrentModification)
    assert await stored(opened) == [("other", 2)]


@SERVERS
async def test_an_open_transaction_is_told_the_version_that_is_there_now(opened: Opener) -> None:
    early, other = await opened(), await opened()
    await in_one_go(other, upsert("asset", A, ON))
    # From here on a REPEATABLE READ transaction, the default of InnoDB, is shown version 1 by every plain read.
    assert await early.sql("SELECT version FROM asset") == [(1,)]
    await in_one_go(other, update_versioned("asset", A, ON, expected=1))
    with pytest.raises(ConcurrentModification) as refused:
        await early.write(update_versioned("asset", A, ON, expected=1))
    assert refused.value.found == 2


@SERVERS
async def test_a_change_that_waited_for_another_is_refused(door: Door, opened: Opener) -> None:
    await in_one_go(await opened(), upsert("asset", A, ON))
    late = await after_each_other(
        door,
        opened,
        update_versioned("asset", A, {"state": "first"}, expected=1),
        update_versioned("asset", A, {"state": "second"}, expected=1),
    )
    answer = await late
    assert isinstance(answer, ConcurrentModification)
    assert (answer.expected, answer.found) == (1, 2)
    assert await stored(opened) == [("first", 2)]


@SERVERS
async def test_a_new_row_that_waited_for_another_is_refused(door: Door, opened: Opener) -> None:
    late = await after_each_other(door, opened, upsert("asset", A, ON), upsert("asset", A, {"state": "second"}))
    answer = await late
    assert isinstance(answer, ConcurrentModification)
    assert (answer.expected, answer.found) == (None, 1)
    assert await stored(opened) == [("on", 1)]


@SERVERS
@pytest.mark.parametrize(
    ("second", "answer", "state"),
    [(5, Written(5), "second"), (3, Unchanged(3), "on"), (2, Unchanged(3), "on")],
    ids=["newer", "the-same", "older"],
)
async def test_a_first_event_that_waited_for_another(
    door: Door, opened: Opener, second: int, answer: Written | Unchanged, state: str
) -> None:
    late = await after_each_other(
        door, opened, upsert("asset", A, ON, newer=3), upsert("asset", A, {"state": "second"}, newer=second)
    )
    assert await late == answer
    assert await stored(opened) == [(state, answer.version)]


@SERVERS
async def test_a_request_delivered_twice_at_once_writes_once(door: Door, opened: Opener) -> None:
    await in_one_go(await opened(), upsert("asset", A, ON))
    write = update_versioned("asset", A, {"state": "off"}, expected=1, request={"request": "r-1"})
    late = await after_each_other(door, opened, write, write)
    assert await late == Unchanged(2)
    assert await stored(opened) == [("off", 2)]
