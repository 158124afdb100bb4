"""Publishing to services that take ten events by one request: which go together, and what came of each.

- Many requests are on their way side by side. A request that got no answer fails the whole call, and the caller
  publishes again what was not confirmed.
- A request may fail in part: each event has an answer of its own.
- Of one group one event is on its way at a time, so that none overtakes one that has to be sent again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from semel.errors import UsageError
from semel.events.brokers.aws import POOL, Address, connect
from semel.events.event import Event

IN_FLIGHT: Final = 320
"""Events that are on their way side by side."""
_IN_ONE_REQUEST: Final = 10
_MORE: Final = 5.0
"""Seconds by which the SDK waits longer than we do, so that there is one who gives up."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An event as a service takes it.

    Attributes:
        target: where it goes; a request is for one.
        fields: what the service is told of it.
        size: how many bytes the service counts.
        group: events of one group keep their order.
    """

    target: str
    fields: dict[str, Any]
    size: int
    group: str | None = None


Answer = Exception | None


class BatchPublisher(ABC):
    """Sends events, many at a time, and says of each whether the service has it."""

    service: ClassVar[str]
    """As the SDK calls it."""
    title: ClassVar[str]
    """As people call it."""
    most_bytes: ClassVar[int]
    """Of all events of one request."""

    def __init__(self, address: Address, confirm_within: timedelta, in_flight: int, options: dict[str, Any]) -> None:
        if not isinstance(in_flight, int) or not 1 <= in_flight <= POOL * _IN_ONE_REQUEST:
            raise UsageError(f"in_flight is a whole number from 1 to {POOL * _IN_ONE_REQUEST}; nothing was sent.")
        self._address = address
        self._confirm_within = confirm_within.total_seconds()
        self._requests = asyncio.Semaphore(max(1, in_flight // _IN_ONE_REQUEST))
        self._options = options
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections."""
        self._client = None
        await self._stack.aclose()

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Send events; gives for each None, or why the service does not have it.

        Raises:
            ConnectionError: the service cannot be reached; it may have some of them.
            UsageError: the credentials or the settings have to be changed.
        """
        try:
            async with asyncio.timeout(self._confirm_within):
                return await self._publish(events)
        except TimeoutError as error:
            raise self._lost("it did not answer in time") from error
        except ConnectionError as error:
            raise self._lost(str(error)) from error

    def _lost(self, reason: str) -> ConnectionError:
        return ConnectionError(
            f"{self.title} could not be reached, or did not confirm ({reason}); what was not confirmed has to be "
            f"published again."
        )

    async def _publish(self, events: Sequence[Event]) -> list[Answer]:
        client = await self._connect()
        answers: list[Answer] = [None] * len(events)
        entries: dict[int, Entry] = {}
        for place, event in enumerate(events):
            try:
                entries[place] = await self._prepare(client, event)
            except (ConnectionError, UsageError):
                raise
            except Exception as error:  # noqa: BLE001 - of this event alone
                answers[place] = error
        held: dict[tuple[str, str | None], Exception] = {}
        for wave in _waves(entries):
            ready: dict[int, Entry] = {}
            for place in wave:
                answers[place] = held.get((entries[place].target, entries[place].group))
                if answers[place] is None:
                    ready[place] = entries[place]
            for place, answer in (await self._send_together(client, ready)).items():
                answers[place] = answer
                if isinstance(answer, OSError) and ready[place].group is not None:
                    held[ready[place].target, ready[place].group] = answer  # none of its group may go before it
        return answers

    async def _send_together(self, client: Any, entries: dict[int, Entry]) -> dict[int, Answer]:
        """Send entries that may be on their way at the same time."""
        batches = list(self._batches(entries))
        replies = await asyncio.gather(
            *(self._send_one_of_many(client, [entries[place] for place in batch]) for batch in batches),
            return_exceptions=True,
        )
        answers: dict[int, Answer] = {}
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, BaseException):
                raise reply
            answers |= zip(batch, reply, strict=True)
        return answers

    async def _connect(self) -> Any:
        async with self._lock:
            if self._client is None:
                within = self._confirm_within + _MORE
                client = connect(self.service, self._address, read_within=within, **self._options)
                self._client = await self._stack.enter_async_context(client)
            return self._client

    async def _send_one_of_many(self, client: Any, entries: Sequence[Entry]) -> Sequence[Answer]:
        async with self._requests:
            return await self._send(client, entries)

    @abstractmethod
    async def _prepare(self, client: Any, event: Event) -> Entry:
        """What the service is told of an event.

        Raises:
            Exception: it cannot take this one.
        """

    @abstractmethod
    async def _send(self, client: Any, entries: Sequence[Entry]) -> Sequence[Answer]:
        """Send up to ten, all to the same target.

        Raises:
            ConnectionError: there was no answer.
            UsageError: the service refuses whatever we send.
        """

    def _batches(self, entries: dict[int, Entry]) -> Iterator[list[int]]:
        """Which of them go by one request: up to ten for one target, no larger together than the service takes."""
        open_: dict[str, tuple[list[int], int]] = {}
        for place, entry in entries.items():
            batch, size = open_.get(entry.target, ([], 0))
            if batch and (len(batch) == _IN_ONE_REQUEST or size + entry.size > self.most_bytes):
                yield batch
                batch, size = [], 0
            batch.append(place)
            open_[entry.target] = batch, size + entry.size
        for batch, _ in open_.values():
            yield batch


def _waves(entries: dict[int, Entry]) -> list[list[int]]:
    """Which may be on their way at the same time: of one group one in each wave, in their order."""
    waves: list[list[int]] = []
    seen: dict[tuple[str, str], int] = {}
    for place, entry in entries.items():
        number = 0
        if entry.group is not None:
            number = seen.get((entry.target, entry.group), 0)
            seen[entry.target, entry.group] = number + 1
        while len(waves) <= number:
            waves.append([])
        waves[number].append(place)
    return waves
