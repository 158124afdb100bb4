"""A duplicate is refused, or waits, without breaking the caller's transaction. within.md points 1 and 2.

On SQLite the write lock itself keeps a duplicate out. How long a claim waits for that lock is the caller's own setting
(`timeout=` of the connection), as for any write of the caller; these tests set it to zero.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from semel import Policy
from semel.errors import InDoubt, InProgress
from tests.within.world import REJECT, World

pytestmark = pytest.mark.anyio
LONG = Policy(wait_for=timedelta(seconds=30))


@contextmanager
def soon(action: object) -> Iterator[None]:
    """Do something in another thread, a moment from now."""
    timer = threading.Timer(0.15, action)  # type: ignore[arg-type]  # a bound method of the connection
    timer.start()
    try:
        yield
    finally:
        timer.join()


async def an_open_transaction(world: World, key: str = "o-1") -> sqlite3.Connection:
    """Another caller has run the key and has not committed yet."""
    connection = world.connect(check_same_thread=False)
    await world.call(connection, key, world.effect(connection, "first"))
    return connection


async def test_reject_answers_at_once(world: World) -> None:
    await an_open_transaction(world)
    connection = world.connect()
    with pytest.raises(InProgress) as refused:
        await world.call(connection, "o-1", world.effect(connection, "second"), policy=REJECT)
    assert refused.value.retry_after > timedelta(0)
    assert world.runs == ["first"]


async def test_a_refused_duplicate_leaves_the_callers_transaction_usable(world: World) -> None:
    first = await an_open_transaction(world)
    connection = world.connect()
    connection.execute("BEGIN")
    with pytest.raises(InProgress):
        await world.call(connection, "o-1", world.effect(connection, "second"), policy=REJECT)
    assert connection.in_transaction
    first.commit()
    connection.execute("INSERT INTO effect VALUES ('own')")
    assert (await world.call(connection, "o-1", world.effect(connection, "second"), policy=REJECT)).replayed
    connection.commit()
    assert world.rows() == ["first", "own"]


async def test_a_duplicate_that_waits_gets_the_value(world: World) -> None:
    first = await an_open_transaction(world)
    connection = world.connect()
    with soon(first.commit):
        result = await world.call(connection, "o-1", world.effect(connection, "second"), policy=LONG)
    assert (result.value, result.replayed) == ("first", True)
    assert world.runs == ["first"]


async def test_a_duplicate_that_waits_runs_where_the_first_rolls_back(world: World) -> None:
    first = await an_open_transaction(world)
    connection = world.connect()
    with soon(first.rollback):
        result = await world.call(connection, "o-1", world.effect(connection, "second"), policy=LONG)
    connection.commit()
    assert (result.value, result.replayed) == ("second", False)
    assert world.rows() == ["second"]


async def test_waiting_ends_after_wait_for(world: World) -> None:
    await an_open_transaction(world)
    connection = world.connect()
    policy = Policy(wait_for=timedelta(seconds=0.2))
    began = time.monotonic()
    with pytest.raises(InProgress):
        await world.call(connection, "o-1", world.effect(connection), policy=policy)
    assert time.monotonic() - began >= 0.2
    assert world.runs == ["first"]


async def test_a_duplicate_outside_waits_for_the_transaction_too(world: World) -> None:
    """The other way round: a plain call meets the write lock of a transaction that has claimed the key."""
    first = await an_open_transaction(world)

    async def handler() -> str:
        return "second"

    with soon(first.commit):
        result = await world.run("o-1", handler, policy=LONG)
    assert (result.value, result.replayed) == ("first", True)


async def test_a_key_that_runs_outside_is_refused_inside(world: World) -> None:
    """A leased attempt holds no lock: its record says that it runs."""
    connection = world.connect()

    async def outer() -> str:
        async def other_caller() -> None:
            with pytest.raises(InProgress):
                await world.call(connection, "o-1", world.effect(connection), policy=REJECT, semel=elsewhere)
            connection.rollback()  # the refused claim began a transaction, as any write of the caller would have

        elsewhere = world.engine()
        # Another caller, not this handler itself: nothing of the context comes along.
        await world.apart(other_caller)
        return "outer"

    assert (await world.run("o-1", outer)).value == "outer"
    assert world.runs == []


async def test_another_key_is_not_disturbed_once_the_lock_is_free(world: World) -> None:
    first = await an_open_transaction(world)
    first.commit()
    connection = world.connect()
    assert not (await world.call(connection, "o-2", world.effect(connection, "second"), policy=REJECT)).replayed


async def test_what_is_held_in_doubt_is_refused_inside(world: World) -> None:
    hold = Policy(in_doubt="hold")

    async def fails() -> str:
        message = "no answer"
        raise TimeoutError(message)

    with pytest.raises(TimeoutError):
        await world.run("o-1", fails, policy=hold)
    connection = world.connect()
    with pytest.raises(InDoubt):
        await world.call(connection, "o-1", world.effect(connection), policy=hold)
    connection.execute("INSERT INTO effect VALUES ('own')")
    connection.commit()
    assert world.rows() == ["own"]
