"""The engine: functions that run once per key, calls, records, and the way into the caller's transaction.

`AsyncCall` is one call: what is asked, its attempt, its handler or none, the transaction it is part of, and its way to
the store. Invariants: the handler runs where it was called, in the caller's own context, as the current attempt. The
lease is kept alive from the moment the handler starts until the call is settled, and never inside the caller's
transaction, which decides by itself. A caller that is cut off leaves nothing half done: what is known is written down,
however often it is cut off again. A thread that a cancelled handler started keeps the lease to its end.

A framework calls its views by itself, so what must happen once cannot be handed over as a function: such a call is
started, the framework goes on, and what came of it is said by `finish` or `fail`, with everything `run` does.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import Any, Concatenate, Generic, Never, ParamSpec, Self, TypeVar, Unpack, overload

from semel.core import codec
from semel.core.flow import Flow, arun
from semel.core.key import SHARED, Key
from semel.core.operations import Complete, Operation
from semel.core.policy import Policy, PolicyFields
from semel.core.record import About, Count, HistoryEntry, Record, Resolution, Status, is_tombstone, show_record
from semel.core.store import AsyncJoined
from semel.engine import admin, call_errors, context
from semel.engine.admin import SweepReport
from semel.engine.background import Crowded, HeldLease, Promoted, TimedOut
from semel.engine.call_flow import (
    AskReconcileHook,
    CallFlow,
    Effect,
    GiveBack,
    Pause,
    Request,
    Result,
    RunCall,
    RunHandler,
    RunStep,
    Wait,
    read_committed,
    step,
)
from semel.engine.clock import async_pause
from semel.engine.context import AttemptView, async_threads_of, refuse_plain_step
from semel.engine.decorator import (
    AboutRule,
    CallSpec,
    FingerprintRule,
    HandlerWithAttempt,
    KeyRule,
    ScopeRule,
    async_call_function,
    async_call_hook,
    call_spec_of,
    check_async_function,
    check_async_handler,
    handler_with_attempt,
    operation_name,
)
from semel.engine.engine import (
    ASKED,
    CallOptions,
    EngineBase,
    RecordFilter,
    RegisteredOperation,
    SemelBase,
    engine_of,
    query_of,
    refuse_unknown,
)
from semel.engine.runtime import AsyncRuntime, AsyncRuntimes, AsyncTurn, async_finish_apart, async_wait_for_threads
from semel.errors import InProgress, RecordNotFound

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

POLL = 0.05
"""Seconds between two looks at a record that another transaction holds, inside the caller's own."""


class AsyncPerformer:
    """Does what flows ask for: sends operations to the store, or in the caller's transaction, and lets time pass."""

    _engine: AsyncEngine
    _joined: AsyncJoined | None
    _function: Callable[[], Any] | None
    _runtime: AsyncRuntime | None = None

    def __init__(
        self, engine: AsyncEngine, joined: AsyncJoined | None, function: Callable[[], Any] | None = None
    ) -> None:
        self._engine = engine
        self._joined = joined
        self._function = function

    def perform(self, wanted: Any) -> Awaitable[Any]:
        """Do what a flow asks for."""
        if isinstance(wanted, Effect):
            return self._perform_effect(wanted)
        if self._joined is not None:
            return self._perform_joined(self._joined, wanted)
        runtime = self._runtime
        if runtime is None:
            runtime = self._runtime = self._engine.runtime()
        return runtime.perform(wanted)

    async def _perform_joined(self, joined: AsyncJoined, operation: Operation) -> Any:
        answer = (await joined.perform(self._engine.store.plan([operation], joined=True)))[0]
        if isinstance(answer, Exception):
            raise call_errors.joined_error(answer)
        return answer

    def _perform_effect(self, wanted: Effect) -> Awaitable[Any]:
        match wanted:
            case Pause(seconds):
                return async_pause(self._engine.clock, seconds)
            case RunStep() if self._function is not None:
                return async_call_function(self._function)
            case RunCall(request):
                return AsyncCall[Any](self._engine, request, None, self._joined, only_reconcile=True).reconcile()
        raise AssertionError(wanted)


