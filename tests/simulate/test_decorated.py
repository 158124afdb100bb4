"""Callers of the simulation that go through decorated functions: in every schedule they do what the flow does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from semel import AsyncAttempt, AsyncSemel, Attempt, Semel
from semel.core.fingerprint import Fingerprints
from semel.engine.async_engine import AsyncCall
from semel.engine.sync_engine import SyncCall
from semel_lab.simulate import World, every
from semel_lab.simulate.world import DECORATED, FINGERPRINTS

pytestmark = pytest.mark.slow


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """How often decorated functions of each colour are called, and steps of their attempts."""
    entered: Counter[str] = Counter()

    def sync_function(key: str) -> None: ...

    async def async_function(key: str) -> None: ...

    kinds: dict[str, Any] = {
        "threads": type(Semel("memory://").once(key="key")(sync_function)),
        "tasks": type(AsyncSemel("memory://").once(key="key")(async_function)),
    }

    def counted(colour: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def result(*args: Any, **kwargs: Any) -> Any:
            entered[colour] += 1
            return method(*args, **kwargs)

        return result

    with (
        patch.object(kinds["threads"], "result", counted("threads", kinds["threads"].result)),
        patch.object(kinds["tasks"], "result", counted("tasks", kinds["tasks"].result)),
        patch.object(Attempt, "step", counted("threads, step", Attempt.step)),
        patch.object(AsyncAttempt, "step", counted("tasks, step", AsyncAttempt.step)),
    ):
        yield entered


@pytest.mark.parametrize("world", DECORATED, ids=lambda world: world.name)
def test_a_decorated_function_does_in_every_schedule_what_the_flow_does(world: World) -> None:
    with counting() as entered:
        decorated = every(world)
    assert not decorated.failing, str(decorated.failing[0])
    assert decorated.complete
    assert entered[world.colour] >= decorated.schedules * 2, f"in {decorated.schedules} schedules: {entered}"
    expected_steps = decorated.schedules * world.steps
    assert entered[f"{world.colour}, step"] >= expected_steps, f"in {decorated.schedules} schedules: {entered}"
    unseen = {f"fault: {fault}" for fault in world.faults if fault == "cancel"} - set(decorated.seen)
    assert unseen == set(), f"never tried: {unseen}"
    flow = every(replace(world, calls="flow"))
    assert (decorated.schedules, decorated.seen) == (flow.schedules, flow.seen)


@pytest.mark.parametrize("colour", ["tasks", "threads"])
def test_cancellation_and_steps_are_simulated_in_both_colours(colour: str) -> None:
    worlds = [world for world in DECORATED if world.colour == colour]
    assert any("cancel" in world.faults for world in worlds)
    assert any(world.steps and "cancel" in world.faults for world in worlds)


@contextmanager
def without_leases() -> Iterator[None]:
    """No call keeps its lease alive."""
    with (
        patch.object(AsyncCall, "_hold", lambda self: None),
        patch.object(SyncCall, "_hold", lambda self: None),
    ):
        yield


@contextmanager
def without_fingerprints() -> Iterator[None]:
    """All requests look alike."""
    with patch.object(Fingerprints, "take", lambda self, asked: FINGERPRINTS[0]):
        yield


@contextmanager
def without_cleaning_up() -> Iterator[None]:
    """Whoever is cancelled just goes."""

    async def async_settle_after(call: AsyncCall[Any], _error: BaseException) -> None:
        call._done()

    def sync_settle_after(call: SyncCall[Any], _error: BaseException) -> None:
        call._done()

    with (
        patch.object(AsyncCall, "_settle_after", async_settle_after),
        patch.object(SyncCall, "_settle_after", sync_settle_after),
    ):
        yield


class Forgetful:
    """An attribute that keeps nothing."""

    def __get__(self, call: object, owner: type) -> None: ...

    def __set__(self, call: object, answer: object) -> None: ...


@contextmanager
def without_answers() -> Iterator[None]:
    """A call does not note what it was answered last."""
    with patch.object(AsyncCall, "_answer", Forgetful()), patch.object(SyncCall, "_answer", Forgetful()):
        yield


@contextmanager
def with_steps_repeated() -> Iterator[None]:
    """A step does its work even if it is finished."""
    async_right, sync_right = AsyncCall.run_step, SyncCall.run_step

    async def async_run_step(call: AsyncCall[Any], name: str, work: Any, within: Any) -> Any:
        value = await async_right(call, name, work, within)
        await work()
        return value

    def sync_run_step(call: SyncCall[Any], name: str, work: Any, within: Any) -> Any:
        value = sync_right(call, name, work, within)
        work()
        return value

    with patch.object(AsyncCall, "run_step", async_run_step), patch.object(SyncCall, "run_step", sync_run_step):
        yield


BOTH = ("tasks", "threads")
MISTAKES = {
    "the call does not keep the lease": (without_leases, "long handler", "told", BOTH),
    "a decorated function compares nothing": (without_fingerprints, "two fingerprints", "I5", BOTH),
    "a cancelled call cleans nothing up": (without_cleaning_up, "cancelled", "ownerless", BOTH),
    # A task has heard every answer when it can be cancelled; only a signal strikes in between.
    "a call forgets what its flow has not heard": (without_answers, "cancelled", "ownerless", ("threads",)),
    "an attempt runs a finished step again": (with_steps_repeated, "steps", "I9", BOTH),
}


@pytest.mark.parametrize(
    ("mutant", "name", "invariant", "colour"),
    [
        pytest.param(mutant, name, invariant, colour, id=f"{mistake}-{colour}")
        for mistake, (mutant, name, invariant, colours) in MISTAKES.items()
        for colour in colours
    ],
)
def test_a_mistake_between_the_function_and_the_lane_is_noticed(
    mutant: Any, name: str, invariant: str, colour: str
) -> None:
    suffix = "" if colour == "tasks" else f", {colour}"
    (world,) = (world for world in DECORATED if world.name == f"decorated, {name}{suffix}")
    with mutant():
        tally = every(world)
    assert [failing.invariant for failing in tally.failing] == [invariant]
