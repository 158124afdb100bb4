"""The shell for threads: performs what flows ask for, and the attempt as its handler sees it.

`aio_shell.py` is its twin. What always holds: the handler runs in the caller's own thread, as the current attempt, its
lease kept alive until the call is settled; an interrupt is written down before it goes on its way.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from semel.core.flow import Flow, run
from semel.core.operations import Operation
from semel.core.policy import Policy
from semel.core.store import Joined, Store
from semel.engine import context, raising
from semel.engine.attempt import AttemptBase, AttemptState, refuse_plain_step
from semel.engine.clock import Clock
from semel.engine.colour import gave_wrong_colour, is_async, wrong_colour
from semel.engine.effects import Apart, Ask, Call, CallStep, Effect, Pause, Promoted, TimedOut, Wait
from semel.engine.flows import Once, step
from semel.engine.once import shape_of_result
from semel.engine.request import Result
from semel.engine.sync_runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")
_POLL = 0.05


class Host(Protocol):
    """What a shell needs of its engine."""

    @property
    def store(self) -> Store:
        """Where records are kept."""

    @property
    def clock(self) -> Clock:
        """What waiting is measured by."""

    def runtime(self) -> Runtime:
        """The moving parts of this process."""


class Attempt(AttemptBase):
    """The attempt whose handler is running, from the inside."""

    _engine: Host

    def step(self, name: str, function: Callable[P, T], *args: Any, within: Any = None, **kwargs: Any) -> T:
        """Run `function` once over all attempts of this key; with `within`, its record commits with its effect.

        Raises:
            LeaseLost: this attempt is no longer the owner.
            StepsChanged: the steps are not those of the attempt before.
            UsageError: a plain step inside `within`, or a function of the wrong colour.
        """
        call = functools.partial(function, *args, **kwargs)
        return _step(self._engine, self._state, name, call, within=within, max_result=self._max_result)


def _step(
    engine: Host, state: AttemptState, name: str, function: functools.partial[T], *, within: Any, max_result: int
) -> T:
    if is_async(function.func):
        raise wrong_colour(function.func, wanted="def")
    refuse_plain_step(name, state, within)
    joined = None if within is None else engine.store.join(within)
    flow: Flow[T] = step(state, name, shape_of_result(function.func), max_result, joined=joined is not None)
    with context.joining(engine.store.name, joined):
        return run(flow, Shell(engine, joined, function).perform)


class Shell:
    """Performs what flows ask for, in this thread."""

    def __init__(
        self, engine: Host, joined: Joined | None, handler: Callable[[], Any] | None, once: Once | None = None
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
            return self._engine.runtime().lane.perform(operation)
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
            self._engine.runtime().hold(state, self._once)
            self._held = state

    def _wait(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            self._waiter = self._engine.runtime().wait(digest, until, self._waiter)
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
            self._engine.runtime().done(self._held, self._once.request.key.digest, self._waiter)

    def replayed(self) -> None:
        """Count a replay."""
        if self._joined is None and self._once is not None:
            self._engine.runtime().replayed(self._once.request.key.digest)


def _settled_value(function: Callable[[], Any] | None) -> Any:
    assert function is not None  # noqa: S101 - flows that call have something to call
    value = function()
    if inspect.iscoroutine(value):
        value.close()
        raise gave_wrong_colour(function, value, wanted="def")
    return value
