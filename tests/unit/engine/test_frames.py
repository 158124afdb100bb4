"""How long the way of one call is: the Python frames that it enters in semel itself, once everything is warm.

The figures are a ratchet. A change that makes a way longer has to give a reason here; one that makes it shorter writes
the new figure down. Frames are counted on one version of Python alone, because another one inlines other things.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

import semel
from semel import AsyncSemel, Semel
from tests.unit.http.driver import App, Driver, keyed, scope_of

PACKAGE = str(Path(semel.__file__).parent)
WARM = 5
TIMES = 5
SLACK = 3
"""By how many frames a way may be shorter than its figure before the figure has to be lowered."""

FRAMES = {
    "sync sqlite first": 184,
    "sync sqlite replay": 88,
    "sync memory first": 138,
    "sync memory replay": 75,
    "async sqlite first": 170,
    "async sqlite replay": 84,
    "async memory first": 128,
    "async memory replay": 70,
    "http sqlite first": 276,
    "http sqlite replay": 142,
    "http memory first": 228,
    "http memory replay": 128,
}

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="frames are counted on Python 3.11: other versions inline other things"
)


class Counter:
    """Counts the frames of semel that this thread enters."""

    def __init__(self) -> None:
        self.frames = 0

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.frames += 1

    def __enter__(self) -> Self:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def count_frames(call: Callable[[str], Any]) -> dict[str, int]:
    """The frames of a first run and of its replay: the fewest of some, because background work may come between."""
    keys = (f"o-{number}" for number in count())
    for _, key in zip(range(WARM), keys, strict=False):
        call(key)
        call(key)
    first: list[int] = []
    replay: list[int] = []
    for _, key in zip(range(TIMES), keys, strict=False):
        for counted in (first, replay):
            with Counter() as counter:
                call(key)
            counted.append(counter.frames)
    return {"first": min(first), "replay": min(replay)}


async def count_awaited(call: Callable[[str], Awaitable[Any]]) -> dict[str, int]:
    """The same for what is awaited."""
    keys = (f"o-{number}" for number in count())
    for _, key in zip(range(WARM), keys, strict=False):
        await call(key)
        await call(key)
    first: list[int] = []
    replay: list[int] = []
    for _, key in zip(range(TIMES), keys, strict=False):
        for counted in (first, replay):
            with Counter() as counter:
                await call(key)
            counted.append(counter.frames)
    return {"first": min(first), "replay": min(replay)}


def count_sync(url: str) -> dict[str, int]:
    with Semel(url) as engine:

        @engine.once(key="order", scope=semel.SHARED)
        def charge(order: str, amount: int) -> str:
            return "paid"

        return count_frames(lambda key: charge(key, 1250))


def count_async(url: str) -> dict[str, int]:
    async def main() -> dict[str, int]:
        async with AsyncSemel(url) as engine:

            @engine.once(key="order", scope=semel.SHARED)
            async def charge(order: str, amount: int) -> str:
                return "paid"

            return await count_awaited(lambda key: charge(key, 1250))

    return asyncio.run(main())


def count_http(url: str) -> dict[str, int]:
    async def main() -> dict[str, int]:
        async with AsyncSemel(url) as engine:
            app = keyed(App(), engine)

            async def post(key: str) -> None:
                driver = Driver()
                await app(scope_of(key=key), driver.receive, driver.send)
                assert driver.status == 201, driver.sent

            return await count_awaited(post)

    return asyncio.run(main())


COUNTED = {"sync": count_sync, "async": count_async, "http": count_http}


@pytest.mark.parametrize("store", ["sqlite", "memory"])
@pytest.mark.parametrize("kind", COUNTED)
def test_a_call_enters_no_more_frames_than_it_did(kind: str, store: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'semel.db'}" if store == "sqlite" else "memory://"
    counted = {f"{kind} {store} {which}": frames for which, frames in COUNTED[kind](url).items()}
    recorded = {name: FRAMES[name] for name in counted}
    longer = {name: frames for name, frames in counted.items() if frames > recorded[name]}
    assert longer == {}, (
        f"{counted} is longer than the recorded {recorded}: make the way shorter, or say here why it must be longer"
    )
    shorter = {name: frames for name, frames in counted.items() if frames < recorded[name] - SLACK}
    assert shorter == {}, f"{counted} is shorter than the recorded {recorded}: write the new figures down"
