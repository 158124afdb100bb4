"""What the code inside a handler can ask about itself: its attempt, its steps, the transaction it is in.

Invariants: an attempt is current exactly while its handler runs, in that handler's context and in what it started from
there; whoever touches one that lost its lease is told so. Its steps come in the order of the attempt before, as far as
that one got; a name is used once. A key that is running further up the same context is not asked for again.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import msgspec

from semel.core.events.outbox import OutboxEvent
from semel.core.key import Key, make_key
from semel.core.operations import Granted
from semel.core.record import About, Lease, Step
from semel.engine import call_errors
from semel.engine.background import HeldLease
from semel.errors import LeaseLost, StepsChanged, UsageError


class StepLog:
    """The steps of one attempt against those already finished."""

    def __init__(self, finished: tuple[Step, ...]) -> None:
        self._finished = {step.index: step for step in finished}
        self._entered: list[str] = []
        self._last_joined = False

    def enter(self, name: str, *, joined: bool = False) -> tuple[int, Step | None, bool]:
        """The position of the step called next, its record if it is finished, and whether it is the last one again.

        A step in the caller's transaction is finished when that commits, so the caller may have to run it again.

        Raises:
            StepsChanged: another step stood here in the attempt before, or the name was used already.
        """
        if joined and self._last_joined and name == self._entered[-1]:
            index = len(self._entered) - 1
            return index, self._finished.get(index), True
        index, finished = self._enter_next(name)
        self._last_joined = joined
        return index, finished, False

    def leave(self) -> None:
        """The step entered last did nothing: it may be entered once more."""
        self._entered.pop()
        self._last_joined = False

    def _enter_next(self, name: str) -> tuple[int, Step | None]:
        index = len(self._entered)
        if name in self._entered:
            message = f"The step {name!r} was used twice in one attempt; the second did not run. Name each step once."
            raise StepsChanged(message)
        finished = self._finished.get(index)
        elsewhere = next((step for step in self._finished.values() if step.name == name), None)
        if (finished is not None and finished.name != name) or (finished is None and elsewhere is not None):
            was = finished.name if finished is not None else f"number {elsewhere.index + 1}"  # type: ignore[union-attr]
            message = (
                f"Step {index + 1} is {name!r} now and was {was!r} in an earlier attempt; it did not run. "
                f"Finish the key with the code that began it, or give changed code another operation or version."
            )
            raise StepsChanged(message)
        self._entered.append(name)
        return index, finished

    def check_complete(self) -> None:
        """Refuse an end that passed over steps which an earlier attempt finished."""
        if not self._finished:
            return
        missing = [step.name for step in self._finished.values() if step.name not in self._entered]
        if missing:
            message = (
                f"This attempt ended without the step {missing[0]!r}, which an earlier attempt finished; its result is "
                f"not recorded. Finish the key with the code that began it."
            )
            raise StepsChanged(message)


class EventLog:
    """The events that an attempt adds to the statement of its end, until that is made."""

    def __init__(self) -> None:
        self._added: list[OutboxEvent | None] = []
        """None stands where the end was made; what is behind it came too late."""
        self._is_over = False

    def add(self, event: OutboxEvent) -> bool:
        """Add an event; answers whether the end tells of it."""
        # Work that a handler left behind may add while the end is made, from another thread: each of these is one step
        # of the interpreter, and an event that finds it not over stands before the mark.
        self._added.append(event)
        if not self._is_over:
            return True
        return next(one for one in self._added if one is None or one is event) is event

    def end(self) -> tuple[OutboxEvent, ...]:
        """All events that were added; no other one will be."""
        self._is_over = True
        self._added.append(None)
        taken: list[OutboxEvent] = []
        for event in self._added:
            if event is None:
                break
            taken.append(event)
        return tuple(taken)


class AttemptState:
    """What a call knows of its attempt, once its claim is granted; the part of a call that its handler can see."""

    granted: Granted
    lease: Lease
    beat: HeldLease | None = None
    in_doubt = False
    active = False
    joined = False
    _monotonic: Callable[[], float] | None = None

    def take(self, granted: Granted) -> None:
        """Begin the attempt that was granted; one before it, whose lease was over before anything ran, is forgotten."""
        own = vars(self)
        if "granted" in own:
            for name in ("beat", "_monotonic", "_steps", "_derived", "_events", "_event_names"):
                own.pop(name, None)
        self.granted = granted
        self.lease = granted.lease
        self.in_doubt = granted.in_doubt

    @property
    def key(self) -> Key:
        """The key this attempt runs."""
        return self.granted.record.key

    @property
    def number(self) -> int:
        """How many attempts there were, this one included."""
        return self.granted.record.attempts

    @property
    def about(self) -> About:
        """What the caller said the operation is about."""
        return self.granted.record.about

    @property
    def steps(self) -> StepLog:
        """The steps of this attempt, made when the first one is asked for."""
        # Threads of one handler may come at the same time: `setdefault` is one step of the interpreter.
        log: StepLog | None = vars(self).get("_steps")
        return log or vars(self).setdefault("_steps", StepLog(self.granted.record.steps))

    @property
    def events(self) -> EventLog:
        """Events that the handler adds, which the completion writes."""
        log: EventLog | None = vars(self).get("_events")
        return log or vars(self).setdefault("_events", EventLog())

    @property
    def event_names(self) -> set[str]:
        """The names of the events that this attempt has added."""
        names: set[str] = vars(self).setdefault("_event_names", set())
        return names

    def check_steps(self) -> None:
        """Refuse an end that passed over steps which an earlier attempt finished."""
        if self.granted.record.steps:
            self.steps.check_complete()

    def derive_next(self, step: str, what: str) -> str:
        """A key for the next service, derived from this key, the step's name, and a counter per step and `what`."""
        # Threads of one handler never get the same number: each of these is one step of the interpreter.
        derived: dict[tuple[str, str], Iterator[int]] = vars(self).setdefault("_derived", {})
        number = next(derived.setdefault((step, what), count(1)))
        return self.key.derive(make_key("next", step, what, number))

    def keep(self, beat: HeldLease, monotonic: Callable[[], float]) -> None:
        """Its lease is kept alive from now on; `monotonic` is the engine's clock."""
        self.beat = beat
        self._monotonic = monotonic

    def _lost(self) -> str | None:
        """Why the lease is lost, by the clock: the keeper may itself be stuck behind a store that does not answer."""
        if self.beat is None or self._monotonic is None:
            return None
        return self.beat.over(self._monotonic())

    @property
    def is_lost(self) -> bool:
        """Whether it is no longer the owner, as far as is known here."""
        return self._lost() is not None

    def check(self) -> None:
        """Stop an attempt that is no longer the owner.

        Raises:
            LeaseLost: the lease is lost; what follows would not be recorded.
        """
        lost = self._lost()
        if lost is not None:
            message = (
                f"This attempt lost its lease: {lost}. What it did so far stands, but nothing more of it is "
                f"recorded; stop, and ask for the same key again to get the recorded outcome."
            )
            raise LeaseLost(message, reference=self.key.reference)


