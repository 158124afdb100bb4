"""Callers of the simulation that go through decorated functions: in every schedule they do what the flow does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from semel import AsyncSemel, Semel
from semel.core.fingerprint import Fingerprints
from semel.engine.async_engine import AsyncCall
from semel.engine.sync_engine import SyncCall
from semel_lab.simulate import World, every
from semel_lab.simulate.world import DECORATED, FINGERPRINTS

pytestmark = pytest.mark.slow

NOT_HELD = "the call does not keep the lease"
NOT_COMPARED = "a decorated function compares nothing"


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """How often decorated functions of each colour are called."""
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
    ):
        yield entered


@pytest.mark.parametrize("world", DECORATED, ids=lambda world: world.name)
def test_a_decorated_function_does_in_every_schedule_what_the_flow_does(world: World) -> None:
    with counting() as entered:
        decorated = every(world)
    assert not decorated.failing, str(decorated.failing[0])
    assert decorated.complete
    assert entered[world.colour] >= decorated.schedules * 2, f"in {decorated.schedules} schedules: {entered}"
    flow = every(replace(world, calls="flow"))
    assert (decorated.schedules, decorated.seen) == (flow.schedules, flow.seen)


def test_both_colours_are_simulated() -> None:
    assert {world.colour for world in DECORATED} == {"tasks", "threads"}


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


@pytest.mark.parametrize("colour", ["tasks", "threads"])
@pytest.mark.parametrize(
    ("mutant", "name", "invariant"),
    [
        (without_leases, "long handler", "told"),
        (without_fingerprints, "two fingerprints", "I5"),
    ],
    ids=[NOT_HELD, NOT_COMPARED],
)
def test_a_mistake_between_the_function_and_the_lane_is_noticed(
    mutant: Any, name: str, invariant: str, colour: str
) -> None:
    (world,) = (world for world in DECORATED if name in world.name and world.colour == colour)
    with mutant():
        tally = every(world)
    assert [failing.invariant for failing in tally.failing] == [invariant]
