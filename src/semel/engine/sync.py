"""The engine for threads: plain calls in, plain values out. A thin shell around the flows; `aio.py` is its twin.

What always holds: a process has one lane, one keeper thread and one driver, made on first use and never inherited by
a fork. The handler runs in the caller's own thread.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from semel.core import codec
from semel.core.flow import Flow, run
from semel.core.key import SHARED, Key
from semel.core.operations import Operation
from semel.core.outcome import Resolution
from semel.core.policy import Policy
from semel.core.record import About, Record
from semel.core.store import Joined
from semel.engine import administration, context, raising
from semel.engine.administration import SweepReport
from semel.engine.attempt import AttemptBase, AttemptState
from semel.engine.colourless import (
    EngineBase,
    Known,
    gave_wrong_colour,
    is_async,
    query_of,
    refuse_generator,
    wrong_colour,
)
from semel.engine.effects import Apart, Ask, Call, CallStep, Effect, Pause, Promoted, TimedOut, Wait
from semel.engine.flows import Once, step
from semel.engine.once import AboutRule, KeyRule, Rules, ScopeRule, rules_of, shape_of_result
from semel.engine.request import Request, Result
from semel.engine.sync_runtime import Runtime
from semel.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
_POLL = 0.05


class Attempt(AttemptBase):
    """The attempt whose handler is running, from the inside."""

    _engine: SyncEngine

    def step(self, name: str, function: Callable[P, T], *args: Any, within: Any = None, **kwargs: Any) -> T:
        """Run `function` once over all attempts of this key; with `within`, its record commits with its effect.

        Raises:
            LeaseLost: this attempt is no longer the owner.
            StepsChanged: the steps are not those of the attempt before.
            UsageError: a plain step inside `within`, or a function of the wrong colour.
        """
        return self._engine._step(self._state, name, functools.partial(function, *args, **kwargs), within, self._max_result)


class OnceFunction(Generic[P, T]):
    """A function that runs once per key. Call it for the value, `.result` for all that is known of the call."""

    def __init__(self, engine: SyncEngine, function: Callable[P, T], rules: Rules) -> None:
        functools.update_wrapper(self, function)
        self._engine = engine
        self._function = function
        self.rules = rules

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.result(*args, **kwargs).value

    def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        request = self.rules.request(args, kwargs)
        return self._engine._once(request, functools.partial(self._function, *args, **kwargs))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return _bound(self, instance)


def _bound(function: OnceFunction[Any, T], instance: Any) -> Any:
    method = functools.partial(function.__call__, instance)
    method.result = functools.partial(function.result, instance)  # type: ignore[attr-defined]  # a partial takes attributes
    return method


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
            made.close()

    def _runtime(self) -> Runtime:
        made = self._made
        if made is not None and made.pid == os.getpid():
            return made
        if made is not None:
            self._making = threading.Lock()  # after a fork: the parent's lock may be held by a thread that is not here
            self._made = None
        with self._making:
            if self._made is None:
                self._made = Runtime(self.store, self.clock, self.jitter)
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
        return self._once(request, handler)

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
    ) -> Callable[[Callable[P, T]], OnceFunction[P, T]]:
        """Decorate a function so that it runs once per key; policy fields may be given directly.

        Raises:
            UsageError: something about the function could not be kept; at decoration, not at the first call.
        """
        settled = self._policy(policy, changes)

        def decorate(function: Callable[P, T]) -> OnceFunction[P, T]:
            if is_async(function):
                raise wrong_colour(function, wanted="def")
            refuse_generator(function)
            rules = rules_of(
                function, key=key, scope=scope, operation=operation, ignore=ignore, about=about, policy=settled
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
        return self._run(administration.read(self._identity(key, operation, scope)))

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
            page = self._run(administration.page(query, cursor))
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
    ) -> Record:
        """End a doubt: `Happened(value)`, `DidNotHappen()` or `Cancelled()`, with a reason that is kept."""
        digest = self._identity(key, operation, scope)
        return self._run(administration.resolve(digest, resolution, reason, by, self.new_nonce()))

    def sweep(self) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks, report what is held."""
        return self._run(administration.sweep(self.known, self.clock, self.new_nonce))

    def _run(self, flow: Flow[T]) -> T:
        joined = context.joined_here(self.store.name)
        return run(flow, Shell(self, joined, None).perform)

    def _once(self, request: Request, handler: Callable[[], T]) -> Result[T]:
        self._enter(request)
        once = Once(request, self.clock, self.new_nonce)
        shell = Shell(self, context.joined_here(self.store.name), handler, once)
        try:
            result: Result[T] = shell.carry(once)
        except BaseException as error:
            self._tell_error(once, error)
            raise
        if result.replayed:
            shell.replayed()
        self._tell(request, result)
        return result

    def _step(
        self, state: AttemptState, name: str, function: functools.partial[T], connection: Any, max_result: int
    ) -> T:
        if is_async(function.func):
            raise wrong_colour(function.func, wanted="def")
        if connection is None and state.joined:
            message = f"The step {name!r} has no transaction of its own inside within(); it did not run. Just call it."
            raise UsageError(message)
        shape = shape_of_result(function.func)
        if connection is None:
            value: T = run(step(state, name, shape, max_result, joined=False), Shell(self, None, function).perform)
            return value
        with Within(self, connection) as inside:
            value = run(step(state, name, shape, max_result, joined=True), Shell(self, inside.joined, function).perform)
            return value