class AttemptView:
    """The attempt whose handler is running, as the handler sees it: a view on its call; each kind adds `step`."""

    def __init__(self, call: AttemptState) -> None:
        self._call = call

    @property
    def key(self) -> Key:
        """The key this attempt runs."""
        return self._call.key

    @property
    def number(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._call.number

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have had its effect."""
        return self._call.in_doubt

    @property
    def fence(self) -> int:
        """The rising number of this lease, for resources that can check it.

        Raises:
            LeaseLost: this attempt is no longer the owner.
        """
        self._call.check()
        return self._call.lease.fence

    @property
    def about(self) -> About:
        """What the caller said the operation is about."""
        return self._call.about

    def derive(self, step: str) -> str:
        """A key for the next service, the same on every attempt of this key.

        Raises:
            LeaseLost: this attempt is no longer the owner.
        """
        self._call.check()
        return self._call.key.derive(step)


def refuse_plain_step(name: str, state: AttemptState, connection: Any) -> None:
    """Inside `within` a step without a transaction of its own would promise what it cannot keep.

    Raises:
        UsageError: the attempt runs in the caller's transaction, and the step names none.
    """
    if connection is None and state.joined:
        message = f"The step {name!r} has no transaction of its own inside within(); it did not run. Just call it."
        raise UsageError(message)


class SentFromPage(UsageError):
    """An item of a page that commits as a whole was to send a request: the program has to be changed."""


class RunningHandler(msgspec.Struct, frozen=True, eq=False):
    """A handler that is running: of which call, on which store, and inside which other handler."""

    call: AttemptState
    store: str
    outer: RunningHandler | None


class JoinedTransaction(msgspec.Struct, eq=False):
    """A transaction of the caller that operations on this store join, until it is over."""

    store: str
    joined: Any
    outer: JoinedTransaction | None
    over: bool = False


current_handler: contextvars.ContextVar[RunningHandler | None] = contextvars.ContextVar("semel_handler", default=None)
current_transaction: contextvars.ContextVar[JoinedTransaction | None] = contextvars.ContextVar(
    "semel_transaction", default=None
)
current_page: contextvars.ContextVar[bool] = contextvars.ContextVar("semel_page", default=False)
current_step: contextvars.ContextVar[str] = contextvars.ContextVar("semel_step", default="")


def is_in_handler(store: str) -> bool:
    """Whether a handler whose record is in this store is running here."""
    running = current_handler.get()
    while running is not None:
        if running.store == store:
            return True
        running = running.outer
    return False


@contextmanager
def in_step(name: str) -> Iterator[None]:
    """What is asked for inside belongs to that step."""
    token = current_step.set(name)
    try:
        yield
    finally:
        current_step.reset(token)


@contextmanager
def in_page() -> Iterator[None]:
    """What is called inside is part of a page of a batch that commits as a whole: its items have no keys."""
    token = current_page.set(True)
    try:
        yield
    finally:
        current_page.reset(token)


def derived_here(what: str) -> str | None:
    """A key for the next service, for what the running attempt asks for; None outside of a handler.

    The same on every attempt that asks in the same order: the n-th time for this in the same step, or outside of all.
    The step counts, because a finished one is passed over by the next attempt, and what follows must not move up.

    Raises:
        LeaseLost: the attempt is no longer the owner.
        SentFromPage: it is asked for in a page that commits as a whole, which may be rolled back and run again.
    """
    if current_page.get():
        message = (
            'A request was to be sent from an item under commit="page", whose page may be rolled back and run again; '
            'it was not sent. Effects outside the database belong to commit="item".'
        )
        raise SentFromPage(message)
    running = current_handler.get()
    if running is None or not running.call.active:
        return None
    running.call.check()
    return running.call.derive_next(current_step.get(), what)


@contextmanager
def joining(store: str, joined: Any | None) -> Iterator[JoinedTransaction | None]:
    """Operations on this store join the caller's transaction inside; without one nothing changes."""
    if joined is None:
        yield None
        return
    member = JoinedTransaction(store, joined, current_transaction.get())
    token = current_transaction.set(member)
    try:
        yield member
    finally:
        current_transaction.reset(token)


def refuse_reentry(key: Key, store: str) -> None:
    """Stop a handler that asks for a key it is itself running.

    Raises:
        KeyReentered: waiting for it would never end.
    """
    running = current_handler.get()
    while running is not None:
        if running.call.active and running.store == store and running.call.key.digest == key.digest:
            raise call_errors.key_reentered_error(key)
        running = running.outer


def no_attempt_error(engine: object) -> UsageError:
    """The error where `current()` is asked of an engine that runs no handler here."""
    if current_handler.get() is None:
        return UsageError("current() was called outside a handler; there is no attempt here.")
    return UsageError(
        f"current() of {engine!r} was called inside a handler that another engine runs; there is no attempt of this "
        f"one here. Ask the engine that runs the handler."
    )


def joined_here(store: str) -> Any | None:
    """The caller's transaction on this store, if the code runs inside one."""
    transaction = current_transaction.get()
    while transaction is not None:
        if transaction.store == store and not transaction.over:
            return transaction.joined
        transaction = transaction.outer
    return None


def threads_of(call: AttemptState) -> list[Future[Any]]:
    """The work that threads, started from a handler by `asyncio.to_thread`, are still doing.

    A thread cannot be cancelled: when its handler is, it goes on. An executor runs such work in a copy of the
    handler's context, and that copy shows in the stack of its thread.
    """
    stacks = sys._current_frames().values()  # noqa: SLF001 - there is no public way to see another thread
    return [work for stack in stacks if (work := _work_in(stack, call)) is not None]


def async_threads_of(call: AttemptState, error: BaseException) -> Sequence[Future[Any]]:
    """The work of threads that goes on although the handler which started them was cancelled."""
    return threads_of(call) if isinstance(error, asyncio.CancelledError) else ()


def sync_threads_of(_call: AttemptState, _error: BaseException) -> Sequence[Future[Any]]:
    """None: a handler in a thread is not cancelled."""
    return ()


def _work_in(stack: FrameType | None, call: AttemptState) -> Future[Any] | None:
    while stack is not None:
        item = stack.f_locals.get("self") if stack.f_code.co_name == "run" else None
        called = getattr(item, "fn", None)
        copy = getattr(called.func, "__self__", None) if isinstance(called, functools.partial) else None
        running = copy.get(current_handler) if isinstance(copy, contextvars.Context) else None
        if running is not None and running.call is call:
            work = getattr(item, "future", None)
            return work if isinstance(work, Future) else None
        stack = stack.f_back
    return None
