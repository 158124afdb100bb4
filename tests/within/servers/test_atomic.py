"""Record and rows commit or roll back together, through every library. within.md, opening and points 1, 7 and 10."""

from datetime import timedelta

import pytest

from semel import Policy
from semel.errors import KeyReused
from tests.within.servers.world import OnServer

pytestmark = pytest.mark.anyio


async def test_record_and_rows_commit_together(world: OnServer) -> None:
    caller = await world.begun()
    result = await world.call(caller.thing, "o-1", world.writes(caller))
    assert (result.value, result.replayed) == ("charged", False)
    assert (world.rows(), world.statuses()) == ([], [])
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["charged"], ["completed"])


async def test_as_a_context_too(world: OnServer) -> None:
    caller = await world.begun()

    async def body() -> None:
        for key in ("o-1", "o-2"):
            await world.run(key, world.writes(caller, key))

    await world.inside(caller.thing, body)
    assert world.statuses() == []
    await caller.commit()
    assert (world.rows(), world.statuses()) == (["o-1", "o-2"], ["completed"] * 2)


async def test_record_and_rows_roll_back_together(world: OnServer) -> None:
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.writes(caller))
    await caller.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_what_was_rolled_back_is_remembered_nowhere(world: OnServer) -> None:
    """Point 7: whatever the engine keeps in memory, it runs again."""
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.writes(caller, "first"))
    await caller.rollback()
    assert await world.read("o-1") is None
    await caller.begin()
    again = await world.call(caller.thing, "o-1", world.writes(caller, "second"))
    await caller.commit()
    assert (again.value, again.replayed, world.rows()) == ("second", False, ["second"])


async def test_what_was_committed_is_replayed_inside_and_outside(world: OnServer) -> None:
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.writes(caller))
    await caller.commit()
    await caller.begin()
    assert (await world.call(caller.thing, "o-1", world.writes(caller))).replayed
    assert (await world.run("o-1", world.writes(caller))).value == "charged"
    assert world.runs == ["charged"]


async def test_what_was_recorded_outside_is_replayed_inside(world: OnServer) -> None:
    await world.run("o-1", world.nothing)
    caller = await world.begun()
    assert (await world.call(caller.thing, "o-1", world.writes(caller))).replayed
    assert world.runs == []


async def test_rows_of_the_caller_before_and_after_belong_to_it(world: OnServer) -> None:
    caller = await world.begun()
    await caller.sql("INSERT INTO effect (name) VALUES ('before')")
    await world.call(caller.thing, "o-1", world.writes(caller))
    await caller.sql("INSERT INTO effect (name) VALUES ('after')")
    await caller.rollback()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_a_savepoint_of_the_caller_takes_the_record_back(world: OnServer) -> None:
    caller = await world.begun()
    await caller.sql("SAVEPOINT mine")
    await world.call(caller.thing, "o-1", world.writes(caller))
    await caller.sql("ROLLBACK TO mine")
    await caller.commit()
    assert (world.rows(), world.statuses()) == ([], [])


async def test_other_arguments_are_refused_and_the_transaction_goes_on(world: OnServer) -> None:
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.writes(caller), fingerprint={"amount": 10})
    with pytest.raises(KeyReused):
        await world.call(caller.thing, "o-1", world.writes(caller), fingerprint={"amount": 11})
    await caller.commit()
    assert world.rows() == ["charged"]


async def test_there_is_no_lease(world: OnServer) -> None:
    """Point 1: the record is claimed without any time, and nobody renews it."""
    caller = await world.begun()
    seen = []

    async def handler() -> str:
        seen.extend(await caller.sql("SELECT lease_us - created_us, status FROM semel_record"))
        return "done"

    policy = Policy(lease_for=timedelta(hours=1), max_runtime=timedelta(hours=2))
    await world.call(caller.thing, "o-1", handler, policy=policy)
    assert seen == [(0, "running")]


async def test_the_number_of_attempts_is_not_limited(world: OnServer) -> None:
    """Point 1: an attempt that was rolled back was never counted, so counting the others would mean nothing."""
    caller = await world.begun()
    policy = Policy(retry_errors=(ConnectionError,), max_attempts=1)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await world.call(caller.thing, "o-1", world.writes(caller, "half", ConnectionError()), policy=policy)
    assert (await world.call(caller.thing, "o-1", world.writes(caller), policy=policy)).value == "charged"


async def test_a_fixture_that_rolls_back_leaves_nothing_behind(world: OnServer) -> None:
    """Point 10: tests that wrap everything in one transaction see records inside it, and the next test sees none."""
    caller = await world.open()
    for _ in range(2):
        await caller.begin()

        async def a_test_of_a_user() -> None:
            await caller.sql("SAVEPOINT test")
            first = await world.run("o-1", world.writes(caller))
            second = await world.run("o-1", world.writes(caller))
            assert (first.replayed, second.replayed) == (False, True)
            record = await world.read("o-1")
            assert record is not None
            assert record.status == "completed"
            await caller.sql("RELEASE SAVEPOINT test")

        await world.inside(caller.thing, a_test_of_a_user)
        await caller.rollback()
        assert (world.rows(), world.statuses()) == ([], [])


async def test_an_operation_inside_a_handler_joins_too(world: OnServer) -> None:
    caller = await world.begun()

    async def outer() -> str:
        inner = await world.run("inner", world.writes(caller, "inner"))
        return f"outer of {inner.value}"

    assert (await world.call(caller.thing, "outer", outer)).value == "outer of inner"
    await caller.rollback()
    assert (world.rows(), world.statuses()) == ([], [])
