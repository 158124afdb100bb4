"""The engine for event loops: awaited calls. A thin shell around the flows; `sync.py` is its twin.

What always holds: an event loop has one lane, one keeper task and one driver, made on first use and never shared with
another loop or a fork. The handler runs in the caller's own task and context; cancelling that task cancels it, and
what has to be written down after that is written by a task of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import weakref
from concurrent.futures import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from semel.core import codec
from semel.core.flow import Flow, arun
from semel.core.key import SHARED, Key
from semel.core.operations import Operation
from semel.core.outcome import Resolution
from semel.core.policy import Policy
from semel.core.record import About, Record
from semel.core.store import AsyncJoined
from semel.engine import administration, context, raising
from semel.engine.administration import SweepReport
from semel.engine.attempt import AttemptBase, AttemptState
from semel.engine.colourless import (
    EngineBase,
    Known,
    gave_wrong_colour,
    is_async,
    is_plainly_sync,
    query_of,
    refuse_generator,
    wrong_colour,
)
from semel.engine.effects import Apart, Ask, Call, CallStep, Effect, Pause, Promoted, TimedOut, Wait
from semel.engine.flows import Once, step
from semel.engine.once import AboutRule, KeyRule, Rules, ScopeRule, rules_of, shape_of_result
from semel.engine.request import Request, Result
from semel.engine.aio_runtime import Runtime
from semel.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
_POLL = 0.05


class AsyncAttempt(AttemptBase):
    """The attempt whose handler is running, from the inside."""

    _engine: AsyncEngine

    async def step(self, name: str, function: Callable[P, Awaitable[T]], *args: Any, within: Any = None, **kwargs: Any) -> T:
        """Run `function` once over all attempts of this key; with `within`, its record commits with its effect.

        Raises:
            LeaseLost: this attempt is no longer the owner.
            StepsChanged: the steps are not those of the attempt before.
            UsageError: a plain step inside `within`, or a function of the wrong colour.
        """
        return await self._engine._step(self._state, name, functools.partial(function, *args, **kwargs), within, self._max_result)


class AsyncOnceFunction(Generic[P, T]):
    """A function that runs once per key. Call it for the value, `.result` for all that is known of the call."""

    def __init__(self, engine: AsyncEngine, function: Callable[P, Awaitable[T]], rules: Rules) -> None:
        functools.update_wrapper(self, function)
        self._engine = engine
        self._function = function
        self.rules = rules

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return (await self.result(*args, **kwargs)).value

    async def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        request = self.rules.request(args, kwargs)
        return await self._engine._once(request, functools.partial(self._function, *args, **kwargs))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _bound(self, instance)


def _bound(function: AsyncOnceFunction[Any, T], instance: Any) -> Any:
    method = functools.partial(function.__call__, instance)
    method.result = functools.partial(function.result, instance)  # type: ignore[attr-defined]  # a partial takes attributes
    return method


class AsyncWithin:
    """The engine inside a transaction of the caller: as a context, or for one call."""

    def __init__(self, engine: AsyncEngine, connection: Any) -> None:
        self._engine = engine
        self.joined = engine.store.async_join(connection)
        self._tokens: list[Any] = []

    async def __aenter__(self) -> Self:
        outer = context.current_membership.get()
        member = context.Membership(self._engine.store.name, self.joined, outer)
        self._tokens.append(context.current_membership.set(member))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.current_membership.reset(self._tokens.pop())

    async def run(self, key: Any, handler: Callable[[], Awaitable[T]], **settings: Any) -> Result[T]:
        """One call inside the transaction; arguments as for `Semel.run`."""
        async with self:
            return await self._engine.run(key, handler, **settings)


class AsyncEngine(EngineBase):
    """Makes operations happen once, for code that calls and waits."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = weakref.WeakKeyDictionary()
        self._latest: Runtime | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of this loop's connections and keeper. Using the engine again opens them again."""
        self._latest = None
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None and made.pid == os.getpid():
            await made.close()

    def _runtime(self) -> Runtime:
        loop = asyncio.get_running_loop()
        latest = self._latest
        if latest is not None and latest.loop is loop and latest.pid == os.getpid():
            return latest
        made = self._made.get(loop)
        if made is None or made.pid != os.getpid():
            for closed in [other for other in self._made if other.is_closed()]:
                del self._made[closed]
            made = self._made[loop] = Runtime(self.store, self.clock, self.jitter)
        self._latest = made
        return made

    async def run(
        self,
        key: str | tuple[object, ...] | Key,
        handler: Callable[[], Awaitable[T]],
        *,
        operation: str,
        scope: Any = SHARED,
        fingerprint: Any = None,
        policy: Policy | None = None,
        about: About | Mapping[str, Any] | None = None,
        returns: Any = codec.inspect_empty,
    ) -> Result[T]:
        """Run `handler` once for `key`, or give what it gave before.

        Args:
            key: what makes this operation this one.
            handler: called without arguments, at most once at a time over all processes.
            operation: what is done; part of the identity.
            scope: for whom; part of the identity.
            fingerprint: what was asked; the same key with another fingerprint raises `KeyReused`.
            policy: how to claim, keep, wait and recover.
            about: what people search by.
            returns: the type of the result, if the handler does not declare it.
        """
        if is_plainly_sync(handler):
            raise wrong_colour(handler, wanted="async def")
        request = self._request(
            key,
            handler,
            operation=operation,
            scope=scope,
            asked=fingerprint,
            policy=policy,
            about=about,
            returns=returns,
        )
        return await self._once(request, handler)

    def once(
        self,
        *,
        key: KeyRule,
        scope: ScopeRule = SHARED,
        operation: str | None = None,
        ignore: tuple[str, ...] = (),
        about: AboutRule = None,
        policy: Policy | None = None,
        **changes: Any,
    ) -> Callable[[Callable[P, Awaitable[T]]], AsyncOnceFunction[P, T]]:
        """Decorate a function so that it runs once per key; policy fields may be given directly.

        Raises:
            UsageError: something about the function could not be kept; at decoration, not at the first call.
        """
        settled = self._policy(policy, changes)

        def decorate(function: Callable[P, Awaitable[T]]) -> AsyncOnceFunction[P, T]:
            refuse_generator(function)
            if not is_async(function):
                raise wrong_colour(function, wanted="async def")
            rules = rules_of(
                function, key=key, scope=scope, operation=operation, ignore=ignore, about=about, policy=settled
            )
            self.known[rules.operation] = Known(settled, rules.shape)
            return AsyncOnceFunction(self, function, rules)

        return decorate

    def within(self, connection: Any) -> AsyncWithin:
        """Join the caller's transaction: the record commits, or rolls back, with the caller's rows.

        Raises:
            UsageError: the store cannot join that connection.
        """
        return AsyncWithin(self, connection)

    def current(self) -> AsyncAttempt:
        """The attempt whose handler is running here.

        Raises:
            UsageError: no handler is running here.
            LeaseLost: it is no longer the owner.
        """
        place = context.current_place.get()
        if place is None or not isinstance(place.attempt, AsyncAttempt):
            message = "current() was called outside a handler; there is no attempt here."
            raise UsageError(message)
        place.state.check()
        return place.attempt

    async def read(self, key: Any, *, operation: str | None = None, scope: Any = SHARED) -> Record | None:
        """The record of a key, if there is one."""
        return await self._run(administration.read(self._identity(key, operation, scope)))

    async def records(
        self,
        *,
        status: str | None = None,
        operation: str | None = None,
        scope: Any = None,
        before: datetime | None = None,
        after: datetime | None = None,
        process_instance: str | None = None,
        business_key: str | None = None,
        reference: str | None = None,
    ) -> AsyncIterator[Record]:
        """Records, oldest first, fetched page by page. `before` and `after` are about their creation."""
        query = query_of(
            status=status,
            operation=operation,
            scope=scope,
            before=before,
            after=after,
            process_instance=process_instance,
            business_key=business_key,
            reference=reference,
        )
        cursor = None
        while True:
            page = await self._run(administration.page(query, cursor))
            for record in page.records:
                yield record
            cursor = page.cursor
            if cursor is None:
                return

    async def resolve(
        self,
        key: Any,
        resolution: Resolution,
        *,
        operation: str | None = None,
        scope: Any = SHARED,
        reason: str,
        by: str = "",
    ) -> Record:
        """End a doubt: `Happened(value)`, `DidNotHappen()` or `Cancelled()`, with a reason that is kept."""
        digest = self._identity(key, operation, scope)
        return await self._run(administration.resolve(digest, resolution, reason, by, self.new_nonce()))

    async def sweep(self) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks, report what is held."""
        return await self._run(administration.sweep(self.known, self.clock, self.new_nonce))

    async def _run(self, flow: Flow[T]) -> T:
        joined = context.joined_here(self.store.name)
        return await arun(flow, Shell(self, joined, None).perform)

    async def _once(self, request: Request, handler: Callable[[], Awaitable[T]]) -> Result[T]:
        self._enter(request)
        once = Once(request, self.clock, self.new_nonce)
        shell = Shell(self, context.joined_here(self.store.name), handler, once)
        try:
            result: Result[T] = await shell.carry(once)
        except BaseException as error:
            self._tell_error(once, error)
            raise
        if result.replayed:
            shell.replayed()
        self._tell(request, result)
        return result

    async def _step(
        self, state: AttemptState, name: str, function: functools.partial[Awaitable[T]], connection: Any, max_result: int
    ) -> T:
        if is_plainly_sync(function.func):
            raise wrong_colour(function.func, wanted="async def")
        if connection is None and state.joined:
            message = f"The step {name!r} has no transaction of its own inside within(); it did not run. Just call it."
            raise UsageError(message)
        shape = shape_of_result(function.func)
        if connection is None:
            plain = Shell(self, None, function)
            value: T = await arun(step(state, name, shape, max_result, joined=False), plain.perform)
            return value
        async with AsyncWithin(self, connection) as inside:
            shell = Shell(self, inside.joined, function)
            value = await arun(step(state, name, shape, max_result, joined=True), shell.perform)
            return value


class Shell:
    """Performs what flows ask for, in this thread."""

    def __init__(
        self, engine: AsyncEngine, joined: AsyncJoined | None, handler: Callable[[], Any] | None, once: Once | None = None
    ) -> None:
        self._engine = engine
        self._joined = joined
        self._handler = handler
        self._once = once
        self._waiter: Any = None
        self._held: AttemptState | None = None
        self._threads: list[Future[Any]] = []

    async def carry(self, once: Once) -> Result[Any]:
        """Carry this shell's call through to its end; where it is cut off, leave nothing half done."""
        try:
            result = await arun(once.flow(), self.perform)
        except Exception:
            self.done()
            raise
        except BaseException as error:
            await self.abandon(error)
            raise
        self.done()
        return result

    def perform(self, wanted: Any) -> Awaitable[Any]:
        """Do what a flow asks for; await the answer."""
        if not isinstance(wanted, Effect):
            return self._operate(wanted)
        match wanted:
            case Call(attempt):
                return self._call(attempt)
            case CallStep():
                return _settled_value(self._handler)
            case Ask(attempt, policy):
                return self._ask(attempt, policy)
            case Apart(once):
                return Shell(self._engine, self._joined, None, once).carry(once)
            case Wait(digest, until):
                return self._wait(digest, until)
            case Pause(seconds):
                return self._pause(seconds)
        raise AssertionError(wanted)

    def _operate(self, operation: Operation) -> Awaitable[Any]:
        if self._joined is None:
            return self._engine._runtime().lane.perform(operation)
        return self._operate_joined(self._joined, operation)

    async def _operate_joined(self, joined: AsyncJoined, operation: Operation) -> Any:
        answer = (await joined.perform(self._engine.store.plan([operation], joined=True)))[0]
        if isinstance(answer, Exception):
            raise raising.joined(answer)
        return answer

    def _call(self, attempt: AttemptState | None) -> Awaitable[Any]:
        if attempt is None:
            return _settled_value(self._handler)
        assert self._once is not None  # noqa: S101 - only a call has a handler
        return self._inside(attempt, self._handler, self._once.request.policy)

    async def _ask(self, attempt: AttemptState, policy: Policy) -> Any:
        hook = policy.reconcile
        assert hook is not None  # noqa: S101 - the policy was checked
        return await self._inside(attempt, functools.partial(_answered, hook, self._attempt(attempt, policy)), policy)

    def _attempt(self, state: AttemptState, policy: Policy) -> AsyncAttempt:
        return AsyncAttempt(self._engine, state, policy.max_result)

    async def _inside(self, state: AttemptState, function: Callable[[], Any] | None, policy: Policy) -> Any:
        """Call `function` as the current attempt, its lease kept alive until the call is settled."""
        self._hold(state)
        outer = context.current_place.get()
        place = context.Place(self._attempt(state, policy), state, self._engine.store.name, outer)
        token = context.current_place.set(place)
        state.active = True
        try:
            return await _settled_value(function)
        except asyncio.CancelledError:
            self._threads = context.threads_of(place)
            raise
        finally:
            state.active = False
            context.current_place.reset(token)

    def _hold(self, state: AttemptState) -> None:
        state.joined = self._joined is not None
        if self._joined is None and self._held is None and self._once is not None:
            self._engine._runtime().hold(state, self._once)
            self._held = state

    async def _wait(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            self._waiter = await self._engine._runtime().wait(digest, until, self._waiter)
            return self._waiter.news
        if clock.monotonic() >= until:
            return TimedOut()
        await self._pause(_POLL)
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
        task = self._engine._runtime().aside(self._clean_up(error))
        if not self._threads:
            await asyncio.shield(task)

    async def _clean_up(self, error: BaseException) -> None:
        assert self._once is not None  # noqa: S101 - only a call is abandoned
        try:
            while self._threads:
                # A thread goes on although its handler was cancelled: until it ends the lease is kept.
                await _gone(self._threads.pop())
            await arun(self._once.abandoned(error), self.perform)
        finally:
            self.done()

    def done(self) -> None:
        """The call is over: stop renewing, and let waiters of this process look."""
        if self._joined is None and self._once is not None and (self._held or self._waiter):
            self._engine._runtime().done(self._held, self._once.request.key.digest, self._waiter)

    def replayed(self) -> None:
        """Count a replay."""
        if self._joined is None and self._once is not None:
            self._engine._runtime().replayed(self._once.request.key.digest)


async def _settled_value(function: Callable[[], Any] | None) -> Any:
    assert function is not None  # noqa: S101 - flows that call have something to call
    value = function()
    if not inspect.isawaitable(value):
        raise gave_wrong_colour(function, value, wanted="async def")
    return await value


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
