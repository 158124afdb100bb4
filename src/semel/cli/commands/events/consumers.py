"""`semel events consume`: hand the messages of a broker to a consumer until it is ended."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from threading import Lock
from typing import Annotated, Any, Final, cast

import typer
from rich.table import Table

from semel.cli.commands.events.broker import chosen_broker, listen_to, reaching, show_address
from semel.cli.commands.events.letters import ConsumerPath, load_consumer
from semel.cli.commands.events.live import AsJson, Every, Rate, number_table, showing, stop_signals
from semel.cli.printing import as_text
from semel.cli.store_option import BrokerUrl, Durable, Group, Queue, Stream
from semel.cli.timefmt import duration
from semel.core.events.letters import operation_of
from semel.errors import EventInvalid, StoreMisconfigured, TryLater
from semel.events import Consumer, Disposition, Event

_TYPE_HEADERS: Final = ("ce-type", "cloudEvents_type", "cloudEvents:type", "ce_type")
_UNREADABLE: Final = "(unreadable)"
_OTHERS: Final = "(others)"
_MOST_TYPES: Final = 100
"""Types are chosen by those who send events; no more of them are told apart."""
_COLUMNS: Final = ("received", "processed", "duplicates", "ignored", "retried", "dead_letters", "in_flight")
_BY_STATUS: Final = {"processed": "processed", "duplicate": "duplicates", "ignored": "ignored"}


def consume(
    path: ConsumerPath,
    *,
    broker: BrokerUrl = None,
    queue: Queue = None,
    stream: Stream = None,
    durable: Durable = None,
    group: Group = None,
    event_id: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="SQS: where the id of the producer is in a body that is no CloudEvent, such as detail.event_id.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many handlers run at a time.")] = 64,
    stop_within: Annotated[
        str, typer.Option(metavar="DURATION", help="How long handlers that run are waited for at the end.")
    ] = "30s",
    every: Every = "10s",
    as_json: AsJson = False,
) -> None:
    """Take events from a queue of RabbitMQ or SQS, or a stream of NATS or Redis, until Ctrl-C or SIGTERM.

    Then nothing more is taken, what waits goes back, and handlers that run are waited for. A second signal ends it at
    once; what was not acknowledged is delivered again.
    """
    url = chosen_broker(broker)
    consumer = load_consumer(path)
    receiver = CountedConsumer(consumer)
    listener = listen_to(
        receiver,
        url,
        {"queue": queue, "stream": stream, "durable": durable, "group": group, "event_id": event_id},
        {"concurrency": concurrency, "stop_within": duration(stop_within)},
    )
    rate, title = Rate(), f"consumer {consumer.name}, {show_address(url)}, {queue or stream}"

    async def look() -> tuple[dict[str, Any], Table]:
        figures = receiver.counts() | {"rate": rate.of(receiver.received)}
        return figures, _table(title, figures)

    async def run() -> None:
        stop = asyncio.Event()
        try:
            await _check_store(consumer)
            with stop_signals(stop.set):
                async with showing(look, every=duration(every), as_json=as_json), AsyncExitStack() as stack:
                    async with reaching(url):
                        await stack.enter_async_context(listener)
                    await stop.wait()
        finally:
            closing = consumer.semel.close()
            if inspect.isawaitable(closing):
                await closing

    asyncio.run(run())


async def _check_store(consumer: Consumer[Any]) -> None:
    """Ask the store for a record, before anything is taken that would only come again.

    Raises:
        StoreMisconfigured: it refuses its address or its login, which time does not mend. One that is away for now is
            waited for, as the listener does.
        SchemaOutdated: its tables are not those of this release.
    """
    try:
        found: object = consumer.semel.read("the store answers", operation=operation_of(consumer.name))
        if inspect.isawaitable(found):
            await found
    except StoreMisconfigured:
        raise
    except TryLater:
        return


class CountedConsumer:
    """A consumer as listeners use it, which counts what came of its deliveries, by type."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self._consumer = consumer
        self.name = consumer.name
        self.policy = consumer.policy
        self.is_async = consumer.is_async
        self._counts: dict[str, Counter[str]] = {}
        self._lock = Lock()  # handlers of a Semel run in threads

    def receive(self, headers: Mapping[str, Any], body: bytes) -> Any:
        """Hand it to the consumer."""
        counts = self._begin(headers, body)
        if self.is_async:
            return self._receive(counts, headers, body)
        disposition: Disposition | None = None
        try:
            disposition = cast("Disposition", self._consumer.receive(headers, body))
            return disposition
        finally:
            self._end(counts, disposition)

    async def _receive(self, counts: Counter[str], headers: Mapping[str, Any], body: bytes) -> Disposition:
        disposition: Disposition | None = None
        try:
            delivery: Awaitable[Disposition] = self._consumer.receive(headers, body)
            disposition = await delivery
            return disposition
        finally:
            self._end(counts, disposition)

    def _begin(self, headers: Mapping[str, Any], body: bytes) -> Counter[str]:
        type_ = type_of(headers, body)
        with self._lock:
            if type_ not in self._counts and len(self._counts) >= _MOST_TYPES:
                type_ = _OTHERS
            counts = self._counts.setdefault(type_, Counter())
            counts["received"] += 1
            counts["in_flight"] += 1
        return counts

    def _end(self, counts: Counter[str], disposition: Disposition | None) -> None:
        with self._lock:
            counts["in_flight"] -= 1
            if disposition is None:
                return  # interrupted: it is delivered again
            match disposition.action:
                case "ack":
                    counts[_BY_STATUS.get(disposition.status, "ignored")] += 1
                case "retry":
                    counts["retried"] += 1
                case "dead_letter":
                    counts["dead_letters"] += 1

    @property
    def received(self) -> int:
        """How many deliveries there were."""
        with self._lock:
            return sum(counts["received"] for counts in self._counts.values())

    def counts(self) -> dict[str, Any]:
        """What came of all deliveries, and of those of each type."""
        with self._lock:
            types = {type_: {name: counts[name] for name in _COLUMNS} for type_, counts in sorted(self._counts.items())}
        figures: dict[str, Any] = {name: sum(counts[name] for counts in types.values()) for name in _COLUMNS}
        return figures | {"types": types}


def type_of(headers: Mapping[str, Any], body: bytes) -> str:
    """The type of an event that has not been read yet."""
    for name in _TYPE_HEADERS:
        if isinstance(found := headers.get(name), str):
            return found
    try:
        return Event.from_headers(dict(headers), body).type
    except EventInvalid:
        return _UNREADABLE


def _table(title: str, figures: dict[str, Any]) -> Table:
    grid = number_table("type", *(name.replace("_", " ") for name in _COLUMNS), title=title)
    for type_, counts in figures["types"].items():
        grid.add_row(as_text(type_), *(str(counts[name]) for name in _COLUMNS))
    grid.add_section()
    grid.add_row(f"all, {figures['rate']:g} a second", *(str(figures[name]) for name in _COLUMNS), style="bold")
    return grid