class AsyncCall(AsyncPerformer, CallFlow, Generic[T]):
    """One call on its way. `run` drives it to its end; `start` and `finish` or `fail`, where others run the handler.

    Args:
        engine: whose call it is.
        request: what is asked.
        handler: what runs once; None where somebody else runs it.
        joined: the caller's transaction, if it is part of one.
        only_reconcile: ask the reconcile hook, and run nothing.

    Attributes:
        result: what was found instead of a claim: then there is nothing to carry out and nothing to settle.
    """

    result: Result[T] | None = None
    _answer: Any = None
    """What the flow was answered last, whether it has heard it or not."""
    _waiter: Any = None
    _held: HeldLease | None = None
    _is_handed_out = False
    _is_claimed = False
    _view: AsyncAttempt | None = None
    _transaction: context.JoinedTransaction | None = None
    _threads: Sequence[Future[Any]] = ()

    def __init__(
        self,
        engine: AsyncEngine,
        request: Request,
        handler: Callable[[], Any] | None,
        joined: AsyncJoined | None,
        *,
        only_reconcile: bool = False,
    ) -> None:
        is_unbounded = engine.limits.max_handlers is None or only_reconcile
        handlers = None if is_unbounded else engine.handlers_for_call(request.key.operation)
        CallFlow.__init__(
            self, request, engine.clock, engine.new_nonce, engine.retry_budget, handlers, only_reconcile=only_reconcile
        )
        self.without_hit, self.tracer = engine.without_hit, engine.tracer
        self._engine = engine
        self._function = handler
        self._joined = joined
        self._flow = self.flow()

    def belongs_to(self, engine: AsyncEngine) -> bool:
        """Whether this is a call of that engine."""
        return self._engine is engine

    @property
    def attempt(self) -> AsyncAttempt:
        """The attempt as its handler sees it."""
        if self._view is None:
            self._view = AsyncAttempt(self)
        return self._view

    @property
    def is_joined(self) -> bool:
        """Whether the call is part of a transaction of its caller."""
        return self._joined is not None

    async def run(self) -> Result[T]:
        """Carry the call through to its end, and tell the observer how it went."""
        try:
            result: Result[T] = await self._advance(self._flow.send, None)
        except BaseException as error:
            self._engine.reports.failed(self, error)
            raise
        if result.replayed:
            self._count_replay()
        elif isinstance(self.written, Complete) and is_tombstone(self.written.outcome):
            self._engine.reports.not_kept(self.request, self.written.outcome)
        self._engine.reports.ended(self, result)
        return result

    async def reconcile(self) -> Result[T]:
        """Carry a call that only asks its reconcile hook through to its end."""
        result: Result[T] = await self._advance(self._flow.send, None)
        return result

    async def start(self) -> AsyncCall[T]:
        """Claim, or find what there is; raises what `run` raises."""
        try:
            found = await self._advance(self._flow.send, None)
        except BaseException as error:
            self._tell_error(error)
            raise
        if isinstance(found, RunHandler):
            self._is_handed_out = True
            self._is_claimed = found.attempt is not None
            if self._is_claimed:
                self._hold()
        else:
            self.result = found
            self._tell_end(found)
        return self

    async def finish(self, value: T) -> Result[T]:
        """It gave `value`. The result is another one where somebody else had taken the key over."""
        return await self._end(self._flow.send, value)

    async def fail(self, error: Exception) -> Result[T]:
        """It raised `error`, which is recorded by policy and raised again."""
        return await self._end(self._flow.throw, error)

    async def give_back(self) -> None:
        """Nothing ran under this claim, which only kept others away: let the next one have it."""
        self._leave()
        await self._advance(self._flow.throw, GiveBack())

    async def abandon(self, error: BaseException) -> None:
        """Whoever runs it was cut off: write down what is known, and no more."""
        self._leave()
        await self._settle_after(error)
        self._tell_error(error)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, this is the current attempt, and operations join the transaction that it was started in."""
        if not self._is_claimed:
            yield
            return
        token = self._enter()
        try:
            with context.joining(self._engine.store.name, self._joined) as self._transaction:
                yield
        finally:
            self._exit(token)

    async def read_status(self) -> Status | None:
        """The status of the record that this call has committed, as everybody else sees it; None: there is none."""
        if not self._is_claimed:
            return None
        if not self.granted.protected:
            return Status.COMPLETED  # nothing is recorded, so there is nothing that could tell otherwise
        record = await arun(read_committed(self.lease), AsyncPerformer(self._engine, None).perform)
        return None if record is None else record.status

    async def run_step(self, name: str, work: functools.partial[Any], within: Any) -> Any:
        """Run `work` once over all attempts of this key."""
        engine = self._engine
        check_async_handler(work.func)
        refuse_plain_step(name, self, within)
        joined = None if within is None else engine.store.async_join(within)
        shape, rules = engine.shapes.of(work.func), self.request.policy
        flow: Flow[Any] = step(self, name, shape, rules, joined=joined is not None, retry_budget=engine.retry_budget)
        with context.joining(engine.store.name, joined), context.in_step(name):
            return await arun(flow, AsyncPerformer(engine, joined, work).perform)

    async def _end(self, move: Callable[[Any], Any], value: Any) -> Result[T]:
        self._leave()
        try:
            result: Result[T] = await self._advance(move, value)
        except BaseException as error:
            self._tell_error(error)
            raise
        self._tell_end(result)
        return result

    async def _advance(self, move: Callable[[Any], Any], value: Any) -> Any:
        """Go on to the end, or to where a handler that somebody else runs is to begin; leave nothing half done."""
        self._runtime = None  # found again: the process or the event loop may be another one by now
        try:
            found = await self._drive(move, value)
        except Exception as error:
            self._flow.close()
            if self._joined is None and self.is_left_open(self._answer):
                await self._settle_after(error)  # a signal's handler raised it where nobody waits for an error
            else:
                self._done()
            raise
        except BaseException as error:
            self._flow.close()
            await self._settle_after(error)
            raise
        if type(found) is not RunHandler:
            self._done()
        return found

    async def _drive(self, move: Callable[[Any], Any], value: Any) -> Any:
        """Do what the flow asks for: to its result, or to a handler that somebody else runs."""
        # A function of its own: what strikes at the `try` inside the loop is seen by no handler of the same function.
        try:
            wanted = move(value)
            while self._function is not None or type(wanted) is not RunHandler:
                try:
                    # Noted in the same line: a signal that strikes before the flow has heard the answer finds it here.
                    self._answer = answer = await self.perform(wanted)
                except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                    wanted = self._flow.throw(error)
                else:
                    wanted = self._flow.send(answer)
        except StopIteration as end:
            return end.value
        return wanted

    def _perform_effect(self, wanted: Effect) -> Awaitable[Any]:
        match wanted:
            case RunHandler(attempt) if self._function is not None:
                return async_call_function(self._function) if attempt is None else self._run_inside(self._function)
            case AskReconcileHook() if (hook := self.request.policy.reconcile) is not None:
                return self._run_inside(functools.partial(async_call_hook, hook, self.attempt))
            case Wait(digest, until):
                return self._wait_for_news(digest, until)
        return super()._perform_effect(wanted)

    async def _run_inside(self, function: Callable[[], Any]) -> Any:
        """Call `function` as the current attempt."""
        token = self._enter()
        try:
            return await async_call_function(function)
        except BaseException as error:
            self._threads = async_threads_of(self, error)
            raise
        finally:
            self._exit(token)
            self._runtime = None  # a child that the handler forked has one of its own

    async def _wait_for_news(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            waiter = await self._engine.runtime().wait(digest, until, self._waiter)
            if not isinstance(waiter.news, Crowded):
                self._waiter = waiter  # one that could not even stay is not remembered: nobody looks when it leaves
            return waiter.news
        if clock.monotonic() >= until:
            return TimedOut()
        await async_pause(clock, POLL)
        return Promoted()

    def _enter(self) -> Token[context.RunningHandler | None]:
        """Make this the current attempt from here on, its lease kept alive until the call is settled."""
        self._hold()
        self.active = True
        if self.tracer is not None:
            self.enter_span(self.tracer)
        outer = context.current_handler.get()
        return context.current_handler.set(context.RunningHandler(self, self._engine.store.name, outer))

    def _exit(self, token: Token[context.RunningHandler | None]) -> None:
        """It is no longer the current one."""
        self.active = False
        if self.tracer is not None:
            self.exit_span()
        context.current_handler.reset(token)

    def _hold(self) -> None:
        """Keep the lease alive until the call is settled; inside a transaction there is none to keep."""
        self.joined = self._joined is not None
        if self._joined is None and (self.beat is None or self.beat is not self._held):
            runtime = self._runtime or self._engine.runtime()
            if self._held is not None:  # of a claim that was over before anything ran
                runtime.release(self._held)
            runtime.keep_lease(self)
            self._held = self.beat
            if self.asked_at >= runtime.background.register_from:
                runtime.plan_registration()

    def _leave(self) -> None:
        """The handler is over, whatever may still run in its context: it no longer stands in its key's way."""
        self.active = False
        if self._transaction is not None:
            # What runs on in its context, such as background work, must not join a transaction that has ended.
            self._transaction.over = True

    def _done(self) -> None:
        """The call is over: stop renewing, and let waiters of this process look."""
        if self._handlers is not None:
            self._handlers.leave(self)
        if self._joined is None and (self._held or self._waiter):
            runtime = self._runtime or self._engine.runtime()
            runtime.finish(self._held, self.request.key.digest, self._waiter)

    async def _settle_after(self, error: BaseException) -> None:
        """The caller was cut off: write down what is known, where nothing that cuts it off again reaches."""
        if self._joined is not None:
            await self._clean_up(error)  # the transaction is the caller's, and so is its end
        else:
            work = functools.partial(self._clean_up, error)
            await async_finish_apart(self._engine.runtime(), work, wait=not self._threads)

    async def _clean_up(self, error: BaseException) -> None:
        unheard = self._answer if self._joined is None else None
        self._runtime = None
        try:
            await async_wait_for_threads(self._threads)
            await arun(self.abandoned(error, unheard), self.perform)
        finally:
            self._done()

    def _count_replay(self) -> None:
        if self._joined is None:
            (self._runtime or self._engine.runtime()).count_replay(self.request.key.digest)

    def _tell_end(self, result: Result[T]) -> None:
        if result.replayed:
            self._count_replay()
        self._engine.reports.ended(self, result)

    def _tell_error(self, error: BaseException) -> None:
        """Tell how the call failed. In a transaction whoever opened that waits for others, and rolls it back."""
        if self._joined is not None and self._is_handed_out:
            self._engine.reports.rolled_back(self, error)
        elif self._joined is None or not isinstance(error, InProgress):
            self._engine.reports.failed(self, error)


