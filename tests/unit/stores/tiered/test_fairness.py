"""Answers that are at hand leave the event loop to others every so often."""

import asyncio

from semel import AsyncSemel
from semel.stores.cache import Cache


async def seven() -> int:
    return 7


def test_who_replays_from_the_process_again_and_again_lets_others_have_their_turn() -> None:
    async def main() -> int:
        async with AsyncSemel("memory://", cache=Cache(local=10, local_for=3600)) as semel:
            turns = 0
            ends = asyncio.Event()

            async def other() -> None:
                nonlocal turns
                while not ends.is_set():
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(2600):
                await semel.run("k", seven, operation="pay", fingerprint=None)
            ends.set()
            await task
            return turns

    assert asyncio.run(main()) >= 9
