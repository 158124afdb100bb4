"""Pytest fixtures: a store on a virtual clock, and engines put on it. Pytest finds them wherever semel is installed.

Nothing of semel is loaded before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from semel.engine.async_engine import AsyncSemelBase
    from semel.engine.sync_engine import SyncSemelBase
    from semel.stores.memory import MemoryStore
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
