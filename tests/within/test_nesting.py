"""Operations inside operations inside `within`: they join, or are refused at once. within.md point 9.

On SQLite an operation that neither joined nor was refused would wait for the write lock of its own transaction; the
stores of these tests wait for an hour, so it would run into the time limit.
"""

import asyncio
from pathlib import Path

import pytest

from semel import DidNotHappen, Policy
from semel.errors import KeyReentered, NotResolvable
from tests.within.world import AsyncWorld, World

pytestmark = pytest.mark.anyio


async def test_an_operation_inside_a_handler_joins_the_same_transaction(world: World) -> None:
    connection = world.connect()

    async def outer() -> str:
        inner = await world.run("inner", world.effect(connection, "inner"))
        connection.execute("INSERT INTO effect VALUES ('outer')")
        return f"outer of {inner.value}"

    assert (await world.call(connection, "outer", outer)).value == "outer of inner"
    assert world.statuses() == []
    connection.commit()
    assert (world.rows(), world.statuses()) == (["inner", "outer"], ["completed", "completed"])


async def test_inner_and_outer_roll_back_together(world: World) -> None:
    connection = world.connect()

    async def outer() -> None:
        await world.run("inner", world.effect(connection, "inner"))

    await world.call(connection, "outer", outer)
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_an_inner_failure_does_not_end_the_outer(world: World) -> None:
    connection = world.connect()

    async def outer() -> str:
        with pytest.raises(ValueError, match="no"):
            await world.run("inner", world.effect(connection, "inner", ValueError("no")))
        return "went on"

    assert (await world.call(connection, "outer", outer)).value == "went on"
    connection.commit()
    assert world.statuses() == ["completed", "in_doubt"]


async def test_the_same_key_inside_itself_is_an_error_at_once(world: World) -> None:
    connection = world.connect()

    async def outer() -> None:
        await world.run("outer", world.effect(connection))

    with pytest.raises(KeyReentered):
        await world.call(connection, "outer", outer)
    assert world.runs == []


async def test_another_engine_on_the_same_file_joins_too(world: World) -> None:
    connection = world.connect()
    other = world.engine()

    async def outer() -> str:
        result = await world.run("inner", world.effect(connection, "inner"), semel=other)
        return f"{result.value}"

    assert (await world.call(connection, "outer", outer)).value == "inner"
    connection.commit()
    assert (world.rows(), world.statuses()) == (["inner"], ["completed", "completed"])
    await world.close_engine(other)


async def test_another_engine_on_the_same_file_by_another_name_joins_too(world: World, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere"
    link.symlink_to(tmp_path, target_is_directory=True)
    connection = world.connect()
    other = world.engine(link / "semel.db")

    async def outer() -> str:
        await world.run("inner", world.effect(connection, "inner"), semel=other)
        return "joined"

    assert (await world.call(connection, "outer", outer)).value == "joined"
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])
    await world.close_engine(other)


async def test_another_engine_on_another_file_does_not_join(world: World, tmp_path: Path) -> None:
    other = world.engine(tmp_path / "other.db")
    connection = world.connect()

    async def outer() -> None:
        await world.run("inner", world.nothing, semel=other)

    await world.call(connection, "outer", outer)
    connection.rollback()
    assert world.statuses() == []
    record = await world.read("inner", semel=other)
    assert record is not None
    assert record.status == "completed"
    await world.close_engine(other)


async def test_within_inside_within_on_the_same_connection(world: World) -> None:
    connection = world.connect()

    async def outer() -> None:
        await world.call(connection, "inner", world.effect(connection, "inner"))

    await world.call(connection, "outer", outer)
    connection.commit()
    assert world.statuses() == ["completed", "completed"]


async def test_reading_inside_sees_the_transaction(world: World) -> None:
    connection = world.connect()

    async def body() -> None:
        await world.run("o-1", world.effect(connection))
        record = await world.read("o-1")
        assert record is not None
        assert record.status == "completed"

    await world.inside(connection, body)
    connection.rollback()
    assert await world.read("o-1") is None


async def test_resolving_inside_commits_with_the_transaction(world: World) -> None:
    hold = Policy(in_doubt="hold")
    connection = world.connect()

    async def fails() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await world.run("o-1", fails, policy=hold)

    async def body() -> None:
        await world.resolve("o-1", DidNotHappen())
        with pytest.raises(NotResolvable):
            await world.resolve("o-1", DidNotHappen())

    await world.inside(connection, body)
    assert world.statuses() == ["in_doubt"]
    connection.commit()
    assert world.statuses() == ["failed"]


async def test_listing_and_sweeping_inside_do_not_wait(world: World) -> None:
    connection = world.connect()

    async def body() -> list[str]:
        await world.run("o-1", world.effect(connection))
        await world.sweep()
        return await world.listed()

    assert await world.inside(connection, body) == ["o-1"]


async def test_after_within_operations_are_on_their_own_again(world: World) -> None:
    connection = world.connect()
    await world.inside(connection, world.nothing)
    await world.run("o-1", world.nothing)
    assert world.statuses() == ["completed"]


async def test_tasks_that_share_a_transaction_may_overlap(tmp_path: Path) -> None:
    """Only tasks can: the first to begin is the first to end, and the other goes on."""
    world = AsyncWorld(tmp_path / "semel.db")
    await world.run("o-0", world.nothing)
    connection = world.connect()
    both = asyncio.Barrier(2)
    first_is_done = asyncio.Event()

    async def first() -> str:
        await both.wait()
        return "first"

    async def second() -> str:
        await both.wait()
        await first_is_done.wait()
        return "second"

    async def run_first() -> None:
        await world.run("o-1", first)
        first_is_done.set()

    async def body() -> None:
        await asyncio.gather(run_first(), world.run("o-2", second))

    await world.inside(connection, body)
    connection.commit()
    assert world.statuses() == ["completed"] * 3
    await world.close()
