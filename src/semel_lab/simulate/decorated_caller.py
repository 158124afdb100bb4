"""Callers that go through a decorated function: the real engine of a colour and its shell, stopped wherever they wait.

What always holds: the function is called as users call it, in a context of its own, and everything down to the lane is
the engine's own code; only where it would wait (for the lane, for somebody else's key, for time) it hands its wish to
the simulation and goes on with the answer. Tasks are coroutines that are sent answers; a thread really is one, and it
runs only while the simulation stands still. Who is given up raises `Killed` at that point, as a process that dies does:
nothing more of it reaches the simulation. Who is cancelled raises where it waits what a cancelled task or an
interrupted thread raises there, and the engine cleans up after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from semel.core.flow import Flow, arun, run
from semel.core.observer import Signal
from semel.core.operations import Operation
from semel.core.store import Store
from semel.engine import context
from semel.engine.async_engine import AsyncCall, AsyncEngine, AsyncSemelBase
from semel.engine.background import HeldLease, Waiter
from semel.engine.call_flow import CallFlow, Request, Result, Wait
from semel.engine.context import AttemptState
from semel.engine.runtime import AsyncRuntime, AsyncRuntimes, SyncRuntime, SyncRuntimes
from semel.engine.sync_engine import SyncCall, SyncEngine, SyncSemelBase
from semel_lab.simulate.loop import GONE

if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller

T = TypeVar("T")


class Killed(BaseException):
    """The caller is no more: the schedule is over, or its process died."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """What a handler wants: a step of its attempt, with what the step does."""

    name: str
    work: Flow[Any]


class Silent:
    """An observer that tells nobody."""

    def observe(self, event: Signal) -> None:
        """Hear it."""


class DecoratedCall(ABC):
    """One call of a decorated function, to be sent the answers to its wishes as a generator is."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.is_dead = False
        self._broke: BaseException | None = None

    @abstractmethod
    def send(self, value: Any) -> Any:
        """Go on with an answer, up to the next wish; `StopIteration` with the `Result` at the end."""

    @abstractmethod
    def throw(self, error: BaseException) -> Any:
        """Go on with an error, up to the next wish."""

    @abstractmethod
    def cancel(self, unheard: Any) -> BaseException:
        """What to throw into a call that is cancelled; `unheard` is an answer that its flow has not heard yet."""

    @abstractmethod
    def close(self) -> None:
        """Give the call up where it stands."""

    def _rules(self, request: Request, hook: Callable[[Any], Any]) -> dict[str, Any]:
        """What the function is decorated with, so that it asks for what `request` is."""
        policy = request.policy
        return {
            "key": "value",
            "scope": "scope",
            "operation": request.key.operation,
            "fingerprint": lambda value, scope: request.asked,
            "policy": policy if policy.reconcile is None else policy.replace(reconcile=hook),
        }

    def watch(self, flow: Flow[Any]) -> Generator[Any, Any, Any]:
        """A part that the simulation plays, such as the handler; a violation found in it ends the call at once."""
        try:
            return (yield from flow)
        except (Exception, GeneratorExit):  # GeneratorExit: the call was cancelled, or given up
            raise
        except BaseException as error:
            self._broke, self.is_dead = error, True  # the engine shall not clean up after a violation
            raise

    def alive(self) -> None:
        """Raises `Killed` where the call was given up."""
        if self.is_dead:
            raise Killed

    def ended(self, killed: Killed) -> BaseException:
        """What ended a call that was killed: a violation that was found inside, if there was one."""
        return killed if self._broke is None else self._broke


class _Moving:
    """What both runtimes do without waiting."""

    def __init__(self, call: DecoratedCall) -> None:
        self._worker = call.caller.worker
        self.background = self._worker.keeper.keeper
        self.keep_lease: Callable[[CallFlow], None] = self._worker.keep_lease
        self.release: Callable[[HeldLease], None] = self._worker.renewals.release
        self.finish: Callable[[HeldLease | None, bytes, Waiter | None], None] = self._worker.finish

    def count_replay(self, digest: bytes) -> None:
        """Count a replay."""
        watch = self._worker.keeper
        if watch.keeper.count_replay(digest):
            watch.wake_by(watch.keeper.due())


class _Runtimes:
    """Gives calls the runtime of the simulation, as long as they are alive."""

    def __init__(self, call: DecoratedCall, runtime: AsyncRuntime | SyncRuntime) -> None:
        self._call = call
        self._runtime = runtime

    def current(self) -> Any:
        """The runtime of the process that the call is in."""
        self._call.alive()
        return self._runtime


