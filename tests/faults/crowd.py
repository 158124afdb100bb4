"""Many callers of one engine, of either colour, who go on whatever becomes of the store; and what each of them met.

What always holds: callers are threads, also where the engine lives in an event loop: there each call is a task of it.
Only `StoreUnavailable` is met and lived with; any other error ends the test.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from semel import AsyncSemel, Semel
from semel.core.circuit import Limits
from semel.core.observer import Signal
from semel.engine.call_flow import Result
from semel.errors import StoreUnavailable
from tests.decorated import CallStyle, call
from tests.faults.users import Colour

LONG = 60.0


class Ears:
    """An observer that remembers what became of the store."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def observe(self, event: Signal) -> None:
        if event.kind in ("store_open", "store_closed"):
            self.changes.append(event.kind)


class Crowd:
    """One engine and its callers."""

    def __init__(self, store: Any, colour: Colour, limits: Limits, size: int, style: CallStyle = "run") -> None:
        self._style = style
        self.ears = Ears()
        self.goes_on = threading.Event()
        self.ended = 0
        self.ran_unrecorded = 0
        self._size = size
        self._name = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._leaving = False
        self._pool = ThreadPoolExecutor(size * 2)
        self._load: list[Future[None]] = []
        self._loop = asyncio.new_event_loop() if colour == "loop" else None
        make: Any = AsyncSemel if self._loop else Semel
        self.semel: Any = make(store, observer=self.ears, limits=limits)
        self._thread = threading.Thread(target=self._loop.run_forever) if self._loop else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        self.goes_on.set()
        self._pool.shutdown()
        if self._loop is None or self._thread is None:
            self.semel.close()
            return
        asyncio.run_coroutine_threadsafe(self.semel.close(), self._loop).result(LONG)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, key: str, handler: Callable[[], Any] = lambda: 7) -> Result[Any]:
        """One call."""
        if self._loop is None:
            result: Result[Any] = call(self._style, self.semel, key, handler, operation="charge")
            return result

        async def awaited() -> Any:
            return await asyncio.to_thread(handler)

        asked = call(self._style, self.semel, key, awaited, operation="charge")
        told: Future[Result[Any]] = asyncio.run_coroutine_threadsafe(asked, self._loop)
        return told.result()

    def begin(self, keys: list[str]) -> list[Future[Result[Any]]]:
        """Runs that stay under way until `goes_on` is set; gives them once every handler has begun."""
        begun = threading.Semaphore(0)

        def handler() -> str:
            begun.release()
            assert self.goes_on.wait(LONG)
            return "recorded"

        runs = [self._pool.submit(self.run, key, handler) for key in keys]
        for _ in keys:
            assert begun.acquire(timeout=LONG)
        return runs

    def press(self) -> None:
        """Callers with ever new keys, from now on."""
        self._load = [self._pool.submit(self._go_on) for _ in range(self._size)]

    def _go_on(self) -> None:
        while not self._leaving:
            try:
                self.run(f"load {self._name} {next(self._numbers)}")
            except StoreUnavailable as error:
                self.ran_unrecorded += error.ran
            else:
                self.ended += 1

    def refusals(self, count: int) -> list[StoreUnavailable]:
        """What so many calls are told that are not even sent; those that were are tries, and not counted."""
        told: list[StoreUnavailable] = []
        while len(told) < count:
            try:
                self.run(f"refused {self._name} {next(self._numbers)}")
            except StoreUnavailable as error:
                told += [] if error.asked else [error]
        return told

    def leave(self) -> None:
        """The load ends; an error nobody expected is raised here."""
        self._leaving = True
        for caller in self._load:
            caller.result(LONG)


def until(condition: Callable[[], object], what: str) -> None:
    """Look until it is so: what happens in other processes tells nobody."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {LONG} s"
        time.sleep(0.01)
