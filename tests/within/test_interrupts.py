"""The caller is interrupted or cancelled inside `within`: its record is settled in its own transaction."""

import asyncio
from pathlib import Path

import pytest

from semel import Policy
from semel.errors import InDoubt
from tests.within.world import AsyncWorld, World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
async def test_an_interrupt_passes_through_and_leaves_no_running_record(world: World, error: BaseException) -> None:
    connection = world.connect()
    with pytest.raises(type(error)):
        await world.call(connection, "o-1", world.effect(connection, "half", error))
    assert connection.in_transaction
    connection.commit()
    assert (world.rows(), world.statuses()) == (["half"], ["in_doubt"])


async def test_an_interrupt_and_a_rollback_leave_nothing(world: World) -> None:
    connection = world.connect()
    with pytest.raises(KeyboardInterrupt):
        await world.call(connection, "o-1", world.effect(connection, "half", KeyboardInterrupt()))
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])
    assert (await world.call(connection, "o-1", world.effect(connection))).value == "charged"


async def test_an_interrupt_after_a_commit_in_the_handler_passes_through(world: World) -> None:
    connection = world.connect()

    async def handler() -> None:
        connection.execute("INSERT INTO effect VALUES ('row')")
        connection.commit()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await world.call(connection, "o-1", handler)
    assert world.rows() == ["row"]


async def test_the_context_is_left_in_order(world: World) -> None:
    """After an interrupt nothing joins any more: the next operation commits by itself."""
    connection = world.connect()

    async def body() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await world.inside(connection, body)
    await world.run("o-1", world.nothing)
    assert world.statuses() == ["completed"]


async def test_a_cancelled_task_settles_its_record_in_the_transaction(tmp_path: Path) -> None:
    world = AsyncWorld(tmp_path / "semel.db")
    await world.run("o-0", world.nothing)
    hold = Policy(in_doubt="hold")
    connection = world.connect()
    begun = asyncio.Event()

    async def handler() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(world.call(connection, "o-1", handler, policy=hold))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.in_transaction
    connection.commit()
    assert world.statuses() == ["completed", "in_doubt"]
    with pytest.raises(InDoubt):
        await world.call(connection, "o-1", handler, policy=hold)
    await world.close()


async def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    world = AsyncWorld(tmp_path / "semel.db")
    await world.run("o-0", world.nothing)
    first, second = world.connect(), world.connect()
    await world.call(first, "o-1", world.nothing)
    task = asyncio.create_task(world.call(second, "o-1", world.nothing))
    await asyncio.sleep(0.12)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second.rollback()
    first.commit()
    assert world.statuses() == ["completed", "completed"]
    await world.close()