class _Wish:
    """Something to await that the simulation has to do."""

    __slots__ = ("_wanted",)

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._wanted)


class _CleaningUp:
    """The task that cleans up after a cancelled call: it is carried on where it is awaited, for nobody cancels twice.

    It says that it is done because `asyncio.shield` then hands it back to be awaited, and asks for no event loop.
    """

    _asyncio_future_blocking = False  # by this asyncio knows a future

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    def done(self) -> bool:
        """See above."""
        return True

    def __await__(self) -> Generator[Any, Any, None]:
        return self._work.__await__()


class _TaskRuntime(_Moving):
    """The moving parts of an event loop, as far as a call needs them."""

    def __init__(self, call: DecoratedCall) -> None:
        super().__init__(call)
        self._caller = call.caller
        self.spawn = _CleaningUp

    def perform(self, operation: Operation) -> _Wish:
        """Have one operation performed."""
        return _Wish(operation)

    async def wait(self, digest: bytes, until: float, _last: Waiter | None) -> Waiter | None:
        """Wait for somebody else's key."""
        await _Wish(Wait(digest, until))
        return self._caller.waiter


class _TaskClock:
    """The clock of a process, for tasks that let time pass."""

    def __init__(self, call: DecoratedCall) -> None:
        self.monotonic = call.caller.worker.clock.monotonic

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """Tasks do not rest so."""
        raise NotImplementedError

    async def arest(self, _wake: asyncio.Event, until: float | None) -> None:
        """Let time pass."""
        assert until is not None
        await _Wish(until - self.monotonic())


class _TaskEngine(AsyncEngine):
    """`AsyncSemel` whose loop is the simulation; it makes one call."""

    carried: AsyncCall[Any] | None = None

    def __init__(self, call: DecoratedCall) -> None:
        caller = call.caller
        super().__init__(
            cast("Store", caller.sim.store), clock=_TaskClock(call), observer=Silent(), new_nonce=caller.new_nonce
        )
        self.retry_budget = caller.worker.retry_budget
        self._use_runtimes(cast("AsyncRuntimes", _Runtimes(call, cast("AsyncRuntime", _TaskRuntime(call)))))

    async def call(self, request: Request, handler: Callable[[], Awaitable[T]]) -> Result[T]:
        """Carry one request out, and show the call to the simulation."""
        call: AsyncCall[T] = AsyncCall(self, request, handler, self._joined(request))
        self.carried = call
        return await call.run()


class TaskCall(DecoratedCall):
    """A decorated `async def`."""

    def __init__(self, caller: Caller, request: Request) -> None:
        super().__init__(caller)

        async def hook(attempt: Any) -> Any:
            return await arun(self.watch(caller.look(attempt._call)), _Wish)

        async def charge(value: str, scope: str) -> Any:
            return await arun(self.watch(caller.handler(_state())), self._perform)

        rules = self._rules(request, hook)
        self._engine = _TaskEngine(self)
        self._semel = AsyncSemelBase(self._engine)
        self._coroutine = self._semel.once(**rules)(charge).result(request.key.value, request.key.scope)
        self._context = contextvars.Context()

    def _perform(self, wanted: Any) -> Awaitable[Any]:
        return self._run_step(wanted) if isinstance(wanted, CallStep) else _Wish(wanted)

    async def _run_step(self, step: CallStep) -> Any:
        async def work() -> Any:
            return await arun(self.watch(step.work), _Wish)

        return await self._semel.current().step(step.name, work)

    def send(self, value: Any) -> Any:
        return self._go(self._coroutine.send, value)

    def throw(self, error: BaseException) -> Any:
        return self._go(self._coroutine.throw, error)

    def cancel(self, unheard: Any) -> BaseException:
        _note_unheard(self._engine.carried, unheard)
        return asyncio.CancelledError()

    def _go(self, method: Callable[[Any], Any], given: Any) -> Any:
        try:
            return self._context.run(method, given)
        except Killed as killed:
            raise self.ended(killed) from None

    def close(self) -> None:
        self.is_dead = True
        with suppress(Killed):
            self._context.run(self._coroutine.close)


class _ThreadRuntime(_Moving):
    """The moving parts of a process with threads, as far as a call needs them."""

    def __init__(self, call: ThreadCall) -> None:
        super().__init__(call)
        self._call = call

    def perform(self, operation: Operation) -> Any:
        """Have one operation performed."""
        return self._call.ask(operation)

    def wait(self, digest: bytes, until: float, _last: Waiter | None) -> Waiter | None:
        """Wait for somebody else's key."""
        self._call.ask(Wait(digest, until))
        return self._call.caller.waiter


