"""The shell for event loops: performs what flows ask for, and the attempt as its handler sees it.

`sync_shell.py` is its twin. What always holds: the handler runs in the caller's own task and context, as the current
attempt, its lease kept alive until the call is settled. Cancelling that task cancels the handler; what has to be
written down after that is written by a task of its own, and a thread the handler started keeps the lease to its end.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, Protocol, TypeVar

from semel.core.flow import Begin, Flow, arun
from semel.core.operations import Operation
from semel.core.policy import Policy
from semel.core.store import AsyncJoined
from semel.engine import call_errors, context
from semel.engine.async_runtime import Runtime
from semel.engine.attempt import AttemptBase, AttemptState, refuse_plain_step
from semel.engine.call import POLL, Host, ShellBase
from semel.engine.call_flow import Once, step
from semel.engine.decorator import gave_wrong_colour, is_plainly_sync, wrong_colour
from semel.engine.effects import Effect, Promoted, TimedOut

P = ParamSpec("P")
T = TypeVar("T")


class AsyncHost(Host, Protocol):
    """What this shell needs of its engine."""

    def runtime(self) -> Runtime:
        """The moving parts of this event loop."""


class AsyncAttempt(AttemptBase):
    """The attempt whose handler is running, from the inside."""

    _engine: AsyncHost

    async def step(
        self, name: str, function: Callable[P, Awaitable[T]], *args: Any, within: Any = None, **kwargs: Any
    ) -> T:
        """Run `function` once over all attempts of this key; with `within`, its record commits with its effect.

        Raises:
            LeaseLost: this attempt is no longer the owner.
            StepsChanged: the steps are not those of the attempt before.
            UsageError: a plain step inside `within`, or a function of the wrong colour.
        """
        call = functools.partial(function, *args, **kwargs)
        return await _step(self._engine, self._state, name, call, within=within, max_result=self._max_result)


async def _step(
    engine: AsyncHost,
    state: AttemptState,
    name: str,
    function: functools.partial[Awaitable[T]],
    *,
    within: Any,
    max_result: int,
) -> T:
    if is_plainly_sync(function.func):
        raise wrong_colour(function.func, wanted="async def")
    refuse_plain_step(name, state, within)
    joined = None if within is None else engine.store.async_join(within)
    shape = engine.shapes.of(function.func)
    flow: Flow[T] = step(state, name, shape, max_result, joined=joined is not None, resends=engine.resends)
    with context.joining(engine.store.name, joined), context.in_step(name):
        return await arun(flow, Shell(engine, joined, function).perform)


class Shell(ShellBase):
    """Performs what flows ask for, in the task of its caller."""

    _engine: AsyncHost
    _joined: AsyncJoined | None
    _threads: Sequence[Future[Any]] = ()

    async def carry(
        self, once: Once, flow: Flow[Any] | None = None, begin: Begin = next, stop: tuple[type, ...] = ()
    ) -> Any:
        """Carry a call through to its end, or to where it stops; where it is cut off, leave nothing half done."""
        try:
            found = await arun(flow or once.flow(), self.perform, begin, stop)
        except Exception:
            self.done()
            raise
        except BaseException as error:
            await self.abandon(error)
            raise
        if not isinstance(found, Effect):
            self.done()
        return found

    def _operate(self, operation: Operation) -> Awaitable[Any]:
        if self._joined is None:
            return self._engine.runtime().perform(operation)
        return self._operate_joined(self._joined, operation)

    async def _operate_joined(self, joined: AsyncJoined, operation: Operation) -> Any:
        answer = (await joined.perform(self._engine.store.plan([operation], joined=True)))[0]
        if isinstance(answer, Exception):
            raise call_errors.joined(answer)
        return answer

    async def _ask(self, attempt: AttemptState, policy: Policy) -> Any:
        hook = policy.reconcile
        assert hook is not None  # noqa: S101 - the policy was checked
        return await self._inside(attempt, functools.partial(_answered, hook, self._attempt(attempt, policy)), policy)

    def _called(self, function: Callable[[], Any] | None) -> Awaitable[Any]:
        assert function is not None  # noqa: S101 - flows that call have something to call
        value = function()
        if not inspect.isawaitable(value):
            raise gave_wrong_colour(function, value, wanted="async def")
        return value

    def _attempt(self, state: AttemptState, policy: Policy) -> AsyncAttempt:
        return AsyncAttempt(self._engine, state, policy.max_result)

    async def _inside(self, state: AttemptState, function: Callable[[], Any] | None, policy: Policy) -> Any:
        """Call `function` as the current attempt, its lease kept alive until the call is settled."""
        token = self.entered(state, policy)
        try:
            return await self._called(function)
        except asyncio.CancelledError:
            self._threads = context.threads_of(state)
            raise
        finally:
            self.left(state, token)

    async def _wait(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            return self._take_news(await self._engine.runtime().wait(digest, until, self._waiter))
        if clock.monotonic() >= until:
            return TimedOut()
        await self._pause(POLL)
        return Promoted()

    async def _pause(self, seconds: float) -> None:
        clock = self._engine.clock
        await clock.arest(asyncio.Event(), clock.monotonic() + seconds)

    async def abandon(self, error: BaseException) -> None:
        """The caller was cancelled: write down what is known, in a task that no further cancellation reaches."""
        assert self._once is not None  # noqa: S101 - only a call is abandoned
        if self._joined is not None:
            await self._clean_up(error)  # the transaction is the caller's, and so is its end
            return
        task = self._engine.runtime().aside(self._clean_up(error))
        if not self._threads:
            await asyncio.shield(task)

    async def _clean_up(self, error: BaseException) -> None:
        assert self._once is not None  # noqa: S101 - only a call is abandoned
        try:
            for thread in self._threads:
                # A thread goes on although its handler was cancelled: until it ends the lease is kept.
                await _gone(thread)
            await arun(self._once.abandoned(error), self.perform)
        finally:
            self.done()


async def _gone(thread: Future[Any]) -> None:
    """Wait until a thread has done its work."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    thread.add_done_callback(lambda _: _call_in(loop, ended.set))
    await ended.wait()


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


async def _answered(hook: Callable[[Any], Any], attempt: AsyncAttempt) -> Any:
    """What a reconcile hook of either colour says."""
    verdict = hook(attempt)
    return await verdict if inspect.isawaitable(verdict) else verdict
