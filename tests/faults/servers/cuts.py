"""One cut in the conversation between an engine and its server, and what came of it.

What always holds: what happened is judged from outside the engine: by a list that every run of the handler is written
into, by the record as another engine finds it without the proxy, and by what the callers were told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from semel import AsyncAttempt, Attempt, Policy
from semel.api import open_store
from semel.errors import LeaseLost, SemelError, StoreUnavailable
from tests.decorated import CallStyle
from tests.faults.callers import Caller
from tests.faults.users import Colour
from tests.proxy.plan import Cut, How
from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction, Message

ROOMY = Policy(lease_for=timedelta(seconds=30))
SHORT = Policy(lease_for=timedelta(seconds=0.25))
PATIENT = Policy(lease_for=timedelta(seconds=60), wait_for=timedelta(seconds=60))


class Position(NamedTuple):
    """Where to cut: the so-manieth message of a direction, from the first byte of the first connection on."""

    direction: Direction
    number: int
    kind: str
    during: str


class GoneProxy(Proxy):
    """From the first cut on nobody gets through any more: the server is gone for good."""

    def note(self, direction: Direction, message: Message) -> Cut | None:
        """The plan's cut; once one is done, every message is cut."""
        if any(cut.done.is_set() for cut in self._cuts):
            return Cut(direction, 1, How.DROP)
        return super().note(direction, message)


@dataclass
class Story:
    """What was seen of one key."""

    told: list[Any] = field(default_factory=list)
    ran: list[tuple[int, bool]] = field(default_factory=list)
    """Each run of the handler: the number of the attempt, and whether it was told of a doubt."""

    def handler(self, attempt: Attempt | AsyncAttempt) -> str:
        self.ran.append((attempt.number, attempt.in_doubt))
        return f"value of {attempt.number}"


def positions(url: str, colour: Colour) -> list[Position]:
    """Every message of a call that nothing disturbs, and what it belongs to: opening, claim or completion."""
    found: list[Position] = []
    with Proxy(url) as proxy:
        marks: list[int] = []
        with Caller(open_store(proxy.url), colour) as caller:
            caller.read("nothing")
            marks.append(len(proxy.seen))
            caller.run(os.urandom(8).hex(), lambda attempt: marks.append(len(proxy.seen)), ROOMY)
            seen = proxy.seen
    counts = dict.fromkeys(Direction, 0)
    for at, one in enumerate(seen):
        counts[one.direction] += 1
        during = "opening" if at < marks[0] else "claim" if at < marks[1] else "completion"
        found.append(Position(one.direction, counts[one.direction], one.kind, during))
    return found


def hows(position: Position) -> Iterator[How]:
    """What can be done to a message there."""
    yield How.DROP
    yield How.SPLIT
    if position.direction is Direction.TO_SERVER:
        yield How.DROP_REPLY


def call_with_cut(url: str, colour: Colour, style: CallStyle, other: Caller, *cuts: Cut, gone: bool) -> Story:
    """Ask for a key through a proxy that cuts; with `gone` nothing can be reached from the cut on.

    Then `other` asks for it, twice, without a proxy.
    """
    story, key = Story(), os.urandom(8).hex()
    policy = SHORT if gone else ROOMY
    with (GoneProxy if gone else Proxy)(url, *cuts) as proxy:
        caller = Caller(open_store(proxy.url, connect_timeout=5), colour, style)
        try:
            with _Told(story):
                caller.read("nothing")
            with _Told(story):
                story.told.append(caller.run(key, story.handler, policy).value)
        finally:
            caller.close()
    for _ in range(2):
        story.told.append(other.run(key, story.handler, PATIENT).value)
    return story


class _Told:
    """Write down what the caller was told, if it is an error of semel; anything else is a bug and is raised."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SemelError):
            self._story.told.append(error)
            return True
        return False


def problems(story: Story) -> Iterator[str]:
    """What must not be: two outcomes, a lost effect, or a second run that nobody was told of."""
    values = [told for told in story.told if not isinstance(told, SemelError)]
    if len(set(values)) != 1:
        yield f"its callers were told different values: {story.told}"
    if not story.ran:
        yield "its effect is lost"
    unsure = [told for told in story.told if isinstance(told, LeaseLost) or getattr(told, "ran", False)]
    for earlier, (number, in_doubt) in enumerate(story.ran[1:], 1):
        if not in_doubt:
            yield f"run {earlier + 1} (attempt {number}) was not told that it is in doubt"
        if not unsure:
            yield f"it ran again and no caller had been told that it ran without being recorded: {story.told}"
    for told in story.told:
        if isinstance(told, SemelError) and not isinstance(told, (StoreUnavailable, LeaseLost)):
            yield f"a caller was told {told!r}"
