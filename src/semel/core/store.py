"""The port that stores implement: a plan for a list of operations, and drivers that carry commands out.

What always holds: `plan` is colour-free and takes operations of one kind; it returns one answer per operation, in
order, and an error of one is its answer, never its neighbours'. A driver's round has taken effect durably when it
returns. Nothing connects before it is used, and nothing is shared with a forked process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from semel.core.operations import Answer, Operation

Plan = Generator[Any, Any, list[Answer | Exception]]
Answers = list[Answer | Exception]


class Driver(Protocol):
    """Carries out rounds of plans on connections of its own.

    A driver whose store can tell of ends may have a method `listen(told)`: from then on `told(digest)` is called, in
    any thread, when a run ends that was read with `waits`. Nobody relies on it: whoever waits also looks by itself.
    """

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run one round. The reply of a plan is its answers, or the error that befell all of it."""

    def close(self) -> None:
        """Let go of every connection."""


class AsyncDriver(Protocol):
    """The same, awaited.

    A driver may say `eager = True` if its `perform` may be started outside a task of its own: it awaits nothing but
    plain futures of the running loop. A lane then gives answers that are at hand without waiting. With `gathers = True`
    it does so only for an asker who is alone: what several tasks ask in one turn of the loop is cheaper together. Its
    `listen(told)`, where it has one, calls `told` in that loop.
    """

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run one round. The reply of a plan is its answers, or the error that befell all of it."""

    async def close(self) -> None:
        """Let go of every connection."""


class Joined(Protocol):
    """The caller's own connection, made usable for single operations inside the caller's transaction."""

    def perform(self, plan: Plan) -> Answers:
        """Run one plan. Never begins, commits, rolls back or retries.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """


class AsyncJoined(Protocol):
    """The same, awaited."""

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan. Never begins, commits, rolls back or retries."""


class Batching(Protocol):
    """What a lane needs: a name, how many operations go together, and what to send for them."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def batch(self) -> int:
        """How many operations a lane may send together."""

    def plan(self, operations: Sequence[Any], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""


class Store(Protocol):
    """A place that keeps records. One that has tiers (`semel.core.tiers`) says so with `tiers = True`.

    One whose connections come from a pool of the caller, which belongs to the caller's event loop, has an attribute
    `separate_async_driver`: what makes a driver for another loop, or None where there is no such thing.
    """

    @property
    def name(self) -> str:
        """What the store is called in messages: never with a password."""

    @property
    def batch(self) -> int:
        """How many operations a lane may send together."""

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""

    def driver(self) -> Driver:
        """A driver for threads of this process."""

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""

    def join(self, connection: Any) -> Joined:
        """The caller's connection as a place for plans.

        Raises:
            UsageError: this store cannot join that kind of connection.
        """

    def async_join(self, connection: Any) -> AsyncJoined:
        """The same for connections that are awaited."""


def maker_of_separate_drivers(store: Store) -> Callable[[], AsyncDriver] | None:
    """What makes a driver for an event loop of semel's own; None: all connections belong to the caller's loop."""
    make: Callable[[], AsyncDriver] | None = getattr(store, "separate_async_driver", store.async_driver)
    return make
