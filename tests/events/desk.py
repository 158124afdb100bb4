"""A consumer of either kind on any store, whose handlers and hooks are written once, as plain functions.

What always holds: engine and store live on one virtual clock, so that no lease ends by the speed of a machine.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from semel import AsyncSemel, Semel
from semel.engine.decorator import resolved_hints
from semel.events import Backoff, Consumer, DeadLetter, Disposition, Event
from semel.testing import VirtualClock

NO_CHANCE = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=10), spread=0)
TYPE = "asset.registered"


class Registered(msgspec.Struct):
    """The data of an event."""

    capacity_kw: int


class Declined(Exception):
    """A final error."""


def an_event(**changes: Any) -> Event:
    """An event that is the same whenever it is made."""
    given: dict[str, Any] = {"type": TYPE, "source": "/facilities/7", "id": "e-1", "subject": "asset-1"}
    return Event(**{**given, "data": {"capacity_kw": 50}, **changes})


def fail(error: BaseException) -> Callable[..., Any]:
    """A handler that raises."""

    def raising() -> None:
        raise error

    return raising


@dataclass
class Desk:
    """Engine, clock and store of one consumer."""

    is_async: bool
    clock: VirtualClock
    store: Any
    runner: asyncio.Runner

    def __post_init__(self) -> None:
        self.semel: Any = self._engine()

    def _engine(self) -> Any:
        return (AsyncSemel if self.is_async else Semel)(self.store, clock=self.clock)

    def wait(self, given: Any) -> Any:
        """What comes of a call of either kind."""

        async def awaited() -> Any:
            return await given

        return self.runner.run(awaited()) if inspect.isawaitable(given) else given

    def consumer(self, function: Callable[..., Any], *types: str, **settings: Any) -> Consumer[Any]:
        """A consumer with this handler."""
        consumer: Consumer[Any] = Consumer(self.semel, "billing", **{"backoff": NO_CHANCE, **settings})
        consumer.on(*(types or (TYPE,)))(self.kind(function))
        return consumer

    def kind(self, function: Callable[..., Any]) -> Any:
        """A function of the kind that the engine takes."""
        if not self.is_async:
            return function

        async def run(**given: Any) -> Any:
            return function(**given)

        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        run.__annotations__ = dict(resolved_hints(function))
        return run

    def handle(self, consumer: Consumer[Any], event: Event) -> Disposition:
        """Have an event handled."""
        given: Disposition = self.wait(consumer.handle(event))
        return given

    def every(self, given: Any) -> list[Any]:
        """All that an iterator of either kind gives."""

        async def listed() -> list[Any]:
            return [one async for one in given]

        return self.runner.run(listed()) if self.is_async else list(given)

    def letters(self) -> list[DeadLetter]:
        """The dead letters, as an operator sees them."""
        return self.every(Consumer(self.semel, "billing").dead_letters())

    def record(self, event: Event) -> Any:
        """The record of an event."""
        return self.wait(self.semel.read((event.source, event.id), operation="event:billing"))

    def close(self) -> None:
        """Let go."""
        self.wait(self.semel.close())
