"""Pages about events: the lag of streams, dead letters of consumers, and parked keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from semel.core.events.letters import REASONS, StoredLetter
from semel.core.events.outbox import StreamLag
from semel.core.record import instant
from semel.core.store import Capability
from semel.events.dead_letters import show_letter
from semel.server.access import Permission
from semel.server.actions.events import COUNTED, letter_id
from semel.server.attention import Kind, Need, needs_of
from semel.server.console.deeds import DEEDS
from semel.server.console.pages.forms import read_number
from semel.server.console.pages.records import BodyPart, body_page
from semel.server.console.search import read_scope
from semel.server.console.view import View, query_text
from semel.server.refusals import Forbidden, Invalid

PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream of the outbox as a page shows it."""

    lag: StreamLag

    @property
    def waiting(self) -> str:
        """How many events wait; more than are counted are not told apart."""
        return f"{self.lag.waiting:,}" if self.lag.waiting < COUNTED else f"{COUNTED:,} or more"

    @property
    def oldest(self) -> Any:
        """Since when the oldest of them waits."""
        return None if self.lag.oldest_us is None else instant(self.lag.oldest_us)

    @property
    def saved(self) -> Any:
        """When a relay moved on last."""
        return max((instant(part.saved_us) for part in self.lag.parts), default=None)


async def show_events(view: View) -> Response:
    """Streams with their lag, and consumers with dead letters."""
    streams: list[StreamRow] | None = None
    try:
        streams = [StreamRow(lag) for lag in await view.actions.streams(view.user)]
    except Forbidden:
        view.actions.demand(view.user, Permission.LIST)  # a user of some scopes sees no streams, which have none
    letters: tuple[Kind, ...] = ("dead_letter",)
    needs = await needs_of(view.actions, view.user, letters)
    has_letters, is_cut = view.actions.has(Capability.LETTERS), "dead_letter" in needs.cut
    return view.page(
        "events.html",
        here="/events",
        streams=streams,
        letters=[need for need in needs.needs if need.kind == "dead_letter"],
        consumers=_other_consumers(view, needs.needs),
        has_letters=has_letters,
        is_cut=is_cut,
        is_whole=has_letters and not is_cut and not needs.not_looked_for,
        has_outbox=view.actions.has(Capability.OUTBOX),
        not_looked_for=needs.not_looked_for,
    )


def _other_consumers(view: View, needs: tuple[Need, ...]) -> list[str]:
    return sorted(set(view.actions.consumers) - {need.operation for need in needs if need.kind == "dead_letter"})


@dataclass(frozen=True, slots=True)
class LetterRow:
    """A dead letter as a page shows it, without its content."""

    letter: StoredLetter

    @property
    def id(self) -> str:
        """How it is named."""
        return letter_id(self.letter)

    @property
    def first(self) -> Any:
        """When it became one."""
        return instant(self.letter.first_us)

    @property
    def last(self) -> Any:
        """When it was delivered last."""
        return instant(self.letter.last_us)

    @property
    def reference(self) -> str | None:
        """Its record."""
        return None if self.letter.record is None else self.letter.record.hex()


async def show_letters(view: View) -> Response:
    """The dead letters of a consumer."""
    consumer, reason, type_ = view.asked("consumer"), view.asked("reason"), view.asked("type")
    scope, shared = view.asked("scope"), view.asked("shared")
    if not consumer:
        raise Invalid("Name a consumer; its letters are shown then.", because="consumer")
    page = await view.actions.letters(
        view.user,
        consumer,
        reason=reason or None,
        type=type_ or None,
        subject=view.asked("subject") or None,
        scope=read_scope(scope, shared),
        cursor=view.asked("cursor") or None,
        limit=PAGE,
    )
    kept = {"consumer": consumer, "reason": reason, "type": type_, "subject": view.asked("subject")}
    kept |= {"scope": scope, "shared": shared}
    return view.page(
        "letters.html",
        here="/events",
        consumer=consumer,
        rows=[LetterRow(letter) for letter in page.letters],
        reasons=REASONS,
        filters=kept,
        next=f"/events/letters{query_text(kept | {'cursor': page.cursor})}" if page.cursor else "",
        choices=[DEEDS[name] for name in ("redrive", "discard") if view.may(DEEDS[name].permission)],
        may_see_body=view.may(Permission.BODY),
        is_known=consumer in view.actions.consumers,
    )


async def show_letter_body(view: View) -> Response:
    """What a dead letter holds, as text."""
    consumer, name = view.asked("consumer"), view.asked("letter")
    found = show_letter(await view.actions.letter_body(view.user, consumer, name))
    if found.event is not None:
        parts = [BodyPart("Event", found.event.to_json().decode())]
    else:
        headers, body = found.raw or ({}, b"")
        parts = [
            BodyPart("Headers", "\n".join(f"{name}: {value}" for name, value in headers.items())),
            BodyPart("Body", body.decode("utf-8", "backslashreplace")),
        ]
    crumbs = [("Events", "/events"), (f"letters of {consumer}", f"/events/letters{query_text({'consumer': consumer})}")]
    return body_page(view, "/events", "Dead letter", crumbs, parts)


async def show_parked(view: View) -> Response:
    """Events of a stream that could not be published, and what waits behind them."""
    stream, after = view.asked("stream", "default"), read_number(view.asked("after", "0"), "after")
    page = await view.actions.parked(view.user, stream, after=after, limit=PAGE)
    return view.page(
        "parked.html",
        here="/events",
        stream=stream,
        events=page.events,
        instant=instant,
        next=f"/events/parked{query_text({'stream': stream, 'after': str(page.after)})}" if page.after else "",
        choices=[DEEDS[name] for name in ("publish", "drop") if view.may(DEEDS[name].permission)],
    )
