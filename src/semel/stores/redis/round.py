"""A round: the plans of a lane side by side, and their commands as the server wants them. Without colour.

What always holds: what all plans of a round ask for goes out together, in their order. A script that the server does
not know has not run, and is sent again in full; nothing else is ever sent twice.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from redis.exceptions import NoScriptError

from semel.core.store import Answers, Plan
from semel.errors import SemelError
from semel.stores.redis.commands import Batch, Clock, Command, Look, Reply, Script, Walk
from semel.stores.redis.scripts import scripts
from semel.stores.redis.settings import Address, Settings
from semel.stores.redis.troubles import answered

Words = tuple[Any, ...]
"""One command as it is sent."""
Parcels = dict[Address | None, list[Words]]
"""What goes to which node, at the same time."""
Speech = Generator[Parcels, dict[Address | None, list[Reply]], list[Reply]]
Nodes = Generator[Parcels, dict[Address | None, list[Reply]], list[Address | None]]
HOME: Final = None
"""The one server there is, wherever that is."""
COUNT: Final = 1000
"""How many keys the server looks at for one step of a walk: about a millisecond."""


def together(plans: Sequence[Plan]) -> Generator[Batch, list[Reply], list[Answers | Exception]]:
    """Run plans side by side: yields what all of them ask for next, answers what each returned."""
    answers: list[Any] = [None] * len(plans)
    asked: dict[int, Batch] = {}

    def go_on(place: int, replies: list[Reply] | None) -> None:
        try:
            asked[place] = plans[place].send(replies)
        except StopIteration as end:
            answers[place] = end.value
        except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
            answers[place] = error

    for place in range(len(plans)):
        go_on(place, None)
    while asked:
        batches, asked = asked, {}
        everything = [command for batch in batches.values() for command in batch]
        try:
            replies = yield everything
        except Exception as error:  # noqa: BLE001 - it befell all that was asked for
            replies = [error] * len(everything)
        start = 0
        for place, batch in batches.items():
            go_on(place, replies[start : start + len(batch)])
            start += len(batch)
    return answers


class Speaker:
    """Commands as words, and replies as what plans expect."""

    def __init__(self, settings: Settings) -> None:
        self._name = settings.name
        self._clock = settings.clock
        self._scripts = scripts(virtual=settings.clock is not None)
        self._calls = {name: ("EVALSHA", text.sha, 1) for name, text in self._scripts.items()}

    def words(self, command: Command) -> Words:
        """A command as it is sent."""
        match command:
            case Script(name, key, values):
                words = (*self._calls[name], key, *values)
                return words if self._clock is None else (*words, self._clock())
            case Look(key, fields):
                return ("HMGET", key, *fields)
            case Walk(match, place):
                return ("SCAN", place or 0, "MATCH", match, "COUNT", COUNT)
            case Clock():
                return ("TIME",)

    def in_full(self, words: Words) -> Words:
        """A script by its text."""
        body = next(text.body for text in self._scripts.values() if text.sha == words[1])
        return ("EVAL", body, *words[2:])

    def meaning(self, command: Command, reply: Reply) -> Reply:
        """A reply as the plan expects it."""
        if isinstance(reply, Exception):
            return reply if isinstance(reply, SemelError) else answered(reply, self._name)
        if type(command) is Script:
            return reply  # as nearly all are
        match command:
            case Walk():
                place, keys = reply
                return int(place) or None, [key.decode("utf-8", "replace") for key in keys]
            case Clock():
                return int(reply[0]) * 1_000_000 + int(reply[1]) if self._clock is None else self._clock()
        return reply


class OneServer:
    """The way to a single server, or to the primary that Sentinel names: everything goes there."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def nodes(self) -> Nodes:
        """The one."""
        return [HOME]
        yield {}

    def speaking(self, batch: Batch) -> Speech:
        """Send a batch."""
        if not batch:
            return []
        speaker = self._speaker
        words = [speaker.words(command) for command in batch]
        replies = (yield {HOME: words})[HOME]
        unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = (yield {HOME: [speaker.in_full(words[place]) for place in unknown]})[HOME]
            for place, reply in zip(unknown, again, strict=True):
                replies[place] = reply
        return [speaker.meaning(command, reply) for command, reply in zip(batch, replies, strict=True)]
