"""The thread that renews leases: there when it is needed, gone when it is not, and short calls pay no connection."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.core.operations import Renew
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock
from semel.testing.contract.instrumented_store import InstrumentedStore

LEASE = 3.0
POLICY = Policy(lease_for=timedelta(seconds=LEASE))


class Counted(InstrumentedStore):
    """A store that counts the drivers that were made for it."""

    drivers = 0

    def driver(self) -> Any:
        self.drivers += 1
        return super().driver()

    def async_driver(self) -> Any:
        self.drivers += 1
        return super().async_driver()


class Scene:
    """An engine of each colour on one store and a virtual clock, and the threads they have."""

    def __init__(self) -> None:
        self.before = set(threading.enumerate())
        self.clock = VirtualClock()
        self.store = Counted(MemoryStore(clock=self.clock.store_clock))

    def threads(self) -> list[str]:
        """The names of the threads that renew, as far as this scene began them."""
        return [one.name for one in threading.enumerate() if one.name == "semel-leases" and one not in self.before]

    def renewed_once(self) -> None:
        """Let a third of the lease pass, and wait until it was renewed."""
        sent = self.store.count(Renew)
        wait_until(lambda: self.clock.next_due() is not None)
        self.clock.advance(LEASE / 3)
        wait_until(lambda: self.store.count(Renew) > sent)


def wait_until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, "waited for a minute in vain"
        time.sleep(0.001)


@pytest.fixture
def scene() -> Scene:
    return Scene()


Run = Callable[[Scene, Callable[[], None]], None]


def with_threads(scene: Scene, handler: Callable[[], None]) -> None:
    with Semel(scene.store, policy=POLICY, clock=scene.clock) as semel:
        semel.run("k", handler, operation="pay", fingerprint=None)


def with_a_loop(scene: Scene, handler: Callable[[], None]) -> None:
    async def awaited() -> None:
        handler()

    async def main() -> None:
        async with AsyncSemel(scene.store, policy=POLICY, clock=scene.clock) as semel:
            await semel.run("k", awaited, operation="pay", fingerprint=None)

    asyncio.run(main())


both = pytest.mark.parametrize("run", [with_threads, with_a_loop])


@both
def test_a_short_call_opens_no_connection_for_renewals(scene: Scene, run: Run) -> None:
    run(scene, lambda: None)
    assert scene.store.drivers == 1


@both
def test_the_first_renewal_opens_one_connection_for_all(scene: Scene, run: Run) -> None:
    def handler() -> None:
        for _ in range(4):
            scene.renewed_once()

    run(scene, handler)
    assert (scene.store.drivers, scene.store.count(Renew)) == (2, 4)


@both
def test_the_thread_is_gone_when_the_engine_is_closed(scene: Scene, run: Run) -> None:
    seen: list[list[str]] = []

    def handler() -> None:
        scene.renewed_once()
        seen.append(scene.threads())

    run(scene, handler)
    assert seen == [["semel-leases"]]
    assert scene.threads() == []


def without_closing_threads(scene: Scene) -> None:
    Semel(scene.store, policy=POLICY, clock=scene.clock).run("k", lambda: None, operation="pay", fingerprint=None)


def without_closing_the_loops(scene: Scene) -> None:
    async def handler() -> None:
        pass

    async def main() -> None:
        await AsyncSemel(scene.store, policy=POLICY, clock=scene.clock).run(
            "k", handler, operation="pay", fingerprint=None
        )

    asyncio.run(main())


@pytest.mark.parametrize("run", [without_closing_threads, without_closing_the_loops])
def test_the_thread_of_an_engine_that_nobody_closes_ends_when_nothing_runs(
    scene: Scene, run: Callable[[Scene], None]
) -> None:
    run(scene)
    assert scene.threads() == ["semel-leases"]
    for _ in range(int(LEASE) + 1):
        wait_until(lambda: scene.clock.next_due() is not None or not scene.threads())
        scene.clock.advance(1.0)
    wait_until(lambda: not scene.threads())


def test_event_loops_at_the_same_time_share_the_thread(scene: Scene) -> None:
    semel = AsyncSemel(scene.store, policy=POLICY, clock=scene.clock)
    both_run, done = threading.Barrier(3), threading.Event()

    def loop(key: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def handler() -> None:
            await asyncio.to_thread(both_run.wait, 60)
            await asyncio.to_thread(done.wait, 60)

        async def main() -> None:
            async with semel:
                await semel.run(key, handler, operation="pay", fingerprint=None)

        return main

    loops = [threading.Thread(target=lambda main: asyncio.run(main()), args=(loop(key),)) for key in ("a", "b")]
    for thread in loops:
        thread.start()
    both_run.wait(60)
    scene.renewed_once()
    try:
        assert scene.threads() == ["semel-leases"]
        assert {len(list_) for list_ in scene.store.lists(Renew)} == {2}, "the loops' leases did not go as one list"
    finally:
        done.set()
        for thread in loops:
            thread.join(60)


def test_an_engine_that_was_closed_renews_again_when_it_is_used_again(scene: Scene) -> None:
    semel = AsyncSemel(scene.store, policy=POLICY, clock=scene.clock)

    async def handler() -> None:
        scene.renewed_once()

    async def main(key: str) -> None:
        async with semel:
            await semel.run(key, handler, operation="pay", fingerprint=None)

    for key in ("a", "b"):
        asyncio.run(main(key))
    assert scene.store.count(Renew) == 2
