"""What the code inside a handler can ask about its surroundings: which attempt it is, which transaction it is in.

What always holds: an attempt is current exactly while its handler runs, in that handler's context and in what it
started from there. A key that is running further up the same context is not asked for again.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec

from semel.core.key import Key
from semel.engine import call_errors
from semel.engine.attempt import AttemptState


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
current_step: contextvars.ContextVar[str] = contextvars.ContextVar("semel_step", default="")


@contextmanager
def in_step(name: str) -> Iterator[None]:
    """What is asked for inside belongs to that step."""
    token = current_step.set(name)
    try:
        yield
    finally:
        current_step.reset(token)


def derived_here(what: str) -> str | None:
    """A key for the next service, for what the running attempt asks for; None outside of a handler.

    The same on every attempt that asks in the same order: the n-th time for this in the same step, or outside of all.
    The step counts, because a finished one is passed over by the next attempt, and what follows must not move up.

    Raises:
        LeaseLost: the attempt is no longer the owner.
    """
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
            raise call_errors.reentered(key)
        running = running.outer


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