class _ThreadClock:
    """The clock of a process, for threads that let time pass."""

    def __init__(self, call: ThreadCall) -> None:
        self._call = call
        self.monotonic = call.caller.worker.clock.monotonic

    def rest(self, _wake: threading.Event, until: float | None) -> None:
        """Let time pass."""
        assert until is not None
        self._call.ask(until - self.monotonic())

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        """Threads do not rest so."""
        raise NotImplementedError


class _ThreadEngine(SyncEngine):
    """`Semel` whose threads are those of the simulation; it makes one call."""

    carried: SyncCall[Any] | None = None

    def __init__(self, call: ThreadCall) -> None:
        caller = call.caller
        super().__init__(
            cast("Store", caller.sim.store), clock=_ThreadClock(call), observer=Silent(), new_nonce=caller.new_nonce
        )
        self.retry_budget = caller.worker.retry_budget
        self._use_runtimes(cast("SyncRuntimes", _Runtimes(call, cast("SyncRuntime", _ThreadRuntime(call)))))

    def call(self, request: Request, handler: Callable[[], T]) -> Result[T]:
        """Carry one request out, and show the call to the simulation."""
        call: SyncCall[T] = SyncCall(self, request, handler, self._joined(request))
        self.carried = call
        return call.run()


class ThreadCall(DecoratedCall):
    """A decorated `def`, called in a thread of its own; it and the simulation take turns, so that one of them waits."""

    def __init__(self, caller: Caller, request: Request) -> None:
        super().__init__(caller)

        def hook(attempt: Any) -> Any:
            return run(self.watch(caller.look(attempt._call)), self.ask)

        def charge(value: str, scope: str) -> Any:
            return run(self.watch(caller.handler(_state())), self._perform)

        rules = self._rules(request, hook)
        self._engine = _ThreadEngine(self)
        self._semel = SyncSemelBase(self._engine)
        function = self._semel.once(**rules)(charge)
        self._begin = functools.partial(function.result, request.key.value, request.key.scope)
        self._thread: threading.Thread | None = None
        self._its_turn, self._our_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._given: tuple[Any, BaseException | None] = (None, None)
        self._wanted: Any = None
        self._result: Any = None
        self._error: BaseException | None = None

    def send(self, value: Any) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="semel-simulated", daemon=True)
            self._thread.start()
        else:
            self._given = value, None
            self._its_turn.release()
        return self._take_over()

    def throw(self, error: BaseException) -> Any:
        self._given = None, error
        self._its_turn.release()
        return self._take_over()

    def cancel(self, unheard: Any) -> BaseException:
        _note_unheard(self._engine.carried, unheard)
        return GONE

    def _perform(self, wanted: Any) -> Any:
        return self._run_step(wanted) if isinstance(wanted, CallStep) else self.ask(wanted)

    def _run_step(self, step: CallStep) -> Any:
        def work() -> Any:
            return run(self.watch(step.work), self.ask)

        return self._semel.current().step(step.name, work)

    def ask(self, wanted: Any) -> Any:
        """In the thread: have the simulation do something, and wait for the answer."""
        self.alive()
        self._wanted = wanted
        self._our_turn.release()
        self._its_turn.acquire()
        self.alive()
        value, error = self._given
        if error is not None:
            raise error
        return value

    def _take_over(self) -> Any:
        self._our_turn.acquire()
        error, result = self._error, self._result
        if isinstance(error, Killed):
            raise self.ended(error)
        if error is not None:
            raise error
        if result is not None:
            raise StopIteration(result)
        return self._wanted

    def _work(self) -> None:
        try:
            self._result = self._begin()
        except BaseException as error:  # noqa: BLE001 - whoever takes over raises it
            self._error = error.with_traceback(None)
        self._our_turn.release()

    def close(self) -> None:
        self.is_dead = True
        if self._thread is not None and self._thread.is_alive():
            self._its_turn.release()
            self._thread.join()


def call_decorated(caller: Caller, request: Request) -> DecoratedCall:
    """A call of a decorated function, of the colour of the world."""
    return ThreadCall(caller, request) if caller.sim.world.colour == "threads" else TaskCall(caller, request)


def _note_unheard(call: AsyncCall[Any] | SyncCall[Any] | None, unheard: Any) -> None:
    """A call is struck right after it noted an answer, and before its flow has heard it."""
    if unheard is not None:
        assert call is not None, "a call that has not begun was answered"
        call._answer = unheard


def _state() -> AttemptState:
    running = context.current_handler.get()
    assert running is not None, "the handler runs, and there is no current attempt"
    return running.call
