"""Steps and `within`: a checkpoint that commits with the step's effect. within.md point 8."""

import sqlite3

import pytest

from semel import Policy
from semel.errors import LeaseLost, NotInTransaction, UsageError
from tests.within.world import Handler, World

pytestmark = pytest.mark.anyio


class Crash(Exception):
    """The attempt ends here; the next one goes on from the last checkpoint."""


def book(world: World, connection: sqlite3.Connection, name: str = "booked") -> Handler:
    async def step() -> str:
        world.runs.append(name)
        connection.execute("INSERT INTO effect VALUES (?)", [name])
        return name

    return step


async def test_checkpoint_and_effect_commit_together(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        value: str = await world.step("book", book(world, connection), within=connection)
        assert world.rows() == []
        connection.commit()
        assert world.rows() == ["booked"]
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    record = await world.read("o-1")
    assert record is not None
    assert [step.name for step in record.steps] == ["book"]


async def test_a_finished_step_is_not_run_again(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        value: str = await world.step("book", book(world, connection), within=connection)
        connection.commit()
        if world.semel.current().number == 1:
            raise Crash
        return value

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked"], ["booked"])


async def test_a_step_that_was_rolled_back_is_run_again(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        value: str = await world.step("book", book(world, connection), within=connection)
        if world.semel.current().number == 1:
            connection.rollback()
            raise Crash
        connection.commit()
        return value

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked", "booked"], ["booked"])


async def test_a_finished_step_touches_the_connection_no_more(world: World) -> None:
    connection = world.connect()

    async def handler() -> None:
        await world.step("book", book(world, connection), within=connection)
        connection.commit()
        if world.semel.current().number == 1:
            raise Crash
        assert not connection.in_transaction

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    await world.run("o-1", handler)


async def test_plain_steps_and_joined_steps_stand_side_by_side(world: World) -> None:
    connection = world.connect()

    async def handler() -> list[str]:
        done = [await world.step("reserve", world.nothing)]
        done.append(await world.step("book", book(world, connection), within=connection))
        connection.commit()
        done.append(await world.step("tell", world.nothing))
        if world.semel.current().number == 1:
            raise Crash
        return done

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    assert (await world.run("o-1", handler)).value == ["done", "booked", "done"]
    assert world.runs == ["booked"]


async def test_a_step_demands_the_lease_of_its_operation(world: World) -> None:
    """The doubt was resolved while the handler ran: nothing of it is recorded any more, and the step is undone."""
    connection = world.connect()
    policy = Policy(in_doubt="hold")

    async def handler() -> None:
        steal = world.connect()
        steal.execute("UPDATE semel_record SET nonce = randomblob(16), fence = fence + 1")
        steal.commit()
        try:
            await world.step("book", book(world, connection), within=connection)
        finally:
            connection.rollback()  # else the engine would wait for the lock of this very transaction

    with pytest.raises(LeaseLost):
        await world.run("o-1", handler, policy=policy)
    assert (world.runs, world.rows()) == ([], [])


async def test_a_plain_step_inside_within_is_refused(world: World) -> None:
    connection = world.connect()

    async def handler() -> None:
        await world.step("reserve", book(world, connection))

    with pytest.raises(UsageError, match="reserve"):
        await world.call(connection, "o-1", handler)
    assert world.runs == []
    connection.rollback()


async def test_a_step_that_commits_by_itself_is_caught(world: World) -> None:
    connection = world.connect()

    async def commits() -> str:
        connection.execute("INSERT INTO effect VALUES ('row')")
        connection.commit()
        return "done"

    async def handler() -> None:
        await world.step("book", commits, within=connection)

    with pytest.raises(NotInTransaction):
        await world.run("o-1", handler)
    record = await world.read("o-1")
    assert record is not None
    assert (record.steps, record.status) == ((), "in_doubt")


async def test_a_step_needs_an_open_transaction(world: World) -> None:
    connection = world.connect(isolation_level=None)

    async def handler() -> None:
        await world.step("book", book(world, connection), within=connection)

    with pytest.raises(NotInTransaction):
        await world.run("o-1", handler)
    assert (world.runs, world.rows()) == ([], [])


async def test_a_step_that_raises_leaves_the_transaction_to_the_handler(world: World) -> None:
    connection = world.connect()

    async def raises() -> None:
        connection.execute("INSERT INTO effect VALUES ('half')")
        raise Crash

    async def handler() -> str:
        with pytest.raises(Crash):
            await world.step("book", raises, within=connection)
        assert connection.in_transaction
        connection.rollback()
        return "given up"

    assert (await world.run("o-1", handler)).value == "given up"
    assert world.rows() == []


async def test_a_step_whose_transaction_was_rolled_back_is_run_again_by_the_same_attempt(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        await world.step("book", book(world, connection), within=connection)
        connection.rollback()
        value: str = await world.step("book", book(world, connection), within=connection)
        connection.commit()
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked", "booked"], ["booked"])


async def test_a_step_whose_commit_was_one_after_all_is_not_run_again_by_the_same_attempt(world: World) -> None:
    connection = world.connect()

    async def handler() -> str:
        await world.step("book", book(world, connection), within=connection)
        connection.commit()  # and its caller does not hear of it
        value: str = await world.step("book", book(world, connection), within=connection)
        connection.rollback()
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked"], ["booked"])


async def test_a_step_that_raised_may_be_run_again_by_the_same_attempt(world: World) -> None:
    connection = world.connect()

    async def breaks() -> None:
        raise Crash

    async def handler() -> str:
        with pytest.raises(Crash):
            await world.step("book", breaks, within=connection)
        connection.rollback()
        with pytest.raises(Crash):
            await world.step("book", breaks, within=connection)
        connection.rollback()
        value: str = await world.step("book", book(world, connection), within=connection)
        connection.commit()
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    assert world.rows() == ["booked"]
