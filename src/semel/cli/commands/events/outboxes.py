"""`semel events lag` and `peek`: what waits in an outbox, and what could not be published. Nothing is moved."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from semel.cli.commands.sweep import Ending
from semel.cli.exit_codes import IN_DOUBT
from semel.cli.printing import as_text, console
from semel.cli.record_view import as_line, iso
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import duration
from semel.core.events.outbox import (
    EventsPeeked,
    LagMeasured,
    MeasureLag,
    OutboxEvent,
    ParkedPage,
    PeekEvents,
    ScanParked,
    StreamLag,
)
from semel.core.flow import Flow, ask
from semel.core.record import instant
from semel.engine.engine import engine_of
from semel.events import Outbox
from semel.events.encoding import show_outbox_event
from semel.texts import span

_MOST_COUNTED: Final = 100_000
_PAGE: Final = 20


def lag(
    url: Url = None,
    *,
    stream: Annotated[str | None, typer.Option(help="Only this stream of the outbox.", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often --watch looks.")] = "2s",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per stream and look.")] = False,
) -> None:
    """Show how many events of each stream wait to be published, since when, and how many are parked.

    The exit code of a single look is 4 if some could not be published: somebody has to release or discard them.
    """
    pause = duration(every).total_seconds()
    with open_engine(url) as semel, Ending() as ending:
        Outbox(semel)  # refuses a store that has none
        engine: Any = engine_of(semel)

        def look() -> LagMeasured:
            measured: LagMeasured = engine.perform_on(None, lag_flow(stream, _MOST_COUNTED))
            return measured

        measured = look()
        if watch and sys.stdout.isatty() and not as_json:
            with Live(_lag_table(measured), console=console(), auto_refresh=False) as live:
                while not ending.asked:
                    live.update(_lag_table(look()), refresh=True)
                    ending.wait(pause)
            return
        while True:
            _print_lag(measured, as_json=as_json)
            if not watch:
                break
            ending.wait(pause)
            if ending.asked:
                return
            measured = look()
    if any(one.failed for one in measured.streams):
        raise typer.Exit(IN_DOUBT)


def peek(
    url: Url = None,
    *,
    stream: Annotated[str, typer.Option(help="The stream of the outbox.")] = "default",
    parked: Annotated[
        bool, typer.Option("--parked", help="What could not be published, and what waits behind it.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = _PAGE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with the event.")] = False,
) -> None:
    """Show the next events of a stream that wait to be published, or those that are parked. Moves nothing.

    Events may hold personal data: their content is shown with --json only.
    """
    with open_engine(url) as semel:
        stream = Outbox(semel, stream).stream
        engine: Any = engine_of(semel)
        found = engine.perform_on(None, _parked_flow(stream, limit) if parked else _peek_flow(stream, limit))
    if as_json:
        for one in found:
            sys.stdout.write(as_line(one) + "\n")
    elif found:
        console().print(_event_table(found, is_parked=parked))
    else:
        console().print("Nothing is parked." if parked else "Nothing waits.", style="dim")


def lag_flow(stream: str | None, most: int) -> Flow[LagMeasured]:
    """Ask how many events wait, of one stream or of each."""
    measured: LagMeasured = yield from ask(MeasureLag(stream, most))
    return measured


def _peek_flow(stream: str, limit: int) -> Flow[list[dict[str, Any]]]:
    peeked: EventsPeeked = yield from ask(PeekEvents(stream, limit))
    return [_event_object(stored.position, stored.event) for stored in peeked.events]


def _parked_flow(stream: str, limit: int) -> Flow[list[dict[str, Any]]]:
    page: ParkedPage = yield from ask(ScanParked(stream, 0, limit))
    return [
        _event_object(one.stored.position, one.stored.event)
        | {
            "error": None if one.error is None else {"type": one.error.type, "message": one.error.message},
            "attempts": one.attempts,
            "parked": iso(instant(one.parked_us)),
        }
        for one in page.events
    ]


def _event_object(position: int, kept: OutboxEvent) -> dict[str, Any]:
    """An event for machines: as CloudEvents' JSON, with its position and key."""
    event = json.loads(show_outbox_event(kept).to_json())
    return {"position": position, "ordering_key": kept.ordering_key, "scope": kept.scope or None, "event": event}


def _lag_object(lag: StreamLag, today: datetime) -> dict[str, Any]:
    oldest = None if lag.oldest_us is None else instant(lag.oldest_us)
    return {
        "stream": lag.stream,
        "waiting": lag.waiting,
        "is_exact": lag.waiting < _MOST_COUNTED,
        "oldest": iso(oldest),
        "oldest_age_s": None if oldest is None else round((today - oldest).total_seconds(), 3),
        "parked": lag.parked,
        "failed": lag.failed,
        "parts": [
            {"part": one.part.number, "parts": one.part.parts, "saved": iso(instant(one.saved_us))} for one in lag.parts
        ],
    }


def _print_lag(measured: LagMeasured, *, as_json: bool) -> None:
    if as_json:
        for one in measured.streams:
            sys.stdout.write(as_line(_lag_object(one, instant(measured.now_us))) + "\n")
        sys.stdout.flush()
    elif measured.streams:
        console().print(_lag_table(measured))
    else:
        console().print("No events, and no relay has run.", style="dim")


def _lag_table(measured: LagMeasured) -> Table:
    today = instant(measured.now_us)
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("stream", overflow="ellipsis", no_wrap=True)
    for name in ("waiting", "oldest", "parked", "failed"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("part, saved")
    for one in measured.streams:
        waiting = f"{one.waiting:,}" if one.waiting < _MOST_COUNTED else f"{_MOST_COUNTED:,} or more"
        oldest = "" if one.oldest_us is None else span(today - instant(one.oldest_us))
        failed = Text(str(one.failed), "bold yellow" if one.failed else "dim")
        parts = ", ".join(
            f"{part.part.number + 1} of {part.part.parts} {span(today - instant(part.saved_us))} ago"
            for part in one.parts
        )
        grid.add_row(
            as_text(one.stream), waiting, oldest, str(one.parked), failed, parts or Text("no relay yet", "dim")
        )
    return grid


def _event_table(found: Sequence[dict[str, Any]], *, is_parked: bool) -> Table:
    """Events, without what is in them."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("position", justify="right", no_wrap=True)
    for name in ("type", "subject", "key", "id"):
        grid.add_column(name, overflow="ellipsis", no_wrap=True)
    if is_parked:
        grid.add_column("attempts", justify="right", no_wrap=True)
        grid.add_column("error", ratio=1)
    for one in found:
        event = one["event"]
        texts = (event["type"], event.get("subject") or "", one["ordering_key"] or "", event["id"])
        cells: list[Text | str] = [str(one["position"]), *map(as_text, texts)]
        if is_parked:
            error = one["error"]
            why = "waits behind another" if error is None else f"{error['type']}: {error['message']}"[:200]
            cells += [str(one["attempts"]), as_text(why, "dim" if error is None else "")]
        grid.add_row(*cells)
    return grid
