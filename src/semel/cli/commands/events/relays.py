"""`semel events relay`: publish what is in an outbox until it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from semel.cli.commands.events.broker import adapter_of, chosen_broker, kind_of, refuse_options
from semel.cli.commands.events.live import AsJson, Every, Rate, number_table, showing, stop_signals
from semel.cli.commands.events.outboxes import lag_flow
from semel.cli.exit_codes import usage_error
from semel.cli.printing import as_text
from semel.cli.store_option import BrokerUrl, load_object, open_async_engine
from semel.cli.timefmt import duration
from semel.engine.engine import engine_of
from semel.errors import SemelError, TryLater
from semel.events import Event, Outbox, Relay
from semel.texts import span

_COLUMNS: Final = ("published", "parked", "in_flight", "waiting", "oldest")
_MOST_COUNTED: Final = 10_000
_TYPE: Final = "{type}"


def relay(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:RELAY|URL",
            help="Your Relay object, or where the outbox is, as for other commands; then --broker says where to.",
            show_default=False,
        ),
    ] = None,
    *,
    broker: BrokerUrl = None,
    stream: Annotated[
        str | None, typer.Option(help="The stream of the outbox. Default: default.", show_default=False)
    ] = None,
    exchange: Annotated[str | None, typer.Option(help="RabbitMQ: the exchange.", show_default=False)] = None,
    routing_key: Annotated[
        str | None,
        typer.Option(help=f"RabbitMQ: the routing key; {_TYPE} stands for the event's type. Default: the type."),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(help=f"NATS: the subject; {_TYPE} stands for the event's type. Default: the type."),
    ] = None,
    target_stream: Annotated[
        str | None,
        typer.Option(help=f"Redis: the stream it goes to; {_TYPE} stands for the event's type. Default: the type."),
    ] = None,
    target_queue: Annotated[
        str | None,
        typer.Option(help=f"SQS: the queue it goes to; {_TYPE} stands for the event's type.", show_default=False),
    ] = None,
    bus: Annotated[str | None, typer.Option(help="EventBridge: the bus. Default: default.", show_default=False)] = None,
    parts: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Into how many parts relays share the stream. Default: 1.", show_default=False
        ),
    ] = None,
    every: Every = "10s",
    as_json: AsJson = False,
) -> None:
    """Publish the events of an outbox, until Ctrl-C or SIGTERM.

    Then what is on its way is waited for and saved. Several relays may run at the same time. A Relay object brings its
    own outbox, publisher and settings.
    """
    if what is not None and ":" in what and "://" not in what:
        named = (exchange, routing_key, subject, target_stream, target_queue, bus)
        if any(option is not None for option in (stream, parts, *named)):
            message = "A Relay object brings its own stream, parts and addresses, so no options can be given beside it"
            raise usage_error(f"{message}; nothing was done.")
        opening = _open_loaded(what)
    else:
        targets = {
            "routing_key": routing_key,
            "subject": subject,
            "target_stream": target_stream,
            "target_queue": target_queue,
            "bus": bus,
        }
        publisher = _publisher(chosen_broker(broker), targets, {"exchange": exchange})
        opening = _open_new(what, stream or "default", parts or 1, publisher)
    asyncio.run(_run(opening, every=every, as_json=as_json))


def load_relay(path: str) -> Relay:
    """The relay named `package.module:object`.

    Raises:
        Refused: there is no such object, or it is none.
    """
    found = load_object(path)
    if not isinstance(found, Relay):
        raise usage_error(f"{path} is a {type(found).__qualname__}, not a Relay; nothing was done.")
    return found


@asynccontextmanager
async def _open_loaded(path: str) -> AsyncIterator[Relay]:
    found = load_relay(path)
    try:
        yield found
    finally:
        close = getattr(found.publisher, "close", None)
        if close is not None:
            await close()
        await found.outbox.semel.close()


@asynccontextmanager
async def _open_new(url: str | None, stream: str, parts: int, publisher: Any) -> AsyncIterator[Relay]:
    async with open_async_engine(url) as semel, publisher:
        yield Relay(Outbox(semel, stream), publisher, parts=parts)


def make_publisher(url: str, target: str | None = None, exchange: str | None = None) -> Any:
    """The publisher of the broker at an address; `target` is where events go, in the words of that broker.

    Raises:
        Refused: there is no such broker, or it needs more than that.
    """
    if url.startswith(("rabbitmq://", "rabbitmqs://")):
        url = "amqp" + url.removeprefix("rabbitmq")
    kind = kind_of(url)
    return _publisher(url, {kind.target_option: target}, {"exchange": exchange})


def _publisher(url: str, targets: Mapping[str, str | None], further: Mapping[str, str | None]) -> Any:
    kind = kind_of(url)
    option = kind.target_option
    refuse_options(kind, **{name: value for name, value in targets.items() if name != option})
    refuse_options(kind, **{name: value for name, value in further.items() if name not in kind.further})
    options = {name: value for name, value in further.items() if value is not None}
    pattern = targets[option] or kind.usual_target
    if pattern is None:
        name = option.replace("_", "-")
        raise usage_error(
            f"{kind.title} has no place that events go to by themselves; nothing was done. Give --{name}."
        )
    return adapter_of(kind).publisher(url, **{kind.target: _address(pattern)}, **options)


def _address(pattern: str) -> Callable[[Event], str]:
    """Where an event goes: the pattern, with the event's type put in."""
    return lambda event: pattern.replace(_TYPE, event.type)


