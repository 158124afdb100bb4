"""The record commits with the caller's rows, or rolls back with them. within.md, opening and points 1, 7 and 10."""

import sqlite3
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from semel import Policy
from semel.errors import KeyReused
from tests.within.world import World

pytestmark = pytest.mark.anyio

Form = Callable[..., Coroutine[Any, Any, Any]]


async def one_call(world: World, connection: sqlite3.Connection, **settings: Any) -> Any:
    return await world.call(connection, "o-1", world.effect(connection), **settings)


async def as_a_context(world: World, connection: sqlite3.Connection, **settings: Any) -> Any:
    async def body() -> Any:
        return await world.run("o-1", world.effect(connection), **settings)

    return await world.inside(connection, body)


forms = pytest.mark.parametrize("form", [one_call, as_a_context])


@forms
async def test_record_and_rows_commit_together(world: World, form: Form) -> None:
    connection = world.connect()
    result = await form(world, connection)
    assert (result.value, result.replayed) == ("charged", False)
    assert (world.rows(), world.statuses()) == ([], [])
    connection.commit()
    assert (world.rows(), world.statuses()) == (["charged"], ["completed"])


@forms
async def test_record_and_rows_roll_back_together(world: World, form: Form) -> None:
    connection = world.connect()
    await form(world, connection)
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])
    # Point 7: nothing remembers what was rolled back, so it runs again.
    assert not (await form(world, connection)).replayed
    connection.commit()
    assert world.rows() == ["charged"]


@forms
async def test_what_was_committed_is_replayed(world: World, form: Form) -> None:
    connection = world.connect()
    await form(world, connection)
    connection.commit()
    again = await form(world, connection)
    assert (again.value, again.replayed) == ("charged", True)
    assert (await world.run("o-1", world.effect(connection))).replayed
    assert world.runs == ["charged"]


async def test_an_operation_outside_is_replayed_inside(world: World) -> None:
    async def handler() -> str:
        return "charged"

    await world.run("o-1", handler)
    assert (await world.call(world.connect(), "o-1", handler)).replayed


async def test_rows_of_the_caller_before_and_after_belong_to_it(world: World) -> None:
    connection = world.connect()
    connection.execute("INSERT INTO effect VALUES ('before')")
    await one_call(world, connection)
    connection.execute("INSERT INTO effect VALUES ('after')")
    connection.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_a_savepoint_of_the_caller_takes_the_record_back(world: World) -> None:
    connection = world.connect()
    connection.execute("INSERT INTO effect VALUES ('before')")
    connection.execute("SAVEPOINT mine")
    await one_call(world, connection)
    connection.execute("ROLLBACK TO mine")
    connection.commit()
    assert (world.rows(), world.statuses()) == (["before"], [])


async def test_several_operations_share_one_transaction(world: World) -> None:
    connection = world.connect()

    async def body() -> None:
        for key in ("o-1", "o-2", "o-3"):
            await world.run(key, world.effect(connection, key))

    await world.inside(connection, body)
    connection.commit()
    assert (world.rows(), world.statuses()) == (["o-1", "o-2", "o-3"], ["completed"] * 3)


async def test_other_arguments_are_refused_and_the_transaction_goes_on(world: World) -> None:
    connection = world.connect()
    await one_call(world, connection, fingerprint={"amount": 10})
    with pytest.raises(KeyReused):
        await one_call(world, connection, fingerprint={"amount": 11})
    connection.commit()
    assert world.rows() == ["charged"]


async def test_neither_lease_nor_runtime_limits_a_handler(world: World) -> None:
    """Point 1: there is no lease, so none can be lost."""
    connection = world.connect()
    short = timedelta(milliseconds=20)

    async def handler() -> str:
        time.sleep(0.08)  # noqa: ASYNC251 - the point: longer than the lease, and nobody renews
        attempt = world.semel.current()
        return f"{attempt.number} {attempt.fence} {attempt.in_doubt}"

    result = await world.call(connection, "o-1", handler, policy=Policy(lease_for=short, max_runtime=short))
    connection.commit()
    assert result.value == "1 1 False"
    assert world.statuses() == ["completed"]


async def test_the_number_of_attempts_is_not_limited(world: World) -> None:
    """Point 1: an attempt that was rolled back was never counted, so counting the others would mean nothing."""
    connection = world.connect()
    policy = Policy(retry_errors=(ConnectionError,), max_attempts=1)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await world.call(connection, "o-1", world.effect(connection, error=ConnectionError()), policy=policy)
        connection.commit()
    assert (await world.call(connection, "o-1", world.effect(connection), policy=policy)).value == "charged"


async def test_a_fixture_that_rolls_back_leaves_nothing_behind(world: World) -> None:
    """Point 10: tests that wrap everything in one transaction see records inside it, and the next test sees none."""
    for _ in range(2):
        connection = world.connect()
        connection.execute("BEGIN")

        async def a_test_of_a_user(connection: sqlite3.Connection = connection) -> None:
            connection.execute("SAVEPOINT test")
            first = await world.run("o-1", world.effect(connection))
            second = await world.run("o-1", world.effect(connection))
            assert (first.replayed, second.replayed) == (False, True)
            record = await world.read("o-1")
            assert record is not None
            assert record.status == "completed"
            connection.execute("RELEASE test")

        await world.inside(connection, a_test_of_a_user)
        connection.rollback()
        connection.close()
        assert (world.rows(), world.statuses()) == ([], [])
