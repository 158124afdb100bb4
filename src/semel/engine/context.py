"""What the code inside a handler can ask about its surroundings: which attempt it is, which transaction it is in.

What always holds: an attempt is current exactly while its handler runs, in that handler's context and in what it
started from there. A key that is running further up the same context is not asked for again.
"""

from __future__ import annotations

import contextvars
import functools
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec

from semel.core.key import Key
from semel.engine import call_errors
from semel.engine.attempt import AttemptState


class Place(msgspec.Struct, frozen=True, eq=False):
    """A handler that is running: whose attempt it is, on which store, and what surrounds it."""

    attempt: Any
    state: AttemptState
    store: str
    outer: Place | None


class Membership(msgspec.Struct, eq=False):
    """A transaction of the caller that operations on this store join, until it is over."""

    store: str
    joined: Any
    outer: Membership | None
    over: bool = False


current_place: contextvars.ContextVar[Place | None] = contextvars.ContextVar("semel_place", default=None)
current_membership: contextvars.ContextVar[Membership | None] = contextvars.ContextVar("semel_membership", default=None)
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
    place = current_place.get()
    if place is None or not place.state.active:
        return None
    place.state.check()
    return place.state.derive_next(current_step.get(), what)


@contextmanager
def joining(store: str, joined: Any | None) -> Iterator[Membership | None]:
    """Operations on this store join the caller's transaction inside; without one nothing changes."""
    if joined is None:
        yield None
        return
    member = Membership(store, joined, current_membership.get())
    token = current_membership.set(member)
    try:
        yield member
    finally:
        current_membership.reset(token)


def refuse_reentry(key: Key, store: str) -> None:
    """Stop a handler that asks for a key it is itself running.

    Raises:
        KeyReentered: waiting for it would never end.
    """
    place = current_place.get()
    while place is not None:
        if place.state.active and place.store == store and place.state.key.digest == key.digest:
            raise call_errors.reentered(key)
        place = place.outer


def joined_here(store: str) -> Any | None:
    """The caller's transaction on this store, if the code runs inside one."""
    membership = current_membership.get()
    while membership is not None:
        if membership.store == store and not membership.over:
            return membership.joined
        membership = membership.outer
    return None


def threads_of(state: AttemptState) -> list[Future[Any]]:
    """The work that threads, started from a handler by `asyncio.to_thread`, are still doing.

    A thread cannot be cancelled: when its handler is, it goes on. An executor runs such work in a copy of the
    handler's context, and that copy shows in the stack of its thread.
    """
    stacks = sys._current_frames().values()  # noqa: SLF001 - there is no public way to see another thread
    return [work for stack in stacks if (work := _work_in(stack, state)) is not None]


def _work_in(stack: FrameType | None, state: AttemptState) -> Future[Any] | None:
    while stack is not None:
        item = stack.f_locals.get("self") if stack.f_code.co_name == "run" else None
        called = getattr(item, "fn", None)
        copy = getattr(called.func, "__self__", None) if isinstance(called, functools.partial) else None
        place = copy.get(current_place) if isinstance(copy, contextvars.Context) else None
        if place is not None and place.state is state:
            work = getattr(item, "future", None)
            return work if isinstance(work, Future) else None
        stack = stack.f_back
    return None
