"""A process that works on a batch until it is interrupted: `python -m tests.batch.interrupted URL KIND`.

It says so when its first two items have begun; they end when the interrupt has come, or are cut off by it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from types import FrameType

from semel import AsyncSemel, Semel
from semel.batch import Batches, Item


def run_in_threads(url: str) -> None:
    """Work in threads."""
    interrupted, both = threading.Event(), threading.Barrier(2)

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    def pay(item: Item) -> None:
        del item
        if not interrupted.is_set():
            if both.wait(30) == 0:
                print("begun", flush=True)
            interrupted.wait(30)

    signal.signal(signal.SIGINT, interrupt)
    with Semel(url) as semel:
        Batches(semel).get("b").run(pay, concurrency=2)


async def run_in_tasks(url: str) -> None:
    """Work in tasks."""
    begun = 0

    async def pay(item: Item) -> None:
        del item
        nonlocal begun
        begun += 1
        if begun == 2:
            print("begun", flush=True)
        await asyncio.Event().wait()

    async with AsyncSemel(url) as semel:
        batch = await Batches(semel).get("b")
        await batch.run(pay, concurrency=2)


if __name__ == "__main__":
    if sys.argv[2] == "sync":
        run_in_threads(sys.argv[1])
    else:
        asyncio.run(run_in_tasks(sys.argv[1]))
