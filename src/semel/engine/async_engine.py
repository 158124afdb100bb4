"""The engine: functions that run once per key, calls by hand, records, and the way into the caller's transaction.

Invariant: a handler runs where it was called, in the caller's own context; whatever else the engine needs to keep
running (lane, keeper, leases) is made on first use, and let go of by `close`.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from semel.core import codec
from semel.core.flow import Flow, arun
from semel.core.key import SHARED, Key
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About, Record, Resolution
from semel.engine import admin, context
from semel.engine.admin import SweepReport
from semel.engine.async_call import AsyncAttempt, AsyncCall, AsyncPerformer
from semel.engine.call_flow import Request, Result
from semel.engine.decorator import (
    AboutRule,
    FingerprintRule,
    KeyRule,
    Rules,
    ScopeRule,
    check_async_function,
    check_async_handler,
    rules_of,
)
from semel.engine.engine import Asked, EngineBase, Known, query_of
from semel.engine.runtime import AsyncRuntimes
from semel.engine.turn import AsyncTurn
from semel.errors import UsageError

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")


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
        result = await self._engine.call(request, functools.partial(self._function, *args, **kwargs))
        return result.value

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
        outer = context.current_transaction.get()
        transaction = context.JoinedTransaction(self._engine.store.name, self.joined, outer)
        self._tokens.append(context.current_transaction.set(transaction))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.current_transaction.reset(self._tokens.pop())

    async def run(self, key: Any, handler: Callable[[], Awaitable[T]], **settings: Any) -> Result[T]:
        """One call inside the transaction; arguments as for `Semel.run`."""
        async with self:
            return await self._engine.run(key, handler, **settings)

    async def open(self, key: Any, **settings: Any) -> AsyncCall[Any]:
        """Open one call inside the transaction; arguments as for the engine's `open`."""
        async with self:
            return await self._engine.open(key, **settings)


class AsyncEngine(EngineBase):
    """Makes operations happen once."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._use_runtimes(AsyncRuntimes(self._host()))

    def _use_runtimes(self, runtimes: AsyncRuntimes) -> None:
        """Use what these keep running from now on."""
        self.runtimes = runtimes
        self.runtime = runtimes.current

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections and of what runs in the background. Using the engine again opens them again."""
        await self.runtimes.close()

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
        check_async_handler(handler)
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

    async def open(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> AsyncCall[Any]:
        """Claim `key` for work that somebody else carries out and settles; other arguments as for `run`."""
        request = self._request_to_open(key, asked)
        call = AsyncCall[Any](self, request, None, self._joined(request))
        call.may_wait = not call.is_joined  # whoever opened the transaction takes turns
        return await call.start()

    def turn(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> AsyncTurn:
        """Get in line for `key`, which will be opened in a transaction; arguments as for `open`.

        Raises:
            KeyReentered: the handler that asks is itself running the key.
        """
        identity = self._identity(key, asked["operation"], asked.get("scope", SHARED))
        context.refuse_reentry(identity, self.store.name)
        return AsyncTurn(self.runtime, self.clock, identity, self._policy(asked.get("policy"), {}), self.reports.waited)

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
            check_async_function(function)
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
            self.known[rules.operation] = Known(settled, rules.shape, rules.terms)
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
        running = context.current_handler.get()
        if running is None or not isinstance(running.call, AsyncCall):
            message = "current() was called outside a handler; there is no attempt here."
            raise UsageError(message)
        running.call.check()
        return running.call.attempt

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
        return await self._run(admin.sweep(self.known, self.clock, tiers=admin.has_tiers(self.store)))

    async def _run(self, flow: Flow[T]) -> T:
        return await arun(flow, AsyncPerformer(self, context.joined_here(self.store.name)).perform)

    async def call(self, request: Request, handler: Callable[[], Awaitable[T]]) -> Result[T]:
        """Carry one request out, under a claim, and tell the observer how it went."""
        call: AsyncCall[T] = AsyncCall(self, request, handler, self._joined(request))
        return await call.run()