class Shell:
    """Performs what flows ask for, in this thread."""

    def __init__(
        self, engine: SyncEngine, joined: Joined | None, handler: Callable[[], Any] | None, once: Once | None = None
    ) -> None:
        self._engine = engine
        self._joined = joined
        self._handler = handler
        self._once = once
        self._waiter: Any = None
        self._held: AttemptState | None = None

    def carry(self, once: Once) -> Result[Any]:
        """Carry this shell's call through to its end; where it is cut off, leave nothing half done."""
        try:
            return run(once.flow(), self.perform)
        except Exception:
            raise
        except BaseException as error:
            run(once.abandoned(error), self.perform)
            raise
        finally:
            self.done()

    def perform(self, wanted: Any) -> Any:
        """Do what a flow asks for and give the answer."""
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

    def _operate(self, operation: Operation) -> Any:
        if self._joined is None:
            return self._engine._runtime().lane.perform(operation)
        answer = self._joined.perform(self._engine.store.plan([operation], joined=True))[0]
        if isinstance(answer, Exception):
            raise raising.joined(answer)
        return answer

    def _call(self, attempt: AttemptState | None) -> Any:
        if attempt is None:
            return _settled_value(self._handler)
        assert self._once is not None  # noqa: S101 - only a call has a handler
        return self._inside(attempt, self._handler, self._once.request.policy)

    def _ask(self, attempt: AttemptState, policy: Policy) -> Any:
        hook = policy.reconcile
        assert hook is not None  # noqa: S101 - the policy was checked
        return self._inside(attempt, functools.partial(hook, self._attempt(attempt, policy)), policy)

    def _attempt(self, state: AttemptState, policy: Policy) -> Attempt:
        return Attempt(self._engine, state, policy.max_result)

    def _inside(self, state: AttemptState, function: Callable[[], Any] | None, policy: Policy) -> Any:
        """Call `function` as the current attempt, its lease kept alive until the call is settled."""
        self._hold(state)
        outer = context.current_place.get()
        place = context.Place(self._attempt(state, policy), state, self._engine.store.name, outer)
        token = context.current_place.set(place)
        state.active = True
        try:
            return _settled_value(function)
        finally:
            state.active = False
            context.current_place.reset(token)

    def _hold(self, state: AttemptState) -> None:
        state.joined = self._joined is not None
        if self._joined is None and self._held is None and self._once is not None:
            self._engine._runtime().hold(state, self._once)
            self._held = state

    def _wait(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            self._waiter = self._engine._runtime().wait(digest, until, self._waiter)
            return self._waiter.news
        if clock.monotonic() >= until:
            return TimedOut()
        self._pause(_POLL)
        return Promoted()

    def _pause(self, seconds: float) -> None:
        clock = self._engine.clock
        clock.rest(threading.Event(), clock.monotonic() + seconds)

    def done(self) -> None:
        """The call is over: stop renewing, and let waiters of this process look."""
        if self._joined is None and self._once is not None and (self._held or self._waiter):
            self._engine._runtime().done(self._held, self._once.request.key.digest, self._waiter)

    def replayed(self) -> None:
        """Count a replay."""
        if self._joined is None and self._once is not None:
            self._engine._runtime().replayed(self._once.request.key.digest)


def _settled_value(function: Callable[[], Any] | None) -> Any:
    assert function is not None  # noqa: S101 - flows that call have something to call
    value = function()
    if inspect.iscoroutine(value):
        value.close()
        raise gave_wrong_colour(function, value, wanted="def")
    return value
