"""One `AsyncSemel`, two event loops: each has its own lane and keeper, and the records are the same."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel
from semel.core.store import Store
from semel.stores.memory import MemoryStore
from semel.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "semel.db")


def in_loops(*mains: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Run each in a thread and a loop of its own, all at once."""
    results: list[Any] = [None] * len(mains)

    def play(place: int, main: Callable[[], Awaitable[Any]]) -> None:
        async def awaited() -> Any:
            return await main()

        try:
            results[place] = asyncio.run(awaited())
        except Exception as error:  # noqa: BLE001 - compared by the test
            results[place] = error

    threads = [threading.Thread(target=play, args=(place, main)) for place, main in enumerate(mains)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_both_loops_run_their_own_keys(store: Store) -> None:
    semel = AsyncSemel(store)

    def main(name: str) -> Callable[[], Awaitable[Any]]:
        async def play() -> Any:
            async def handler() -> str:
                return name

            async with semel:
                return [
                    (await semel.run(f"{name}{n}", handler, operation="pay", fingerprint=None)).value for n in range(20)
                ]

        return play

    assert in_loops(main("a"), main("b")) == [["a"] * 20, ["b"] * 20]


def test_duplicates_in_two_loops_run_once(store: Store) -> None:
    semel = AsyncSemel(store)
    ran: list[int] = []
    both = threading.Barrier(2)

    async def play() -> Any:
        async def handler() -> str:
            ran.append(1)
            await asyncio.sleep(0)
            return "value"

        async with semel:
            await asyncio.to_thread(both.wait, 30)
            calls = [semel.run("k", handler, operation="pay", fingerprint=None) for _ in range(20)]
            return {result.value for result in await asyncio.gather(*calls)}

    assert in_loops(play, play) == [{"value"}, {"value"}]
    assert len(ran) == 1


def test_a_waiter_in_one_loop_gets_the_value_of_an_owner_in_another(store: Store) -> None:
    semel = AsyncSemel(store)
    runs, goes_on = threading.Event(), threading.Event()

    async def own() -> Any:
        async def handler() -> str:
            runs.set()
            await asyncio.to_thread(goes_on.wait, 30)
            return "owner"

        async with semel:
            return (await semel.run("k", handler, operation="pay", fingerprint=None)).value

    async def wait() -> Any:
        async def handler() -> str:
            return "waiter"

        async with semel:
            await asyncio.to_thread(runs.wait, 30)
            waiting = asyncio.ensure_future(semel.run("k", handler, operation="pay", fingerprint=None))
            await asyncio.sleep(0)
            goes_on.set()
            return (await waiting).value

    assert in_loops(own, wait) == ["owner", "owner"]


def test_one_loop_after_the_other(store: Store) -> None:
    semel = AsyncSemel(store)

    async def play() -> bool:
        async def handler() -> str:
            return "value"

        result = await semel.run("k", handler, operation="pay", fingerprint=None)
        await semel.close()
        return result.replayed

    assert [asyncio.run(play()) for _ in range(3)] == [False, True, True]


def test_closing_in_one_loop_leaves_the_other_alone(store: Store) -> None:
    semel = AsyncSemel(store)
    runs, goes_on = threading.Event(), threading.Event()

    async def own() -> Any:
        async def handler() -> str:
            runs.set()
            await asyncio.to_thread(goes_on.wait, 30)
            return "value"

        async with semel:
            return (await semel.run("k", handler, operation="pay", fingerprint=None)).value

    async def close() -> Any:
        async def handler() -> str:
            return "other"

        await asyncio.to_thread(runs.wait, 30)
        value = (await semel.run("other", handler, operation="pay", fingerprint=None)).value
        await semel.close()
        goes_on.set()
        return value

    assert in_loops(own, close) == ["value", "other"]