class AsyncAttempt(AttemptView):
    """The attempt whose handler is running, from the inside."""

    _call: AsyncCall[Any]

    async def step(
        self, name: str, function: Callable[P, Awaitable[T]], *args: Any, within: Any = None, **kwargs: Any
    ) -> T:
        """Run `function` once over all attempts of this key; with `within`, its record commits with its effect.

        Raises:
            LeaseLost: this attempt is no longer the owner.
            StepsChanged: the steps are not those of the attempt before.
            UsageError: a plain step inside `within`, or a function of the wrong colour.
        """
        value: T = await self._call.run_step(name, functools.partial(function, *args, **kwargs), within)
        return value


class AsyncOnceFunction(Generic[P, T]):
    """A function that runs once per key. Call it for the value, `.result` for all that is known of the call."""

    def __init__(self, engine: AsyncEngine, function: Callable[P, Awaitable[T]], rules: CallSpec) -> None:
        functools.update_wrapper(self, function)
        self._engine = engine
        self._function = function
        self._rules = rules
        # What makes a call's handler of the function and its arguments: frameworks see no parameter that semel gives.
        self._handler: Callable[..., Callable[[], Awaitable[T]]] = functools.partial
        if rules.attempt is not None:
            self._handler = functools.partial(HandlerWithAttempt, rules.attempt)
            self.__signature__ = rules.signature

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value: of this run, or of the one before."""
        request = self._rules.request(args, kwargs)
        result = await self._engine.call(request, self._handler(self._function, *args, **kwargs))
        return result.value

    async def result(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]:
        """Call it and get the whole `Result`."""
        request = self._rules.request(args, kwargs)
        return await self._engine.call(request, self._handler(self._function, *args, **kwargs))

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

    def __init__(self, semel: AsyncSemelBase, connection: Any) -> None:
        self._semel = semel
        self._engine = engine_of(semel)
        self._joined = self._engine.store.async_join(connection)
        self._tokens: list[Any] = []

    async def __aenter__(self) -> Self:
        outer = context.current_transaction.get()
        transaction = context.JoinedTransaction(self._engine.store.name, self._joined, outer)
        self._tokens.append(context.current_transaction.set(transaction))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.current_transaction.reset(self._tokens.pop())

    async def run(self, key: Any, handler: Callable[[], Awaitable[T]], **settings: Any) -> Result[T]:
        """One call inside the transaction; arguments as for `Semel.run`."""
        async with self:
            return await self._semel.run(key, handler, **settings)

    async def open(self, key: Any, **settings: Any) -> AsyncCall[Any]:
        """Open one call inside the transaction; arguments as for the engine's `open`."""
        async with self:
            return await self._engine.open(key, **settings)


