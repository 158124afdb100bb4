"""The engine for threads: plain calls in, plain values out. A thin shell around the flows; `aio.py` is its twin.

What always holds: a process has one lane, one keeper thread and one driver, made on first use and never inherited by
a fork. The handler runs in the caller's own thread.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from semel.core import codec
from semel.core.flow import Flow, run
from semel.core.key import SHARED, Key
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About, Record, Resolution
from semel.engine import admin, context
from semel.engine.admin import SweepReport
from semel.engine.call_flow import Once, Request, Result
from semel.engine.decorator import (
    AboutRule,
    FingerprintRule,
    KeyRule,
    Rules,
    ScopeRule,
    is_async,
    refuse_generator,
    rules_of,
    wrong_colour,
)
from semel.engine.engine import Asked, EngineBase, Known, query_of
from semel.engine.manual_call import SyncOpened, Teller
from semel.engine.sync_call import Attempt, Shell
from semel.engine.sync_runtime import Runtime
from semel.engine.turn import SyncTurn
from semel.errors import UsageError

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")
_POLL = 0.05


class OnceFunction(Generic[P, T]):
    """A function that runs once per key. Call it for the value, `.result` for all that is known of the call."""

    def __init__(self, engine: SyncEngine, function: Callable[P, T], rules: Rules) -> None:
        functools.update_wrapper(self, function)
        self._engine = engine
        self._function = function
        self.rules = rules

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value: of this run, or of the one before."""
        return self.result(*args, **kwargs).value

    def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        request = self.rules.request(args, kwargs)
        return self._engine.call(request, functools.partial(self._function, *args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(
        self: OnceFunction[Concatenate[S, Q], T], instance: S, owner: type[S] | None = None
    ) -> BoundOnce[Q, T]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundOnce(self, instance)


class BoundOnce(Generic[P, T]):
    """A method that runs once per key, of one object. Call it as `OnceFunction` is called."""

    def __init__(self, function: OnceFunction[..., T], instance: object) -> None:
        self.__func__ = function
        self.__self__ = instance
        self.__name__ = getattr(function, "__name__", "")
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value: of this run, or of the one before."""
        return self.__func__(self.__self__, *args, **kwargs)

    def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        return self.__func__.result(self.__self__, *args, **kwargs)


class Within:
    """The engine inside a transaction of the caller: as a context, or for one call."""

    def __init__(self, engine: SyncEngine, connection: Any) -> None:
        self._engine = engine
        self.joined = engine.store.join(connection)
        self._tokens: list[Any] = []

    def __enter__(self) -> Self:
        outer = context.current_membership.get()
        member = context.Membership(self._engine.store.name, self.joined, outer)
        self._tokens.append(context.current_membership.set(member))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.current_membership.reset(self._tokens.pop())

    def run(self, key: Any, handler: Callable[[], T], **settings: Any) -> Result[T]:
        """One call inside the transaction; arguments as for `Semel.run`."""
        with self:
            return self._engine.run(key, handler, **settings)

    def open(self, key: Any, **settings: Any) -> SyncOpened[Any]:
        """Open one call inside the transaction; arguments as for the engine's `open`."""
        with self:
            return self._engine.open(key, **settings)


class SyncEngine(EngineBase):
    """Makes operations happen once, for code that calls and waits."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._made: Runtime | None = None
        self._making = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections and the keeper thread. Using the engine again opens them again."""
        made, self._made = self._made, None
        if made is not None and made.pid == os.getpid():
            try:
                made.close()
            finally:
                self._leave(made.guard)

    def runtime(self) -> Runtime:
        """The moving parts of this process, made on first use."""
        made = self._made
        if made is not None and made.pid == os.getpid():
            return made
        if made is not None:
            self._making = threading.Lock()  # after a fork: the parent's lock may be held by a thread that is not here
            self._made = None
        with self._making:
            if self._made is None:
                self._made = Runtime(
                    self.store,
                    self._new_lane(),
                    self.clock,
                    self._new_waiting(),
                    tell=self._tell_change,
                    report=self._tell_stall,
                )
            return self._made

    def run(
        self,
        key: str | tuple[object, ...] | Key,
        handler: Callable[[], T],
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
        if is_async(handler):
            raise wrong_colour(handler, wanted="def")
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
        return self.call(request, handler)

    def open(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> SyncOpened[Any]:
        """Claim `key` for work that somebody else carries out and settles; other arguments as for `run`."""
        joined = context.joined_here(self.store.name)
        once = self._to_open(key, asked, joined)
        teller = Teller(self._tell_result, self._tell_error, self._tell_rolled_back)
        return SyncOpened[Any](teller, Shell(self, joined, None, once), once, joined).begin()

    def turn(self, key: str | tuple[object, ...] | Key, **asked: Unpack[Asked]) -> SyncTurn:
        """Get in line for `key`, which will be opened in a transaction; arguments as for `open`.

        Raises:
            KeyReentered: the handler that asks is itself running the key.
        """
        identity = self._identity(key, asked["operation"], asked.get("scope", SHARED))
        context.refuse_reentry(identity, self.store.name)
        return SyncTurn(self.runtime, self.clock, identity, self._policy(asked.get("policy"), {}), self._tell_waited)

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
    ) -> Callable[[Callable[P, T]], OnceFunction[P, T]]:
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

        def decorate(function: Callable[P, T]) -> OnceFunction[P, T]:
            if is_async(function):
                raise wrong_colour(function, wanted="def")
            refuse_generator(function)
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
            return OnceFunction(self, function, rules)

        return decorate

    def within(self, connection: Any) -> Within:
        """Join the caller's transaction: the record commits, or rolls back, with the caller's rows.

        Raises:
            UsageError: the store cannot join that connection.
        """
        return Within(self, connection)

    def current(self) -> Attempt:
        """The attempt whose handler is running here.

        Raises:
            UsageError: no handler is running here.
            LeaseLost: it is no longer the owner.
        """
        place = context.current_place.get()
        if place is None or not isinstance(place.attempt, Attempt):
            message = "current() was called outside a handler; there is no attempt here."
            raise UsageError(message)
        place.state.check()
        return place.attempt

    def read(self, key: Any, *, operation: str | None = None, scope: Any = SHARED) -> Record | None:
        """The record of a key, if there is one."""
        return self._run(admin.read(self._identity(key, operation, scope)))

    def records(
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
    ) -> Iterator[Record]:
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
            page = self._run(admin.page(query, cursor))
            yield from page.records
            cursor = page.cursor
            if cursor is None:
                return

    def resolve(
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
        return self._run(flow)

    def erase(
        self, key: Any, *, operation: str | None = None, scope: Any = SHARED, reason: str, by: str = ""
    ) -> Record:
        """Take out of a settled record what may be personal, with a reason that is kept. It never runs again for it."""
        identity = self._identity(key, operation, scope)
        return self._run(admin.erase(identity, reason=reason, by=by, tiers=admin.has_tiers(self.store)))

    def sweep(self) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks, report what is held."""
        flow = admin.sweep(self.known, self.clock, self.new_nonce, self.resends, tiers=admin.has_tiers(self.store))
        return self._run(flow)

    def _run(self, flow: Flow[T]) -> T:
        joined = context.joined_here(self.store.name)
        return run(flow, Shell(self, joined, None).perform)

    def call(self, request: Request, handler: Callable[[], T]) -> Result[T]:
        """Carry one request out, under a claim, and tell the observer how it went."""
        self._enter(request)
        once = Once(request, self.clock, self.new_nonce, self.resends)
        shell = Shell(self, context.joined_here(self.store.name), handler, once)
        try:
            result: Result[T] = shell.carry(once)
        except BaseException as error:
            self._tell_error(once, error)
            raise
        if result.replayed:
            shell.replayed()
        else:
            self._tell_not_kept(request, result)
        self._tell_result(request, result)
        return result
