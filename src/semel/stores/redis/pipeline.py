"""The way through a cluster: each command to the node that holds its key, what goes to one node together.

What always holds: a command is sent again only after a node said that it did not do it (MOVED, ASK, an unknown script).
A node that does not answer is an error of its commands, and the map of the cluster is asked for anew the next time.

The scripts by name: package data, put together once, known to the server by their digest.

What always holds: a script is sent by its digest, and in full only where the server says that it does not know it; in
that case it has not run. With a virtual clock the scripts are others, which a real store never loads.

A round: the plans of a lane side by side, and their commands as the server wants them. Without colour.

What always holds: what all plans of a round ask for goes out together, in their order. A script that the server does
not know has not run, and is sent again in full; nothing else is ever sent twice.

Which node a command goes to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, Protocol

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError

from semel.core.store import Answers, Plan
from semel.errors import SemelError, StoreUnavailable
from semel.stores.redis.errors import answered
from semel.stores.redis.plan import Batch, Clock, Command, Look, Reply, Script, Walk
from semel.stores.redis.record_hash import FIELDS
from semel.stores.redis.settings import Address, Settings

NAMES: Final = (
    "claim",
    "renew",
    "complete",
    "fail",
    "checkpoint",
    "read",
    "resolve",
    "erase",
    "purge",
    "lapse",
    "tally",
)
CACHE_NAMES: Final = ("cache_look", "cache_fill", "cache_drop")
"""Scripts on the entries of a cache, which are no records."""


class Text(NamedTuple):
    """A script, and what the server calls it."""

    body: str
    sha: str


@cache
def scripts(*, virtual: bool) -> dict[str, Text]:
    """Every script by name."""
    names = ", ".join(f"'{name}'" for name in FIELDS)
    time = _file("virtual_time" if virtual else "time")
    head = time + _file("rules").replace("{fields}", names)
    cache_head = time + _file("cache_rules")
    return {
        **{name: _text(head + _file(name)) for name in NAMES},
        **{name: _text(cache_head + _file(name)) for name in CACHE_NAMES},
    }


def _text(body: str) -> Text:
    return Text(body, hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest())


def _file(name: str) -> str:
    return files(__package__).joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")


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


_TURNS: Final = 6
_SLOTS: Final = 16_384
_ASKING: Final[Words] = ("ASKING",)
_MAP: Final[Words] = ("CLUSTER", "SLOTS")
Told = dict[Address | None, list[Reply]]


@dataclass(slots=True)
class Errand:
    """One command on its way: where it goes next, and how."""

    command: Command
    words: Words
    address: Address
    asking: bool = False
    left: tuple[Address, ...] = ()
    """Of a walk: the nodes that are still to be walked, this one included."""
    reply: Reply = None
    done: bool = False


class Cluster:
    """Knows which node holds which slot, as far as it was told."""

    def __init__(self, settings: Settings, speaker: Speaker) -> None:
        self._settings = settings
        self._speaker = speaker
        self._holders: list[Address] = []
        self._met: tuple[Address, ...] = ()

    def nodes(self) -> Nodes:
        """Every node that holds records."""
        yield from self._learnt()
        return list(self._masters())

    def speaking(self, batch: Batch) -> Speech:
        """Send a batch, and follow where the nodes point."""
        if not batch:
            return []
        yield from self._learnt()
        errands = [self._errand(command) for command in batch]
        for _ in range(_TURNS):
            left = [errand for errand in errands if not errand.done]
            if not left:
                break
            told = yield _parcels(left)
            self._take_in(left, told)
        return [self._meaning(errand) for errand in errands]

    def _learnt(self) -> Generator[Parcels, Told, None]:
        """Ask for the map where there is none: of whoever answers first."""
        if self._holders:
            return
        error: Reply = None
        for address in dict.fromkeys((*self._settings.addresses, *self._met)):
            (told,) = (yield {address: [_MAP]})[address]
            if not isinstance(told, Exception):
                self._holders = _holders(told, address, self._settings.name)
                self._met = self._masters()
                return
            error = told
        raise self._speaker.meaning(Clock(), error)

    def _masters(self) -> tuple[Address, ...]:
        return tuple(sorted(set(self._holders)))

    def _forget(self) -> None:
        self._holders = []

    def _errand(self, command: Command) -> Errand:
        match command:
            case Clock():
                return Errand(command, self._speaker.words(command), self._holders[0])
            case Walk(match, place):
                left, cursor = place or (self._masters(), 0)
                return Errand(command, self._speaker.words(Walk(match, cursor)), left[0], left=left)
        return Errand(command, self._speaker.words(command), self._holders[key_slot(command.key.encode())])

    def _take_in(self, errands: Sequence[Errand], told: Told) -> None:
        """What the nodes said: an answer, or where else to go."""
        replies = {address: iter(words) for address, words in told.items()}
        for errand in errands:
            asked, errand.asking = errand.asking, False
            if asked:
                next(replies[errand.address])  # the OK to ASKING
            reply = errand.reply = next(replies[errand.address])
            match reply:
                case MovedError():  # before AskError, of which it is one
                    errand.address = _pointed(reply, errand.address)
                    if self._holders:
                        self._holders[reply.slot_id] = errand.address
                case AskError():
                    errand.address = _pointed(reply, errand.address)
                    errand.asking = True
                case NoScriptError():
                    errand.words = self._speaker.in_full(errand.words)
                    errand.asking = asked
                case _:
                    errand.done = True
                    if isinstance(reply, SemelError):
                        self._forget()  # a node that does not answer may not be one any more

    def _meaning(self, errand: Errand) -> Reply:
        reply = self._speaker.meaning(errand.command, errand.reply)
        if isinstance(errand.command, Walk) and not isinstance(reply, Exception):
            cursor, keys = reply
            left = errand.left
            if cursor is None:
                left, cursor = left[1:], 0
            return ((left, cursor) if left else None), keys
        return reply


def _parcels(errands: Sequence[Errand]) -> Parcels:
    parcels: Parcels = {}
    for errand in errands:
        words = parcels.setdefault(errand.address, [])
        words += [_ASKING, errand.words] if errand.asking else [errand.words]
    return parcels


def _pointed(error: AskError, asked: Address) -> Address:
    """Where a node points; without a host it means its own."""
    return error.host or asked[0], error.port


def _holders(told: Any, asked: Address, name: str) -> list[Address]:
    """Which node holds each slot."""
    holders: list[Address | None] = [None] * _SLOTS
    for start, end, master, *_ in told:
        host = (master[0] or b"").decode() or asked[0]
        holders[start : end + 1] = [(host, int(master[1]))] * (end + 1 - start)
    known = [holder for holder in holders if holder is not None]
    if len(known) < _SLOTS:
        message = (
            f"{name} has no node for some keys; nothing ran. Try again, or look at CLUSTER INFO and CLUSTER SLOTS."
        )
        raise StoreUnavailable(message)
    return known


class Route(Protocol):
    """The way from commands to nodes. One of its own for each driver."""

    def nodes(self) -> Nodes:
        """Every node that holds records."""

    def speaking(self, batch: Batch) -> Speech:
        """Send a batch, and give the replies in its order."""


def route(settings: Settings) -> Route:
    """The way that fits the settings."""
    speaker = Speaker(settings)
    return Cluster(settings, speaker) if settings.kind == "cluster" else OneServer(speaker)
