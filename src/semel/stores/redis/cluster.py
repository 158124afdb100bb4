"""The way through a cluster: each command to the node that holds its key, what goes to one node together.

What always holds: a command is sent again only after a node said that it did not do it (MOVED, ASK, an unknown script).
A node that does not answer is an error of its commands, and the map of the cluster is asked for anew the next time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError

from semel.errors import SemelError, StoreUnavailable
from semel.stores.redis.commands import Batch, Clock, Command, Reply, Walk
from semel.stores.redis.round import Nodes, Parcels, Speaker, Speech, Words
from semel.stores.redis.settings import Address, Settings

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
