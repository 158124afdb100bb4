"""A lane for one event loop: one task leads while there is something to send.

What always holds: a round is never cut short by a cancelled caller, because it runs in a task of its own; what was
granted to a caller who is gone is given back. With an eager driver, which needs no task to itself, an answer that is
at hand without waiting is given without a detour.

It uses no more of an event loop than `Loop`, so the simulator drives the very same coroutines.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Protocol

from semel.core.circuit import Change
from semel.core.operations import Answer, Operation
from semel.core.store import Answers, AsyncDriver
from semel.engine.lane import Lane, Round, Ticket

_AT_A_STRETCH = 32


class Loop(Protocol):
    """What a lane needs of its event loop."""

    def create_future(self) -> Any:
        """Something to await, which has `done` and `set_result`."""

    def create_task(self, coroutine: Coroutine[Any, Any, None], /) -> Any:
        """Run a coroutine beside everything else."""

    def call_soon(self, function: Callable[[], None], /) -> Any:
        """Call a function in the next turn."""


class AsyncLane:
    """The lane of one event loop: the running one, if none is given. `tell` hears what becomes of the store."""

    def __init__(
        self, lane: Lane, driver: AsyncDriver, tell: Callable[[Change], None], loop: Loop | None = None
    ) -> None:
        self._lane = lane
        self._driver = driver
        self._tell = tell
        self._loop: Loop = loop or asyncio.get_running_loop()
        self._leader: asyncio.Task[None] | None = None
        self._eager: bool = getattr(driver, "eager", False)
        self._gathers: bool = getattr(driver, "gathers", False)
        self._asker: asyncio.Task[Any] | None = None
        self._asked = 0
        self._crowded = False

    async def perform(self, operation: Operation) -> Answer:
        """Have one operation performed, together with whatever else is asked meanwhile."""
        ticket = Ticket(operation)
        if self._lane.submit(ticket):
            try:
                self._start_leading()
            except BaseException:  # an eager round runs in here, and was interrupted
                self._leave(ticket)
                raise
        if ticket.answer is None:
            ticket.seat = self._loop.create_future()
            try:
                await ticket.seat
            except asyncio.CancelledError:
                self._leave(ticket)
                raise
        return ticket.result()

    async def perform_all(self, operations: Sequence[Operation]) -> list[Answer | Exception]:
        """Have a list performed; errors come back as values."""
        tickets = [Ticket(operation) for operation in operations]
        leads = False
        for ticket in tickets:
            leads = self._lane.submit(ticket) or leads
        if leads:
            self._start_leading()
        for ticket in tickets:
            if ticket.answer is None:
                ticket.seat = self._loop.create_future()
                try:
                    await ticket.seat
                except asyncio.CancelledError:
                    self._leave(ticket)
                    raise
        return [ticket.answer for ticket in tickets if ticket.answer is not None]

    def _leave(self, ticket: Ticket) -> None:
        """The caller was cancelled."""
        self._lane.abandon(ticket)
        if self._lane.idle():
            self._start_leading()

    def _start_leading(self) -> None:
        leading = self._lead()
        if not self._eager or (self._gathers and self._others_ask()):
            self._leader = self._loop.create_task(leading)
            return
        try:
            first = leading.send(None)
        except StopIteration:
            return
        self._leader = self._loop.create_task(_rest(leading, first))

    def _others_ask(self) -> bool:
        """Whether several tasks ask: two in one turn of the loop, and from then on until a round was for one alone.

        Somebody who asks again and again without waiting is made to, so that the others get their turn.
        """
        if not self._crowded:
            task = asyncio.current_task()
            if self._asker is None:
                self._asker, self._asked = task, 0
                self._loop.call_soon(self._next_turn)
            self._asked += 1
            self._crowded = self._asker is not task or self._asked > _AT_A_STRETCH
        return self._crowded

    def _next_turn(self) -> None:
        self._asker = None

    async def _lead(self) -> None:
        while True:
            round_ = self._lane.take()
            self._crowded = sum(map(len, round_)) > 1
            replies: list[Answers | Exception] | None
            try:
                replies = await self._driver.perform(self._lane.plans(round_)) if round_ else []
            except Exception as error:  # noqa: BLE001 - a failing driver fails its round, not the lane
                replies = [error] * len(round_)
            except asyncio.CancelledError:
                # The loop is being shut down. Callers still have things to write down, so the lane must not die:
                # whether this round took effect is not known, and what matters is sent again.
                replies = None
            except GeneratorExit:
                raise  # dropped together with its loop
            except BaseException:
                # An interrupt ends the loop's turn, not the lane: whoever runs the loop again, to clean up, needs it.
                if self._settled(round_, None):
                    self._leader = self._loop.create_task(self._lead())
                raise
            if not self._settled(round_, replies):
                return

    def _settled(self, round_: Round, replies: Sequence[Answers | Exception] | None) -> bool:
        """Hand out the replies; whether there is more to send."""
        for ticket in self._lane.settle(round_, replies):
            if ticket.seat is not None and not ticket.seat.done():
                ticket.seat.set_result(None)
        for change in self._lane.changes():
            self._tell(change)
        return self._lane.hand_over() is not None

    async def close(self) -> None:
        """Let the round on its way come home."""
        leader = self._leader
        if leader is not None and not leader.done():
            await asyncio.wait([leader])


@types.coroutine
def _rest_of(started: Coroutine[Any, Any, None], first: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that has already been started and waits for `first`."""
    wanted = first
    while True:
        try:
            got = yield wanted
        except BaseException as error:  # noqa: BLE001 - handed on to where it belongs
            step: Callable[[], Any] = functools.partial(started.throw, error)
        else:
            step = functools.partial(started.send, got)
        try:
            wanted = step()
        except StopIteration:
            return


async def _rest(started: Coroutine[Any, Any, None], first: Any) -> None:
    await _rest_of(started, first)
