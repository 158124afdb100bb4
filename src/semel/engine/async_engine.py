"""The engine for event loops: awaited calls. A thin shell around the flows; `sync.py` is its twin.

What always holds: an event loop has one lane, one keeper task and one driver, made on first use and never shared with
another loop or a fork. One thread keeps the leases of all loops alive, so that a handler which blocks its loop costs
nobody else the lease. The handler runs in the caller's own task and context; cancelling that task cancels it, and what
has to be written down after that is written by a task of its own.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from semel.core import codec
from semel.core.flow import Flow, arun
from semel.core.key import SHARED, Key
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About, Record, Resolution
from semel.core.store import maker_of_separate_drivers
from semel.engine import admin, context
from semel.engine.admin import SweepReport
from semel.engine.async_call import AsyncAttempt, Shell
from semel.engine.async_runtime import LeaseThread, Runtime
from semel.engine.call_flow import Once, Request, Result
from semel.engine.decorator import (
    AboutRule,
    FingerprintRule,
    KeyRule,
    Rules,
    ScopeRule,
    is_async,
    is_plainly_sync,
    refuse_generator,
    rules_of,
    wrong_colour,
)
from semel.engine.engine import Asked, EngineBase, Known, query_of
from semel.engine.manual_call import AsyncOpened, Teller
from semel.engine.turn import AsyncTurn
from semel.errors import UsageError

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
_POLL = 0.05


class AsyncOnceFunction(Generic[P, T]):
    """A function that runs once per key. Call it for the value, `.result` for all that is known of the call."""

    def __init__(self, engine: AsyncEngine, function: Callable[P, Awaitable[T]], rules: Rules) -> None:
        functools.update_wrapper(self, function)
        self._engine = engine
        self._function = function
        self.rules = rules

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value: of this run, or of the one before."""
        request = self.rules.request(args, kwargs)
        return (await self._engine.call(request, functools.partial(self._function, *args, **kwargs))).value

    async def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        request = self.rules.request(args, kwargs)
        return await self._engine.call(request, functools.partial(self._function, *args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(
        self: AsyncOnceFunction[Concatenate[S, Q], T], instance: S, owner: type[S] | None = None
    ) -> AsyncBoundOnce[Q, T]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else AsyncBoundOnce(self, instance)


class AsyncBoundOnce(Generic[P, T]):
    """A method that runs once per key, of one object. Call it as `AsyncOnceFunction` is called."""

    def __init__(self, function: AsyncOnceFunction[..., T], instance: object) -> None:
        self.__func__ = function
        self.__self__ = instance
        self.__name__ = getattr(function, "__name__", "")
        self.__doc__ = function.__doc__

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value: of this run, or of the one before."""
        return await self.__func__(self.__self__, *args, **kwargs)

    async def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        return await self.__func__.result(self.__self__, *args, **kwargs)


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

    async def open(self, key: Any, **settings: Any) -> AsyncOpened[Any]:
        """Open one call inside the transaction; arguments as for the engine's `open`."""
        async with self:
            return await self._engine.open(key, **settings)


class AsyncEngine(EngineBase):
    """Makes operations happen once, for code that calls and waits."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = weakref.WeakKeyDictionary()
        self._latest: Runtime | None = None
        self._leases: LeaseThread | None = None
        self._making = threading.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of this loop's connections and tasks. Using the engine again opens them again."""
        self._latest = None
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None and made.pid == os.getpid():
            try:
                await made.close()
            finally:
                self._leave(made.guard)
        leases = self._leases
        if leases is not None and leases.pid == os.getpid() and not self._made:
            await leases.close()

    def runtime(self) -> Runtime:
        """The moving parts of this event loop, made on first use."""
        loop = asyncio.get_running_loop()
        latest = self._latest
        if latest is not None and latest.loop is loop and latest.pid == os.getpid():
            return latest
        made = self._made.get(loop)
        if made is None or made.pid != os.getpid():
            for closed in [other for other in self._made if other.is_closed()]:
                self._leave(self._made.pop(closed).guard)
            made = self._made[loop] = Runtime(
                self.store,
                self._new_lane(),
                self.clock,
                self._new_waiting(),
                tell=self._tell_change,
                report=self._tell_stall,
                lease_thread=self._lease_thread(),
            )
        self._latest = made
        return made

    def _lease_thread(self) -> LeaseThread | None:
        """What keeps the leases of all loops of this process alive; None where each loop has to do it."""
        make_driver = maker_of_separate_drivers(self.store)
        if make_driver is None:
            return None
        leases = self._leases
        if leases is not None and leases.pid == os.getpid():
            return leases
        if leases is not None:
            self._making = threading.Lock()  # after a fork: the parent's lock may be held by a thread that is not here
            self._leases = None
        with self._making:
            if self._leases is None:
                self._leases = LeaseThread(self.store, make_driver, self.clock, self._tell_stall)
            return self._leases

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
        return await self.call(request, handler)

    async def open(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> AsyncOpened[Any]:
        """Claim `key` for work that somebody else carries out and settles; other arguments as for `run`."""
        joined = context.joined_here(self.store.name)
        once = self._to_open(key, asked, joined)
        teller = Teller(self._tell_result, self._tell_error, self._tell_rolled_back)
        return await AsyncOpened[Any](teller, Shell(self, joined, None, once), once, joined).begin()

    def turn(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> AsyncTurn:
        """Get in line for `key`, which will be opened in a transaction; arguments as for `open`.

        Raises:
            KeyReentered: the handler that asks is itself running the key.
        """
        identity = self._identity(key, asked["operation"], asked.get("scope", SHARED))
        context.refuse_reentry(identity, self.store.name)
        return AsyncTurn(self.runtime, self.clock, identity, self._policy(asked.get("policy"), {}), self._tell_waited)

    def once(
        self,
        *,
        key: KeyRule,
        scope: ScopeRule = SHARED,
        operation: str | None = None,
        ignore: tuple[str, ...] = (),
        fingerprint: FingerprintRule = None,
        about: AboutRule = None,
        policy: Policy | None = None,
        **changes: Unpack[PolicyFields],
    ) -> Callable[[Callable[P, Awaitable[T]]], AsyncOnceFunction[P, T]]:
        """Decorate a function so that it runs once per key.

        Args:
            key: what makes a call this one: a parameter's name, a tuple of names, or a callable that gets the call's
                arguments. Dotted paths such as `"order.id"` reach into them.
            scope: for whom, given in the same way; `SHARED` for operations that belong to nobody in particular.
            operation: what is done; part of the identity. By default the module and name of the function.
            ignore: parameters that are not compared: sessions, clients, `self`.
            fingerprint: what is compared instead of all other parameters: a name, a tuple of names, or a callable.
                An argument that equals its default stays out in either case.
            about: what people search by: a mapping, an `About`, or a callable that gets the call's arguments.
            policy: how to claim, keep, wait and recover; by default that of the engine.
            changes: fields of the policy that differ, such as `keep_for=timedelta(days=90)`.

        Raises:
            UsageError: something about the function could not be kept; at decoration, not at the first call.
        """
        settled = self._policy(policy, changes)

        def decorate(function: Callable[P, Awaitable[T]]) -> AsyncOnceFunction[P, T]:
            refuse_generator(function)
            if not is_async(function):
                raise wrong_colour(function, wanted="async def")
            rules = rules_of(
                function,
                key=key,
                scope=scope,
                operation=operation,
                ignore=ignore,
                fingerprint=fingerprint,
                about=about,
                policy=settled,
                secrets=self.secrets,
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
        return await self._run(admin.read(self._identity(key, operation, scope)))

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
            page = await self._run(admin.page(query, cursor))
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
        correct: bool = False,
    ) -> Record:
        """End a doubt: `Happened(value)`, `DidNotHappen()` or `Cancelled()`, with a reason that is kept.

        With `correct` another `Happened(value)` replaces the value that an earlier one stated.
        """
        identity = self._identity(key, operation, scope)
        known = self.known.get(identity.operation)
        nonce = self.new_nonce()
        flow = admin.resolve(identity, resolution, reason=reason, by=by, nonce=nonce, known=known, correct=correct)
        return await self._run(flow)

    async def erase(
        self, key: Any, *, operation: str | None = None, scope: Any = SHARED, reason: str, by: str = ""
    ) -> Record:
        """Take out of a settled record what may be personal, with a reason that is kept. It never runs again for it."""
        identity = self._identity(key, operation, scope)
        return await self._run(admin.erase(identity, reason=reason, by=by, tiers=admin.has_tiers(self.store)))

    async def sweep(self) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks, report what is held."""
        flow = admin.sweep(self.known, self.clock, self.new_nonce, self.resends, tiers=admin.has_tiers(self.store))
        return await self._run(flow)

    async def _run(self, flow: Flow[T]) -> T:
        joined = context.joined_here(self.store.name)
        return await arun(flow, Shell(self, joined, None).perform)

    async def call(self, request: Request, handler: Callable[[], Awaitable[T]]) -> Result[T]:
        """Carry one request out, under a claim, and tell the observer how it went."""
        self._enter(request)
        once = Once(request, self.clock, self.new_nonce, self.resends)
        shell = Shell(self, context.joined_here(self.store.name), handler, once)
        try:
            result: Result[T] = await shell.carry(once)
        except BaseException as error:
            self._tell_error(once, error)
            raise
        if result.replayed:
            shell.replayed()
        else:
            self._tell_not_kept(request, result)
        self._tell_result(request, result)
        return result
