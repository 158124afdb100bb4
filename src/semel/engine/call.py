"""What both shells have in common: which part of a flow's wish goes where, and whose lease is kept meanwhile.

What always holds: a call's lease is held from the moment its handler starts until the call is settled, and never inside
the caller's transaction, which decides by itself. How to wait and how to call is the colour's own business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import Token
from typing import Any, Protocol, Self

from semel.core.flow import Begin, Flow
from semel.core.operations import Operation
from semel.core.policy import Policy
from semel.core.store import Store
from semel.engine import context
from semel.engine.attempt import AttemptState
from semel.engine.background import Waiter
from semel.engine.call_flow import Once
from semel.engine.clock import Clock
from semel.engine.decorator import Shapes
from semel.engine.effects import Apart, Ask, Call, CallStep, Crowded, Effect, News, Pause, Wait
from semel.engine.retry import Resends

POLL = 0.05
"""Seconds between two looks at a record that another transaction holds, inside the caller's own."""


class Moving(Protocol):
    """What keeps leases alive and wakes waiters."""

    def hold(self, state: AttemptState, once: Once) -> None:
        """Keep the lease of an attempt alive."""

    def release(self, state: AttemptState) -> None:
        """Stop keeping a lease alive."""

    def done(self, state: AttemptState | None, digest: bytes, waiter: Any) -> None:
        """A call is over: let go of its lease, and let waiters look."""

    def replayed(self, digest: bytes) -> None:
        """A replay was served."""


class Host(Protocol):
    """What a shell needs of its engine."""

    @property
    def store(self) -> Store:
        """Where records are kept."""

    @property
    def clock(self) -> Clock:
        """What waiting is measured by."""

    @property
    def shapes(self) -> Shapes:
        """What functions declare to return."""

    @property
    def resends(self) -> Resends:
        """How often, and when, operations are sent again."""

    def runtime(self) -> Moving:
        """The moving parts: of this process, or of this event loop."""


class ShellBase(ABC):
    """Performs what flows ask for; gives the answer, or something to await for it."""

    def __init__(self, engine: Host, joined: Any, handler: Callable[[], Any] | None, once: Once | None = None) -> None:
        self._engine = engine
        self._joined = joined
        self._handler = handler
        self._once = once
        self._waiter: Any = None
        self._held: AttemptState | None = None

    def perform(self, wanted: Any) -> Any:
        """Do what a flow asks for."""
        if not isinstance(wanted, Effect):
            return self._operate(wanted)
        match wanted:
            case Call(attempt):
                return self._call(attempt)
            case CallStep():
                return self._called(self._handler)
            case Ask(attempt, policy):
                return self._ask(attempt, policy)
            case Apart(once):
                return type(self)(self._engine, self._joined, None, once).carry(once)
            case Wait(digest, until):
                return self._wait(digest, until)
            case Pause(seconds):
                return self._pause(seconds)
        raise AssertionError(wanted)

    def _call(self, attempt: AttemptState | None) -> Any:
        if attempt is None:
            return self._called(self._handler)
        assert self._once is not None  # noqa: S101 - only a call has a handler
        return self._inside(attempt, self._handler, self._once.request.policy)

    @property
    def store_name(self) -> str:
        """Where records are kept, as messages and contexts name it."""
        return self._engine.store.name

    def outside(self) -> Self:
        """A shell on the same store that is in no transaction of the caller."""
        return type(self)(self._engine, None, None)

    def hold(self, state: AttemptState) -> None:
        """Keep the lease of an attempt alive until the call is settled; inside a transaction there is none to keep."""
        state.joined = self._joined is not None
        if self._joined is None and self._held is not state and self._once is not None:
            if self._held is not None:  # of a claim that was over before anything ran
                self._engine.runtime().release(self._held)
            self._engine.runtime().hold(state, self._once)
            self._held = state

    def _take_news(self, waiter: Waiter) -> News | None:
        """The news of a waiter. One that could not even stay is not remembered: nobody looks because it has left."""
        if not isinstance(waiter.news, Crowded):
            self._waiter = waiter
        return waiter.news

    def done(self) -> None:
        """The call is over: stop renewing, and let waiters of this process look."""
        if self._joined is None and self._once is not None and (self._held or self._waiter):
            self._engine.runtime().done(self._held, self._once.request.key.digest, self._waiter)

    def replayed(self) -> None:
        """Count a replay."""
        if self._joined is None and self._once is not None:
            self._engine.runtime().replayed(self._once.request.key.digest)

    def entered(self, state: AttemptState, policy: Policy) -> Token[context.Place | None]:
        """Make an attempt the current one from here on, its lease kept alive until the call is settled."""
        self.hold(state)
        outer = context.current_place.get()
        place = context.Place(self._attempt(state, policy), state, self._engine.store.name, outer)
        state.active = True
        return context.current_place.set(place)

    def left(self, state: AttemptState, token: Token[context.Place | None]) -> None:
        """It is no longer the current one."""
        state.active = False
        context.current_place.reset(token)

    @abstractmethod
    def carry(self, once: Once, flow: Flow[Any] | None = None, begin: Begin = next, stop: tuple[type, ...] = ()) -> Any:
        """Carry a call through to its end, or to where it stops; where it is cut off, leave nothing half done."""

    @abstractmethod
    def abandon(self, error: BaseException) -> Any:
        """The caller was cut off: write down what is known."""

    @abstractmethod
    def _attempt(self, state: AttemptState, policy: Policy) -> Any:
        """The attempt as its handler sees it."""

    @abstractmethod
    def _operate(self, operation: Operation) -> Any:
        """Ask the store."""

    @abstractmethod
    def _called(self, function: Callable[[], Any] | None) -> Any:
        """Call `function`, which must be of this colour."""

    @abstractmethod
    def _inside(self, state: AttemptState, function: Callable[[], Any] | None, policy: Policy) -> Any:
        """Call `function` as the current attempt, its lease kept alive until the call is settled."""

    @abstractmethod
    def _ask(self, attempt: AttemptState, policy: Policy) -> Any:
        """Ask the policy's reconcile hook what became of the attempt before."""

    @abstractmethod
    def _wait(self, digest: bytes, until: float) -> Any:
        """Wait for news of a key."""

    @abstractmethod
    def _pause(self, seconds: float) -> Any:
        """Let time pass."""
