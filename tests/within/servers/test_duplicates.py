"""A duplicate is refused, or waits, without breaking or blocking the caller's transaction. within.md points 1 and 2."""

from datetime import timedelta

import pytest

from semel import Policy
from semel.errors import InDoubt, InProgress, TransactionAborted
from tests.within.servers.callers import Caller
from tests.within.servers.world import OnServer, Resting, on_mariadb, on_postgresql
from tests.within.world import REJECT, Handler

pytestmark = pytest.mark.anyio
LONG = Policy(wait_for=timedelta(seconds=30))
with_snapshot = pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])


async def claimed(world: OnServer) -> Caller:
    """Another caller has run the key and has not committed yet."""
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.writes(caller, "first"))
    return caller


async def looked(world: OnServer, isolation: str) -> Caller:
    """A caller whose snapshot is taken: what others commit from here on, it cannot see."""
    caller = await world.begun(isolation)
    await caller.sql("SELECT count(*) FROM effect")
    return caller


def refuses(world: OnServer, caller: Caller, *, ends: bool) -> Handler:
    """A handler that runs outside, while another engine refuses its key inside the caller's transaction."""
    elsewhere = world.engine_at()

    async def other_caller() -> None:
        with pytest.raises(InProgress):
            await world.call(caller.thing, "o-1", world.writes(caller), policy=REJECT, semel=elsewhere)
        if ends:
            await caller.rollback()

    async def outer() -> str:
        await world.apart(other_caller)
        return "outer"

    return outer


async def test_reject_answers_at_once(world: OnServer) -> None:
    await claimed(world)
    second = await world.begun()
    await second.sql(world.server.patience)  # whoever waits for the first one's lock runs into the time limit
    with pytest.raises(InProgress) as refused:
        await world.call(second.thing, "o-1", world.writes(second, "second"), policy=REJECT)
    assert refused.value.retry_after > timedelta(0)
    assert world.runs == ["first"]


async def test_a_refused_duplicate_leaves_the_callers_transaction_usable(world: OnServer) -> None:
    first = await claimed(world)
    second = await world.begun()
    await second.sql("INSERT INTO effect (name) VALUES ('before')")
    with pytest.raises(InProgress):
        await world.call(second.thing, "o-1", world.writes(second, "second"), policy=REJECT)
    await first.commit()
    await second.sql("INSERT INTO effect (name) VALUES ('after')")
    assert (await world.call(second.thing, "o-1", world.writes(second, "second"), policy=REJECT)).value == "first"
    await second.commit()
    assert sorted(world.rows()) == ["after", "before", "first"]


async def test_a_duplicate_that_waits_gets_the_value(world: OnServer) -> None:
    first = await claimed(world)
    second = await world.begun()
    clock = Resting()
    clock.meanwhile.append(first.commit)
    waiting = world.engine_at(clock=clock)
    result = await world.call(second.thing, "o-1", world.writes(second, "second"), policy=LONG, semel=waiting)
    assert (result.value, result.replayed) == ("first", True)
    assert clock.rests == 1


async def test_a_duplicate_that_waits_runs_where_the_first_rolls_back(world: OnServer) -> None:
    first = await claimed(world)
    second = await world.begun()
    clock = Resting()
    clock.meanwhile.append(first.rollback)
    waiting = world.engine_at(clock=clock)
    result = await world.call(second.thing, "o-1", world.writes(second, "second"), policy=LONG, semel=waiting)
    await second.commit()
    assert (result.value, result.replayed) == ("second", False)
    assert world.rows() == ["second"]


async def test_waiting_ends_after_wait_for_and_the_transaction_is_usable(world: OnServer) -> None:
    await claimed(world)
    second = await world.begun()
    clock = Resting()
    waiting = world.engine_at(clock=clock)
    policy = Policy(wait_for=timedelta(seconds=2))
    with pytest.raises(InProgress):
        await world.call(second.thing, "o-1", world.writes(second), policy=policy, semel=waiting)
    assert 2 <= clock.now < 3
    assert await second.sql("SELECT 1") == [(1,)]
    assert world.runs == ["first"]


async def test_another_key_is_not_disturbed(world: OnServer) -> None:
    await claimed(world)
    second = await world.begun()
    assert not (await world.call(second.thing, "o-2", world.writes(second, "second"), policy=REJECT)).replayed


async def test_a_duplicate_outside_is_refused_while_the_transaction_is_open(world: OnServer) -> None:
    await claimed(world)
    with pytest.raises(InProgress):
        await world.run("o-1", world.nothing, policy=REJECT)


@on_postgresql
async def test_a_key_that_runs_outside_is_refused_inside(world: OnServer) -> None:
    caller = await world.begun()
    assert (await world.run("o-1", refuses(world, caller, ends=False))).value == "outer"
    assert await caller.sql("SELECT 1") == [(1,)]
    assert world.runs == []


@on_mariadb
async def test_a_key_that_runs_outside_is_refused_inside_on_innodb(world: OnServer) -> None:
    """The refused claim has locked the record it looked at, so its owner can end only once the caller has ended."""
    caller = await world.begun()
    assert (await world.run("o-1", refuses(world, caller, ends=True))).value == "outer"
    assert world.runs == []


async def test_what_is_held_in_doubt_is_refused_inside_and_the_transaction_goes_on(world: OnServer) -> None:
    hold = Policy(in_doubt="hold")

    async def fails() -> str:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await world.run("o-1", fails, policy=hold)
    caller = await world.begun()
    with pytest.raises(InDoubt):
        await world.call(caller.thing, "o-1", world.writes(caller), policy=hold)
    await caller.sql("INSERT INTO effect (name) VALUES ('own')")
    await caller.commit()
    assert world.rows() == ["own"]


@on_postgresql
@with_snapshot
async def test_a_snapshot_that_cannot_see_the_first_is_refused_while_it_is_open(
    world: OnServer, isolation: str
) -> None:
    second = await looked(world, isolation)
    await claimed(world)
    with pytest.raises(InProgress):
        await world.call(second.thing, "o-1", world.writes(second), policy=REJECT)
    await second.sql("INSERT INTO effect (name) VALUES ('own')")
    await second.commit()
    assert world.rows() == ["own"]


@on_postgresql
@with_snapshot
async def test_a_snapshot_that_cannot_see_the_first_is_transaction_aborted_once_it_is_committed(
    world: OnServer, isolation: str
) -> None:
    second = await looked(world, isolation)
    first = await claimed(world)
    await first.commit()
    with pytest.raises(TransactionAborted, match="all of it again"):
        await world.call(second.thing, "o-1", world.writes(second), policy=REJECT)
    assert world.runs == ["first"]
