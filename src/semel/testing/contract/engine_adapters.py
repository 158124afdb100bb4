"""Adapters for sync and async engines: starting calls, adapting handlers, telling whether background work is idle.

Scenarios are coroutines on the loop of the test. With the async engine everything happens on that loop. With the sync
one each call has a thread of its own: a plain handler runs there; a handler written as a coroutine (because it has to
stop at a gate) runs on the loop, in the context of the thread that blocks for it.

The engine under test is the real one, called the way its users call it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
import typing
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from typing import Any, Literal, cast

from semel.api import AsyncSemel, Semel
from semel.core.record import Record
from semel.core.store import Answers, AsyncDriver, Driver, Plan, Store
from semel.engine.engine import engine_of
from semel.testing.contract.calls import Call, current_call

EngineKind = Literal["sync", "async"]
Wake = threading.Event | asyncio.Event


class EngineAdapter:
    """How sync or async engines are made, called and inspected.

    Args:
        name: "async" for `AsyncSemel` on the loop of the test, "sync" for `Semel` with a thread for each call.
    """

    def __init__(self, name: EngineKind) -> None:
        self.name = name
        self._awaits = name == "async"

    def engine(self, store: Store, **settings: Any) -> Any:
        """An engine of this colour."""
        return (AsyncSemel if self._awaits else Semel)(store, **settings)

    def adapt(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, written in either colour, as this one's users would write it."""
        if inspect.iscoroutinefunction(function) is self._awaits:
            return function
        return _looking_like(function, _awaited(function) if self._awaits else _blocking(function))

    def with_arguments(self, handler: Callable[[], Any], *, as_method: bool) -> Callable[..., Any]:
        """A new function that takes the arguments of a call and runs `handler`, or one that is to be a method."""

        def function(key: Any, scope: Any, asked: Any) -> Any:
            return handler()

        async def async_function(key: Any, scope: Any, asked: Any) -> Any:
            return await handler()

        def method(self: object, key: Any, scope: Any, asked: Any) -> Any:
            return handler()

        async def async_method(self: object, key: Any, scope: Any, asked: Any) -> Any:
            return await handler()

        if self._awaits:
            return async_method if as_method else async_function
        return method if as_method else function

    def start(self, call: Call, method: Callable[[], Any]) -> None:
        """Let `method` of the engine run as `call`."""
        context = contextvars.copy_context()
        context.run(current_call.set, call)
        if self._awaits:
            call.follow(asyncio.get_running_loop().create_task(_called(method), context=context))
        else:
            _in_thread(functools.partial(context.run, method), call.end)

    async def step(self, attempt: Any, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A step of an attempt, from inside a handler written as a coroutine."""
        return await self._call(functools.partial(attempt.step, name, self.adapt(function), *args))

    async def records(self, engine: Any, query: dict[str, Any]) -> list[Record]:
        """Every record asked for."""
        if self._awaits:
            return [record async for record in engine.records(**query)]
        found: list[Record] = await in_thread(lambda: list(engine.records(**query)))
        return found

    def driver(self, store: Store) -> Driver | AsyncDriver:
        """A driver of this colour."""
        return store.async_driver() if self._awaits else store.driver()

    async def perform(self, driver: Driver | AsyncDriver, plan: Plan) -> Answers | Exception:
        """Have a plan carried out by a driver, without any engine."""
        (reply,) = await self._call(functools.partial(driver.perform, [plan]))
        return cast("Answers | Exception", reply)

    async def close(self, closing: Any) -> None:
        """Close an engine or a driver."""
        await self._call(closing.close)

    async def _call(self, method: Callable[[], Any]) -> Any:
        return await (method() if self._awaits else in_thread(method))

    def waiters(self, engine: Any) -> int:
        """How many callers wait for somebody else's key in this engine."""
        count = 0
        for runtime in engine_of(engine).runtimes.alive():
            with nullcontext() if self._awaits else runtime._watch.lock:
                count += _waiting(runtime)
        return count

    def keepers(self, engine: Any) -> list[Wake]:
        """The wake-ups of the keepers that are alive in this engine."""
        wakes: list[Wake] = [wake for runtime in engine_of(engine).runtimes.alive() for wake in runtime.wakes()]
        leases = engine_of(engine).runtimes.leases if self._awaits else None
        return wakes if leases is None else [*wakes, *leases.wakes()]


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    async def adapted(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return adapted


def _blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    loop = asyncio.get_running_loop()

    def adapted(*args: Any, **kwargs: Any) -> Any:
        return _on_loop(loop, functools.partial(function, *args, **kwargs))

    return adapted


async def _called(method: Callable[[], Any]) -> Any:
    """Call and await `method` inside the task, so that a refusal before the first `await` is an end of the call too."""
    return await method()


def _waiting(runtime: Any) -> int:
    return sum(len(waiters) for waiters in runtime.background.waiting._keys.values())


def _looking_like(function: Callable[..., Any], adapted: Callable[..., Any]) -> Callable[..., Any]:
    """`adapted` with the signature and annotations of `function`, but sync or async as it is."""
    adapted.__name__, adapted.__qualname__ = function.__name__, function.__qualname__
    adapted.__module__ = function.__module__
    adapted.__annotations__ = typing.get_type_hints(function)
    adapted.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # read by inspect.signature
    return adapted


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call `function` in a thread of its own, in this context, and await what it gives."""
    ended = asyncio.get_running_loop().create_future()

    def end(result: Any, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    _in_thread(functools.partial(contextvars.copy_context().run, function), end)
    return await ended


def _in_thread(function: Callable[[], Any], end: Callable[[Any, BaseException | None], None]) -> None:
    loop = asyncio.get_running_loop()

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as problem:  # noqa: BLE001 - it is raised in the waiting caller
            error = problem
        with suppress(RuntimeError):  # the test is over and its loop closed; nobody is left to tell
            loop.call_soon_threadsafe(end, result, error)

    threading.Thread(target=work, name="semel-contract", daemon=True).start()


def _on_loop(loop: asyncio.AbstractEventLoop, body: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on the loop, in the context of this thread, and block for it."""
    context = contextvars.copy_context()
    ended: Future[Any] = Future()

    def begin() -> None:
        loop.create_task(body(), context=context).add_done_callback(functools.partial(_hand_over, ended))

    loop.call_soon_threadsafe(begin)
    return ended.result()


def _hand_over(ended: Future[Any], task: asyncio.Task[Any]) -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        ended.set_exception(error)
    else:
        ended.set_result(task.result())
