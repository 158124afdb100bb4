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

from semel.core.flow import Begin, Flow, run
from semel.core.operations import Answer, Operation
from semel.core.policy import Policy
from semel.core.store import Joined
from semel.engine import call_errors, context
from semel.engine.attempt import AttemptBase, AttemptState, refuse_plain_step
from semel.engine.call import POLL, Host, ShellBase
from semel.engine.call_flow import Once, step
from semel.engine.decorator import gave_wrong_colour, is_async, wrong_colour
from semel.engine.effects import Effect, Promoted, TimedOut
from semel.engine.sync_runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")


class SyncHost(Host, Protocol):
    """What this shell needs of its engine."""

    def runtime(self) -> Runtime:
        """The moving parts of this process."""


class Attempt(AttemptBase):
    """The attempt whose handler is running, from the inside."""

    _engine: SyncHost

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
    engine: SyncHost, state: AttemptState, name: str, function: functools.partial[T], *, within: Any, max_result: int
) -> T:
    if is_async(function.func):
        raise wrong_colour(function.func, wanted="def")
    refuse_plain_step(name, state, within)
    joined = None if within is None else engine.store.join(within)
    shape = engine.shapes.of(function.func)
    flow: Flow[T] = step(state, name, shape, max_result, joined=joined is not None, resends=engine.resends)
    with context.joining(engine.store.name, joined), context.in_step(name):
        return run(flow, Shell(engine, joined, function).perform)


class Shell(ShellBase):
    """Performs what flows ask for, in the thread of its caller."""

    _engine: SyncHost
    _joined: Joined | None
    _answer: Answer | None = None
    """What the store answered last, whether the flow has heard it or not."""

    def carry(self, once: Once, flow: Flow[Any] | None = None, begin: Begin = next, stop: tuple[type, ...] = ()) -> Any:
        """Carry a call through to its end, or to where it stops; where it is cut off, leave nothing half done."""
        try:
            found = run(flow or once.flow(), self.perform, begin, stop)
        except Exception as error:
            if self._joined is None and once.is_left_open(self._answer):
                self.abandon(error)  # a signal's handler raised it where nobody waits for an error
            else:
                self.done()
            raise
        except BaseException as error:
            self.abandon(error)
            raise
        if not isinstance(found, Effect):
            self.done()
        return found

    def abandon(self, error: BaseException) -> None:
        """The caller was interrupted: write down what is known."""
        assert self._once is not None  # noqa: S101 - only a call is abandoned
        try:
            run(self._once.abandoned(error, self._answer), self.perform)
        finally:
            self.done()

    def _operate(self, operation: Operation) -> Any:
        if self._joined is None:
            # Noted in the same line: a signal that strikes before the flow has heard the answer finds it here.
            self._answer = heard = self._engine.runtime().perform(operation)
            return heard
        answer = self._joined.perform(self._engine.store.plan([operation], joined=True))[0]
        if isinstance(answer, Exception):
            raise call_errors.joined(answer)
        return answer

    def _ask(self, attempt: AttemptState, policy: Policy) -> Any:
        hook = policy.reconcile
        assert hook is not None  # noqa: S101 - the policy was checked
        return self._inside(attempt, functools.partial(hook, self._attempt(attempt, policy)), policy)

    def _called(self, function: Callable[[], Any] | None) -> Any:
        assert function is not None  # noqa: S101 - flows that call have something to call
        value = function()
        if inspect.iscoroutine(value):
            value.close()
            raise gave_wrong_colour(function, value, wanted="def")
        return value

    def _attempt(self, state: AttemptState, policy: Policy) -> Attempt:
        return Attempt(self._engine, state, policy.max_result)

    def _inside(self, state: AttemptState, function: Callable[[], Any] | None, policy: Policy) -> Any:
        """Call `function` as the current attempt, its lease kept alive until the call is settled."""
        token = self.entered(state, policy)
        try:
            return self._called(function)
        finally:
            self.left(state, token)

    def _wait(self, digest: bytes, until: float) -> Any:
        clock = self._engine.clock
        if self._joined is None:
            return self._take_news(self._engine.runtime().wait(digest, until, self._waiter))
        if clock.monotonic() >= until:
            return TimedOut()
        self._pause(POLL)
        return Promoted()

    def _pause(self, seconds: float) -> None:
        clock = self._engine.clock
        clock.rest(threading.Event(), clock.monotonic() + seconds)
