"""`semel events release` and `drop`: what becomes of events that could not be published."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from semel.cli.confirm import Actor, check_reason, login, recorded
from semel.cli.exit_codes import OTHER, Refused, usage_error
from semel.cli.printing import console
from semel.cli.store_option import Url, open_engine
from semel.core.events.outbox import ParkedChanged, ParkedPage, ReleaseParked, ScanParked
from semel.core.flow import Flow, ask
from semel.engine.engine import engine_of
from semel.events import Outbox

Stream = Annotated[str, typer.Option(help="The stream of the outbox.")]
Position = Annotated[
    int | None, typer.Option(min=1, help="The event, as semel events peek --parked shows it.", show_default=False)
]

Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit chain.", show_default=False)]


def release(
    url: Url = None,
    *,
    position: Position = None,
    every: Annotated[bool, typer.Option("--all", help="Every event of the stream that failed.")] = False,
    reason: Why,
    stream: Stream = "default",
    by: Actor = None,
) -> None:
    """Have a parked event published again, or all of a stream; what waits behind it follows by itself.

    A relay does it, the next time that it looks.
    """
    if (position is None) != every:
        raise usage_error("Which event is meant? Nothing was released. Give --position N, or --all.")
    check_reason(reason)
    count = _change(url, stream, position, discard=False, who=by or login(), reason=reason)
    console().print(Text.assemble(("released", "bold green"), f" {count} events of {stream}"))


def drop(
    position: Annotated[int, typer.Argument(min=1, help="The event, as semel events peek --parked shows it.")],
    url: Url = None,
    *,
    reason: Why,
    stream: Stream = "default",
    by: Actor = None,
) -> None:
    """Delete one parked event, which is then never published; what waits behind it goes on."""
    check_reason(reason)
    _change(url, stream, position, discard=True, who=by or login(), reason=reason)
    console().print(Text.assemble(("dropped", "bold green"), f" event {position} of {stream}: {reason}"))


def _change(url: str | None, stream: str, position: int | None, *, discard: bool, who: str, reason: str) -> int:
    from semel.server.audit.targets import parked_target  # it imports all about the chain

    action = "discard" if discard else "redrive"
    with open_engine(url) as semel:
        stream = Outbox(semel, stream).stream
        engine: Any = engine_of(semel)
        target, scope = parked_target(stream, position), ""
        if position is not None:
            page: ParkedPage = engine.perform_on(None, _look_flow(ScanParked(stream, position - 1, 1)))
            scope = next((one.stored.event.scope for one in page.events if one.stored.position == position), "")
        with recorded(semel, action=action, target=target, who=who, scope=scope, reason=reason):
            count: int = engine.perform_on(None, _release_flow(ReleaseParked(stream, position, discard=discard)))
    if position is not None and not count:
        what = "is parked" if discard else "is parked because it failed"
        message = f"No event at position {position} of {stream} {what}; nothing was changed."
        raise Refused("record_not_found", message, OTHER)
    return count


def _look_flow(operation: ScanParked) -> Flow[ParkedPage]:
    return (yield from ask(operation))


def _release_flow(operation: ReleaseParked) -> Flow[int]:
    changed: ParkedChanged = yield from ask(operation)
    return changed.count