class AsyncEngine(EngineBase):
    """What makes operations happen once: what people hold as `AsyncSemel` is a view on it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._use_runtimes(AsyncRuntimes(self._host()))

    def _use_runtimes(self, runtimes: AsyncRuntimes) -> None:
        """Use what these keep running from now on."""
        self.runtimes = runtimes
        self.runtime = runtimes.current

    async def close(self) -> None:
        """Let go of the connections and of what runs in the background. Using the engine again opens them again."""
        await self.runtimes.close()

    async def call(self, request: Request, handler: Callable[[], Awaitable[T]]) -> Result[T]:
        """Carry one request out, under a claim, and tell the observer how it went."""
        call: AsyncCall[T] = AsyncCall(self, request, handler, self._joined(request))
        if type(handler) is HandlerWithAttempt:
            handler.call = call
        return await call.run()

    async def open(self, key: str | tuple[object, ...] | Key, **asked: Unpack[CallOptions]) -> AsyncCall[Any]:
        """Claim `key` for work that somebody else carries out and settles; other arguments as for `run`."""
        request = self._request_to_open(key, asked)
        call = AsyncCall[Any](self, request, None, self._joined(request))
        call.may_wait = not call.is_joined  # whoever opened the transaction takes turns
        return await call.start()

    async def open_within(
        self, connection: Any, key: str | tuple[object, ...] | Key, **asked: Unpack[CallOptions]
    ) -> AsyncCall[Any]:
        """Open one call inside the caller's transaction; other arguments as for `open`.

        Raises:
            UsageError: the store cannot join that connection.
        """
        with context.joining(self.store.name, self.store.async_join(connection)):
            return await self.open(key, **asked)

    def turn(self, key: str | tuple[object, ...] | Key, **asked: Unpack[CallOptions]) -> AsyncTurn:
        """Get in line for `key`, which will be opened in a transaction; arguments as for `open`.

        Raises:
            KeyReentered: the handler that asks is itself running the key.
        """
        identity = self.identity(key, asked["operation"], asked.get("scope", SHARED))
        context.refuse_reentry(identity, self.store.name)
        policy = self.policy_for(identity.operation, asked.get("policy"), {})
        return AsyncTurn(self.runtime, self.clock, identity, policy, self.reports.waited)

    def current(self) -> AsyncAttempt | None:
        """The attempt of this engine whose handler is running here; None where none is.

        Raises:
            LeaseLost: it is no longer the owner.
        """
        running = context.current_handler.get()
        while running is not None:
            call = running.call
            if isinstance(call, AsyncCall) and call.belongs_to(self):
                call.check()
                return call.attempt
            running = running.outer
        return None

    async def perform(self, flow: Flow[T]) -> T:
        """Carry a flow out, in the caller's transaction where there is one."""
        return await self.perform_on(context.joined_here(self.store.name), flow)

    async def perform_on(self, joined: AsyncJoined | None, flow: Flow[T]) -> T:
        """Carry a flow out in this transaction of the caller, or, without one, on a connection of the engine's own."""
        return await arun(flow, AsyncPerformer(self, joined).perform)


