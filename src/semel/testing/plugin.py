"""Pytest fixtures: a store on a virtual clock, engines put on it, and a faulty broker.

Pytest finds them wherever semel is installed. Nothing of semel is loaded before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from semel.engine.async_engine import AsyncSemelBase
    from semel.engine.sync_engine import SyncSemelBase
    from semel.stores.memory import MemoryStore
    from semel.testing.broker import FaultyBroker
    from semel.testing.clock import VirtualClock


@pytest.fixture
def semel_clock() -> VirtualClock:
    """Both clocks of a test: give it to an engine as `clock=`; `semel_store` runs on it already."""
    from semel.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def semel_store(semel_clock: VirtualClock) -> MemoryStore:
    """An empty store in memory, whose time passes with `semel_clock`."""
    from semel.stores.memory import MemoryStore

    return MemoryStore(clock=semel_clock.store_clock)


@pytest.fixture
def semel_broker(semel_clock: VirtualClock) -> FaultyBroker:
    """A broker whose every event suffers every fault once; time passes on `semel_clock`."""
    from semel.testing.broker import FaultyBroker

    return FaultyBroker(semel_clock)


@pytest.fixture
def semel_override(
    semel_store: MemoryStore, semel_clock: VirtualClock
) -> Iterator[Callable[[SyncSemelBase | AsyncSemelBase], None]]:
    """Put an engine on `semel_store` and `semel_clock` until the test ends: `semel_override(shop.semel)`."""
    from contextlib import ExitStack

    from semel.testing.overriding import override

    with ExitStack() as stack:

        def put(semel: SyncSemelBase | AsyncSemelBase) -> None:
            stack.enter_context(override(semel, semel_store, clock=semel_clock))

        yield put
