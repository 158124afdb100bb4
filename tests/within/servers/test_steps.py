"""Steps and `within`: a checkpoint that commits with the step's effect. within.md point 8."""

import pytest

from semel import Policy
from semel.errors import LeaseLost, NotInTransaction, UsageError
from tests.within.servers.world import OnServer

pytestmark = pytest.mark.anyio


class Crash(Exception):
    """The attempt ends here; the next one goes on from the last checkpoint."""


async def test_checkpoint_and_effect_commit_together(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        value: str = await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        assert (world.rows(), world.outside("SELECT name FROM semel_step")) == ([], [])
        await caller.commit()
        assert (world.rows(), world.outside("SELECT name FROM semel_step")) == (["booked"], ["book"])
        return value

    assert (await world.run("o-1", handler)).value == "booked"


async def test_a_finished_step_is_not_run_again(world: OnServer) -> None:
    caller = await world.open()

    async def handler() -> str:
        await caller.begin()
        value: str = await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        await caller.commit()
        if world.semel.current().number == 1:
            raise Crash
        return value

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked"], ["booked"])


async def test_a_step_that_was_rolled_back_is_run_again(world: OnServer) -> None:
    caller = await world.open()

    async def handler() -> str:
        await caller.begin()
        value: str = await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        if world.semel.current().number == 1:
            await caller.rollback()
            raise Crash
        await caller.commit()
        return value

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    await world.run("o-1", handler)
    assert (world.runs, world.rows()) == (["booked", "booked"], ["booked"])


async def test_plain_steps_and_joined_steps_stand_side_by_side(world: OnServer) -> None:
    caller = await world.open()

    async def handler() -> list[str]:
        done = [await world.step("reserve", world.nothing)]
        await caller.begin()
        done.append(await world.step("book", world.writes(caller, "booked"), within=caller.thing))
        await caller.commit()
        done.append(await world.step("tell", world.nothing))
        if world.semel.current().number == 1:
            raise Crash
        return done

    with pytest.raises(Crash):
        await world.run("o-1", handler)
    assert (await world.run("o-1", handler)).value == ["done", "booked", "done"]
    assert world.runs == ["booked"]


async def test_a_step_demands_the_lease_of_its_operation(world: OnServer) -> None:
    """Somebody has taken the key over: the step does not run, and nothing of it is recorded."""
    caller = await world.begun()
    steal = f"UPDATE semel_record SET nonce = {world.server.other_nonce}, fence = fence + 1"  # noqa: S608 - no input

    async def handler() -> None:
        world.outside(steal)
        try:
            await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        finally:
            await caller.rollback()  # InnoDB has locked the record that was looked at: the engine would wait for it

    with pytest.raises(LeaseLost):
        await world.run("o-1", handler, policy=Policy(in_doubt="hold"))
    assert (world.runs, world.rows()) == ([], [])


async def test_nobody_takes_over_while_the_step_runs(world: OnServer) -> None:
    """From its first statement on the step holds its record, and with it the lease, until the caller commits."""
    caller = await world.begun()
    free = []

    async def step() -> str:
        free.extend(world.outside("SELECT status FROM semel_record FOR UPDATE SKIP LOCKED"))
        return "booked"

    async def handler() -> None:
        await world.step("book", step, within=caller.thing)
        free.extend(world.outside("SELECT status FROM semel_record FOR UPDATE SKIP LOCKED"))
        await caller.commit()

    await world.run("o-1", handler)
    assert free == []


async def test_a_plain_step_inside_within_is_refused(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> None:
        await world.step("reserve", world.writes(caller))

    with pytest.raises(UsageError, match="reserve"):
        await world.call(caller.thing, "o-1", handler)
    assert world.runs == []


async def test_a_step_that_commits_by_itself_is_caught(world: OnServer) -> None:
    caller = await world.begun()

    async def commits() -> str:
        await caller.sql("INSERT INTO effect (name) VALUES ('row')")
        await caller.commit()
        return "done"

    async def handler() -> None:
        await world.step("book", commits, within=caller.thing)

    with pytest.raises(NotInTransaction, match="not open any more"):
        await world.run("o-1", handler)
    record = await world.read("o-1")
    assert record is not None
    assert (record.steps, record.status) == ((), "in_doubt")


async def test_a_step_that_raises_leaves_the_transaction_to_the_handler(world: OnServer) -> None:
    caller = await world.begun()

    async def handler() -> str:
        with pytest.raises(Crash):
            await world.step("book", world.writes(caller, "half", Crash()), within=caller.thing)
        await caller.rollback()
        return "given up"

    assert (await world.run("o-1", handler)).value == "given up"
    assert world.rows() == []


async def test_a_step_whose_transaction_was_rolled_back_is_run_again_by_the_same_attempt(world: OnServer) -> None:
    caller = await world.open()

    async def handler() -> str:
        await caller.begin()
        await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        await caller.rollback()
        await caller.begin()
        value: str = await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        await caller.commit()
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked", "booked"], ["booked"])


async def test_a_step_whose_commit_was_one_after_all_is_not_run_again_by_the_same_attempt(world: OnServer) -> None:
    caller = await world.open()

    async def handler() -> str:
        await caller.begin()
        await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        await caller.commit()  # and its caller does not hear of it
        await caller.begin()
        value: str = await world.step("book", world.writes(caller, "booked"), within=caller.thing)
        await caller.rollback()
        return value

    assert (await world.run("o-1", handler)).value == "booked"
    assert (world.runs, world.rows()) == (["booked"], ["booked"])
