"""Puts an engine on another store for the length of a test, with everything that was decorated or mounted with it.

Afterwards the engine has its own store, clock and connections again, whatever happened inside.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, cast

from semel.api import Place, open_store
from semel.engine.async_engine import AsyncEngine, AsyncSemelBase
from semel.engine.clock import Clock, RetryBudget
from semel.engine.engine import engine_of
from semel.engine.sync_engine import SyncEngine, SyncSemelBase
from semel.errors import UsageError

_FIELDS: Final = ("store", "clock", "retry_budget", "_left")
_CLOSED_WITHIN: Final = 10.0


class override:  # noqa: N801 - a context manager, used like a function
    """Inside, `semel` uses `store` and `clock`; `with` for tests that block, `async with` for those that are awaited.

    Args:
        semel: a `Semel` or `AsyncSemel` that code under test has at module level.
        store: a store, or what else `Semel` takes; `memory://` is one of its own.
        clock: a virtual clock; without it the engine keeps the one it has.
    """

    def __init__(self, semel: SyncSemelBase | AsyncSemelBase, store: Place, *, clock: Clock | None = None) -> None:
        if not isinstance(semel, SyncSemelBase | AsyncSemelBase):
            message = f"A {type(semel).__qualname__} is no Semel and no AsyncSemel; nothing was overridden."
            raise UsageError(message)
        self._engine = cast("SyncEngine | AsyncEngine", engine_of(semel))
        self._store = open_store(store)
        self._clock = clock
        self._saved: dict[str, Any] = {}
        self._runtimes: Any = None
        self._closing: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        engine: Any = self._engine
        self._saved = {name: getattr(engine, name) for name in _FIELDS if hasattr(engine, name)}
        engine.store = self._store
        engine.clock = self._clock or engine.clock
        engine.retry_budget = RetryBudget(engine.jitter, engine.limits.retry_budget)
        engine._left = []
        self._runtimes = engine.runtimes
        engine._use_runtimes(type(engine.runtimes)(engine._host()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(self._engine, SyncEngine):
                self._engine.close()
            else:
                self._close_loops(self._engine)
        finally:
            self._restore()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(self._engine, AsyncEngine):
                await self._engine.close()
        finally:
            self.__exit__(kind, error, trace)

    def _restore(self) -> None:
        for name, value in self._saved.items():
            setattr(self._engine, name, value)
        self._engine._use_runtimes(self._runtimes)

    def _close_loops(self, engine: AsyncEngine) -> None:
        """Let go of what each event loop has opened inside. One that is closed has nothing open any more."""
        for runtime in engine.runtimes.alive():
            loop = runtime.loop
            if loop.is_closed():
                continue
            if not loop.is_running():
                loop.run_until_complete(runtime.close())
            elif loop is _running_loop():
                self._closing.append(loop.create_task(runtime.close()))  # `async with` waits for it
            else:
                asyncio.run_coroutine_threadsafe(runtime.close(), loop).result(_CLOSED_WITHIN)
        if engine.runtimes.leases is not None:
            _run_apart(engine.runtimes.leases.close)


def _run_apart(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Wait for something to close although an event loop may be running in this thread."""
    thread = threading.Thread(target=lambda: asyncio.run(close()))
    thread.start()
    thread.join(_CLOSED_WITHIN)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
