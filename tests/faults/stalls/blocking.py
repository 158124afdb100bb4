"""A process with one event loop: one operation awaits, another blocks the loop until the test says go on.

`python -m tests.faults.stalls.blocking STYLE STORE URL [CACHE]` prints `blocked` once the loop stands still, waits for
a line on its standard input, and ends with one line of JSON: the values of both operations, and whether the first one
was told that it lost its lease.
"""

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any, cast

from semel import AsyncSemel, Policy
from semel.errors import LeaseLost
from tests.decorated import CallStyle, call

LEASE = timedelta(seconds=6)


def store_of(kind: str, url: str) -> Any:
    """What an engine is given: the URL, or what a caller has made of it."""
    if kind != "sqlalchemy":
        return url
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))


async def main(style: CallStyle, kind: str, url: str, cache: str | None = None) -> dict[str, Any]:
    """Run both operations to their end, called by `run` or through decorated functions."""
    place = store_of(kind, url)
    semel = AsyncSemel(place, cache=cache, policy=Policy(lease_for=LEASE))
    running, go_on = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def waits() -> str:
        running.set()
        await go_on.wait()
        try:
            return f"attempt {semel.current().number}"
        except LeaseLost as error:
            told.append(str(error))
            raise

    async def blocks() -> str:
        print("blocked", flush=True)
        sys.stdin.readline()  # in the event loop, on purpose
        return "went on"

    async with semel:
        other = asyncio.ensure_future(call(style, semel, "waits", waits, operation="stall"))
        await running.wait()
        blocked = (await call(style, semel, "blocks", blocks, operation="stall")).value
        go_on.set()
        found = await asyncio.gather(other, return_exceptions=True)
    if kind == "sqlalchemy":
        await place.dispose()
    value = repr(found[0]) if isinstance(found[0], BaseException) else found[0].value
    return {"waits": value, "blocks": blocked, "told": told}


if __name__ == "__main__":
    _, style, *place = sys.argv
    print(json.dumps(asyncio.run(main(cast("CallStyle", style), *place))), flush=True)