class AsyncSemelBase(SemelBase[AsyncEngine]):
    """What people do with an engine: every name without an underscore is on the sheet, and nothing else is."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections and of what runs in the background. Using the engine again opens them again."""
        await self._engine.close()

    async def run(
        self,
        key: str | tuple[object, ...] | Key,
        handler: Callable[[], Awaitable[T]],
        *,
        operation: str,
        fingerprint: Any,
        scope: Any = SHARED,
        policy: Policy | None = None,
        about: About | Mapping[str, Any] | None = None,
        returns: Any = codec.NO_ANNOTATION,
        **unknown: Never,
    ) -> Result[T]:
        """Run `handler` once for `key`, or give what it gave before.

        Args:
            key: what makes this operation this one.
            handler: called without arguments, or with its attempt if it has a parameter that is annotated as one; at
                most once at a time over all processes.
            operation: what is done; part of the identity.
            fingerprint: what was asked; the same key with another fingerprint raises `KeyReused`. None: nothing is
                compared, and the key alone decides what is replayed.
            scope: for whom; part of the identity.
            policy: how to claim, keep, wait and recover.
            about: what people search by.
            returns: the type of the result, if the handler does not declare it.
        """
        if unknown:
            refuse_unknown("run()", unknown, ASKED)
        check_async_handler(handler)
        request = self._engine.request(
            key,
            handler,
            operation=operation,
            scope=scope,
            asked=fingerprint,
            policy=policy,
            about=about,
            returns=returns,
        )
        return await self._engine.call(request, handler_with_attempt(handler, AsyncAttempt, request.policy))

    async def open(self, key: str | tuple[object, ...] | Key, **asked: Unpack[CallOptions]) -> AsyncCall[Any]:
        """Claim `key` for work that somebody else carries out and settles; other arguments as for `run`."""
        return await self._engine.open(key, **asked)

    def once(
        self,
        *,
        key: KeyRule,
        scope: ScopeRule = SHARED,
        operation: str | None = None,
        ignore: tuple[str, ...] = (),
        fingerprint: FingerprintRule = None,
        about: AboutRule = None,
        upgrade: Callable[[Any], Any] | None = None,
        policy: Policy | None = None,
        **changes: Unpack[PolicyFields],
    ) -> Callable[[Callable[P, Awaitable[T]]], AsyncOnceFunction[P, T]]:
        """Decorate a function so that it runs once per key.

        A parameter of the function that is annotated as an attempt gets the attempt that runs it. Callers leave it out.

        Args:
            key: what makes a call this one: a parameter's name, a tuple of names, or a callable that gets the call's
                arguments. Dotted paths such as `"order.id"` reach into them.
            scope: for whom, given in the same way; `SHARED` for operations that belong to nobody in particular.
            operation: what is done; part of the identity. By default the module and name of the function.
            ignore: parameters that are not compared: sessions, clients, `self`.
            fingerprint: what is compared instead of all other parameters: a name, a tuple of names, or a callable.
                An argument that equals its default stays out in either case.
            about: what people search by: a mapping, an `About`, or a callable that gets the call's arguments.
            upgrade: makes of a stored value, as plain data, what the function declares to return now; it is only asked
                where the value does not fit any more.
            policy: how to claim, keep, wait and recover; by default that of the engine.
            changes: fields of the policy that differ, such as `keep_for=timedelta(days=90)`.

        Raises:
            UsageError: something about the function could not be kept; at decoration, not at the first call.
        """
        engine = self._engine
        engine.policy_of(policy, changes)  # what is wrong with it is said before a function is decorated

        def decorate(function: Callable[P, Awaitable[T]]) -> AsyncOnceFunction[P, T]:
            check_async_function(function)
            settled = engine.policy_for(operation_name(function, operation), policy, changes)
            rules = call_spec_of(
                function,
                key=key,
                scope=scope,
                operation=operation,
                ignore=ignore,
                fingerprint=fingerprint,
                about=about,
                upgrade=upgrade,
                policy=settled,
                secrets=engine.secrets,
                attempt_class=AsyncAttempt,
            )
            engine.known[rules.operation] = RegisteredOperation(settled, rules.shape, rules.terms)
            return AsyncOnceFunction(engine, function, rules)

        return decorate

    def within(self, connection: Any) -> AsyncWithin:
        """Join the caller's transaction: the record commits, or rolls back, with the caller's rows.

        Raises:
            UsageError: the store cannot join that connection.
        """
        return AsyncWithin(self, connection)

    def current(self) -> AsyncAttempt:
        """The attempt whose handler is running here: that of this engine, where handlers of several call each other.

        Raises:
            UsageError: no handler of this engine is running here.
            LeaseLost: it is no longer the owner.
        """
        attempt = self._engine.current()
        if attempt is None:
            raise context.no_attempt_error(self)
        return attempt

    async def read(self, key: Any, *, operation: str | None = None, scope: Any = SHARED) -> Record | None:
        """The record of a key, if there is one."""
        stored = await self._engine.perform(admin.read(self._engine.identity(key, operation, scope)))
        return None if stored is None else show_record(stored)

    async def records(self, **filters: Unpack[RecordFilter]) -> AsyncIterator[Record]:
        """Records, oldest first, fetched page by page; see `RecordFilter`.

        Raises:
            UsageError: only reading all records would find them, and `scan=True` is not given.
        """
        query = query_of(filters)
        admin.check_reach(self._engine.store, query)
        cursor = None
        while True:
            page = await self._engine.perform(admin.page(query, cursor))
            for stored in page.records:
                yield show_record(stored)
            cursor = page.cursor
            if cursor is None:
                return

    async def count(self, **filters: Unpack[RecordFilter]) -> int:
        """How many records there are, those included that are expired and not swept yet; see `RecordFilter`.

        Raises:
            UsageError: only reading all records would tell, and `scan=True` is not given.
        """
        return sum(found.number for found in await self.counts(**filters))

    async def counts(self, **filters: Unpack[RecordFilter]) -> list[Count]:
        """The same for each operation and status, ordered by both; none that is 0."""
        query = query_of(filters)
        admin.check_reach(self._engine.store, query, counts=True)
        return list(await self._engine.perform(admin.count(query)))

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
        force: bool = False,
    ) -> Record:
        """End a doubt: `Happened(value)`, `DidNotHappen()`, `Cancelled()` or `Failed("why")`, with a reason.

        With `correct` another `Happened(value)` replaces the value that an earlier one stated. With `force` a live
        lease is ended, too: whoever holds it can record nothing any more.
        """
        identity = self._engine.identity(key, operation, scope)
        known = self._engine.known.get(identity.operation)
        nonce = self._engine.new_nonce()
        flow = admin.resolve(
            identity, resolution, reason=reason, by=by, nonce=nonce, known=known, correct=correct, force=force
        )
        return show_record(await self._engine.perform(flow))

    async def reopen(
        self, key: Any, *, operation: str | None = None, scope: Any = SHARED, reason: str, by: str = ""
    ) -> Record:
        """Let a key run again that failed for good or was cancelled, with a reason that is kept. Nothing runs now.

        Raises:
            RecordNotFound: there is no record under that key.
            NotResolvable: it is completed, running, in doubt or erased, or may be tried again anyway.
        """
        identity = self._engine.identity(key, operation, scope)
        flow = admin.reopen(identity, reason=reason, by=by, nonce=self._engine.new_nonce())
        return show_record(await self._engine.perform(flow))

    async def value(
        self,
        key: Any,
        returns: Any = Any,
        *,
        operation: str | None = None,
        scope: Any = SHARED,
        default: Any = codec.NO_ANNOTATION,
    ) -> Any:
        """What the operation of a key gave, read as `returns`, without running anything.

        Args:
            key: the value of the key.
            returns: the type of what it gave, as the function declares it.
            operation: the operation of the key.
            scope: whose key it is.
            default: given back where there is no record.

        Raises:
            RecordNotFound: there is no record under that key, and no default.
            InProgress: it is running.
            InDoubt: it started, and no outcome is known.
            FailedBefore: it failed or was cancelled.
            ResultNotKept: it is done, and its value was not kept.
        """
        identity = self._engine.identity(key, operation, scope)
        try:
            return await self._engine.perform(admin.value(identity, codec.shape_of(returns)))
        except RecordNotFound:
            if default is codec.NO_ANNOTATION:
                raise
            return default

    async def history(self, key: Any, *, operation: str | None = None, scope: Any = SHARED) -> tuple[HistoryEntry, ...]:
        """What happened to the record of a key, oldest first: its attempts, take-overs and decisions, and who held it.

        Raises:
            RecordNotFound: there is no record under that key.
        """
        return await self._engine.perform(admin.history(self._engine.identity(key, operation, scope)))

    async def erase(
        self, key: Any, *, operation: str | None = None, scope: Any = SHARED, reason: str, by: str = ""
    ) -> Record:
        """Take out of a settled record what may be personal, with a reason that is kept. It never runs again for it."""
        identity = self._engine.identity(key, operation, scope)
        flow = admin.erase(identity, reason=reason, by=by)
        return show_record(await self._engine.perform(flow))

    async def purge_cached(self, key: Any, *, operation: str | None = None, scope: Any = SHARED) -> None:
        """Take one record out of the caches in front of the store. It stays itself, and is cached anew when it is used.

        Other processes may keep a copy for as long as `local_for` of their cache says.
        """
        identity = self._engine.identity(key, operation, scope)
        await self._engine.perform(admin.purge_cached(identity, self._engine.store))

    async def sweep(self, *, limit: int | None = None) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks, report what is held.

        With `limit` at most so many records are deleted, and at most so many marked; the next sweep goes on.

        Raises:
            UsageError: the limit is below 1.
        """
        engine = self._engine
        flow = admin.sweep(engine.known, engine.clock, engine.tell_lapsed, store=engine.store, limit=limit)
        return engine.tell_swept(await engine.perform(flow))
