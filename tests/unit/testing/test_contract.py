"""The suite itself: no scenario hides another, and each becomes a test in both colours and both styles of calling."""

import asyncio
import inspect

import pytest

from semel.testing.clock import VirtualClock
from semel.testing.contract import StoreContract
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World


def scenarios() -> dict[str, object]:
    return {name: test for name, test in inspect.getmembers(StoreContract) if name.startswith("test_")}


def test_no_topic_hides_a_scenario_of_another() -> None:
    topics = [topic for topic in StoreContract.__mro__ if topic not in (StoreContract, Contract, object)]
    assert sum(name.startswith("test_") for topic in topics for name in vars(topic)) == len(scenarios())


def test_every_scenario_is_a_test_that_pytest_can_call() -> None:
    assert [name for name, test in scenarios().items() if inspect.iscoroutinefunction(test)] == []


def test_every_scenario_takes_a_world() -> None:
    missing = [name for name, test in scenarios().items() if "world" not in inspect.signature(test).parameters]  # type: ignore[arg-type]  # a function
    assert missing == []


def test_a_topic_that_would_hide_a_scenario_is_refused() -> None:
    namespace = {"__module__": "semel.testing.contract.topics.invented", "test_the_first_caller_runs": lambda: None}
    with pytest.raises(TypeError, match="test_the_first_caller_runs"):
        type("Invented", (StoreContract,), namespace)


def test_a_user_may_override_a_scenario() -> None:
    mine = type("TestMine", (StoreContract,), {"test_the_first_caller_runs": None})
    assert vars(mine)["test_the_first_caller_runs"] is None


def test_a_call_that_nothing_would_wake_is_reported_instead_of_waited_for() -> None:
    async def play(world: World) -> None:
        gate = world.gate()
        call = world.start(gate.passing)
        with pytest.raises(AssertionError, match="no instant that would wake it"):
            await world.ended(call)
        gate.open()
        await world.ended(call)

    asyncio.run(play(World("async", VirtualClock(), lambda: None)))  # type: ignore[arg-type,return-value]  # no store
