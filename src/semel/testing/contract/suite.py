"""The base of the suite: its fixtures, and what turns a scenario into a test."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.testing.clock import VirtualClock
from semel.testing.contract.api_client import CallStyle
from semel.testing.contract.engine_adapters import EngineKind
from semel.testing.contract.world import MakeStore, World

_LONGEST = 100.0

only_async = pytest.mark.parametrize("colour", ["async"])
only_sync = pytest.mark.parametrize("colour", ["sync"])
only_by_run = pytest.mark.parametrize("call_style", ["run"])


class Contract:
    """Scenarios written once, as coroutines that take a `world`; each is a test per colour and style of calling."""

    def __init_subclass__(cls, *, calls: bool = True, **settings: Any) -> None:
        """Turn the scenarios of a topic into tests; `calls=False` for one that sends operations and calls no engine."""
        super().__init_subclass__(**settings)
        _refuse_shadowing(cls)
        for name, scenario in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(scenario):
                setattr(cls, name, _as_test(scenario) if calls else only_by_run(_as_test(scenario)))

    @pytest.fixture(params=["sync", "async"])
    def colour(self, request: pytest.FixtureRequest) -> EngineKind:
        """Which engine is driven: `Semel` or `AsyncSemel`."""
        name: EngineKind = request.param
        return name

    @pytest.fixture(params=["run", "decorated"])
    def call_style(self, request: pytest.FixtureRequest) -> CallStyle:
        """How it is called: by `run`, or through functions and methods decorated with `once`."""
        style: CallStyle = request.param
        return style

    @pytest.fixture
    def clock(self) -> VirtualClock:
        """The one clock of a scenario; give its `store_clock` to the store."""
        return VirtualClock()

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """The one fixture to write: gives a store on the same, at first empty, records each time it is called."""
        message = "Override make_store: a fixture that returns a function, which returns a store on fresh records."
        raise NotImplementedError(message)

    @pytest.fixture
    def world(self, colour: EngineKind, clock: VirtualClock, make_store: MakeStore, call_style: CallStyle) -> World:
        """What a scenario plays in."""
        return World(colour, clock, make_store, call_style)


def _refuse_shadowing(cls: type) -> None:
    """Two topics with a test of the same name would silently lose one of the two; users may override at will."""
    topics = [base for base in cls.__mro__ if base.__module__.startswith(f"{__package__}.")]
    names = Counter(name for topic in topics for name in vars(topic) if name.startswith("test_"))
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        message = f"{cls.__name__} would hide a test of the same name: {', '.join(twice)}"
        raise TypeError(message)


def _as_test(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(scenario)
    def test(self: Contract, world: World, **arguments: Any) -> None:
        asyncio.run(_played(scenario(self, world, **arguments), world))

    return test


async def _played(scenario: Coroutine[Any, Any, None], world: World) -> None:
    try:
        async with asyncio.timeout(_LONGEST):
            await scenario
    finally:
        await world.close()