async def _run(opening: AbstractAsyncContextManager[Relay], *, every: str, as_json: bool) -> None:
    async with opening as running:
        rate = Rate()

        async def look() -> tuple[dict[str, Any], Table]:
            figures = await _tell(running)
            figures["rate"] = rate.of(figures["published"])
            return figures, _table(running.outbox.stream, figures)

        with stop_signals(running.stop):
            async with showing(look, every=duration(every), as_json=as_json):
                await _run_relay(running)


async def _run_relay(running: Relay) -> None:
    """Run it; of several errors at the same time, one is told.

    Raises:
        SemelError: the program or the database has to be changed.
    """
    try:
        await running.run()
    except ExceptionGroup as errors:
        known: BaseException | None = errors.subgroup(SemelError)
        if known is None:
            raise
        while isinstance(known, BaseExceptionGroup):
            known = known.exceptions[0]
        raise known from errors


async def _tell(running: Relay) -> dict[str, Any]:
    progress = running.progress
    figures: dict[str, Any] = {
        "stream": running.outbox.stream,
        "published": progress.published,
        "parked": progress.parked,
        "in_flight": progress.in_flight,
        "waiting": None,
        "oldest": None,
    }  # None: the store did not answer, or nothing waits
    try:
        measured = await engine_of(running.outbox.semel).perform_on(
            None, lag_flow(running.outbox.stream, _MOST_COUNTED)
        )
    except TryLater:
        return figures  # the relay goes on trying; the next look may be answered
    figures["waiting"] = 0
    for lag in measured.streams:
        figures["waiting"] = lag.waiting
        if lag.oldest_us is not None:
            figures["oldest"] = round((measured.now_us - lag.oldest_us) / 1e6, 3)
    return figures


def _table(stream: str, figures: dict[str, Any]) -> Table:
    grid = number_table("stream", *(name.replace("_", " ") for name in _COLUMNS), "a second")
    oldest = "" if figures["oldest"] is None else span(timedelta(seconds=figures["oldest"]))
    waiting = "?" if figures["waiting"] is None else str(figures["waiting"])
    numbers = (figures["published"], figures["parked"], figures["in_flight"])
    grid.add_row(as_text(stream), *map(str, numbers), waiting, oldest, f"{figures['rate']:g}")
    return grid
