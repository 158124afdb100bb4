"""Sends the commands of a batch to the node of each key: Lua scripts, one server or a cluster. Neither sync nor async.

- The commands of all plans of a batch go out together, in their order.
- A command is sent again only after a node said that it did not execute it (MOVED, ASK, an unknown script).
- A node that does not answer is an error of its commands, and the slots are asked for anew the next time.
- A script is sent by its digest, and in full only if the server does not know it. With a virtual clock the scripts are
  others, which a real store never loads.
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
from semel.stores.redis.errors import reply_error
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
    "reopen",
    "count_failure",
    "history",
    "register",
    "erase",
    "purge",
    "lapse",
    "tally",
    "put_letter",
    "touch_letter",
    "drop_letter",
    "letters",
)


class ScriptSource(NamedTuple):
    """Where scripts are: a package with a folder `scripts`, the file that each begins with, and their own files."""

    package: str
    rules: str
    names: tuple[str, ...]


RECORD_SCRIPTS: Final = ScriptSource("semel.stores.redis", "rules", NAMES)


class Text(NamedTuple):
    """A script, and what the server calls it."""

    body: str
    sha: str


@cache
def scripts(source: ScriptSource, *, virtual: bool) -> dict[str, Text]:
    """The scripts of a source by name."""
    names = ", ".join(f"'{name}'" for name in FIELDS)
    time = _file(RECORD_SCRIPTS.package, "virtual_time" if virtual else "time")
    head = time + _file(source.package, source.rules).replace("{fields}", names)
    return {name: _text(head + _file(source.package, name)) for name in source.names}


def _text(body: str) -> Text:
    return Text(body, hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest())


def _file(package: str, name: str) -> str:
    return files(package).joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")


Args = tuple[Any, ...]
"""One command as it is sent."""
BatchByNode = dict[Address | None, list[Args]]
"""The commands of a batch by node; all nodes are asked at the same time."""
RouteFlow = Generator[BatchByNode, dict[Address | None, list[Reply]], list[Reply]]
Nodes = Generator[BatchByNode, dict[Address | None, list[Reply]], list[Address | None]]
HOME: Final = None
"""The one server there is, wherever that is."""
COUNT: Final = 1000
"""How many keys the server looks at for one step of a walk: about a millisecond."""


def run_side_by_side(plans: Sequence[Plan]) -> Generator[Batch, list[Reply], list[Answers | Exception]]:
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
        except Exception as error:  # noqa: BLE001 - it failed all commands of this batch
            replies = [error] * len(everything)
        start = 0
        for place, batch in batches.items():
            go_on(place, replies[start : start + len(batch)])
            start += len(batch)
    return answers


class CommandEncoder:
    """Encodes commands as arguments for the server, and decodes replies into what plans expect."""

    def __init__(self, settings: Settings, source: ScriptSource) -> None:
        self._name = settings.name
        self._clock = settings.clock
        self._scripts = scripts(source, virtual=settings.clock is not None)
        self._calls = {name: ("EVALSHA", text.sha, 1) for name, text in self._scripts.items()}

    def args(self, command: Command) -> Args:
        """A command as it is sent."""
        match command:
            case Script(name, key, values, letters):
                args = (*self._calls[name], key, *values)
                if letters:
                    args = (*args[:2], 2, key, letters, *values)
                return args if self._clock is None else (*args, self._clock())
            case Look(key, fields):
                return ("HMGET", key, *fields)
            case Walk(match, place):
                return ("SCAN", place or 0, "MATCH", match, "COUNT", COUNT)
            case Clock():
                return ("TIME",)

    def with_script_text(self, args: Args) -> Args:
        """A script by its text."""
        body = next(text.body for text in self._scripts.values() if text.sha == args[1])
        return ("EVAL", body, *args[2:])

    def decode(self, command: Command, reply: Reply) -> Reply:
        """A reply as the plan expects it."""
        if isinstance(reply, Exception):
            return reply if isinstance(reply, SemelError) else reply_error(reply, self._name)
        if type(command) is Script:
            return reply  # as nearly all are
        match command:
            case Walk():
                place, keys = reply
                return int(place) or None, [key.decode("utf-8", "replace") for key in keys]
            case Clock():
                return int(reply[0]) * 1_000_000 + int(reply[1]) if self._clock is None else self._clock()
        return reply


class SingleNode:
    """Routes every command to one server: a single one, or the primary that Sentinel names."""

    def __init__(self, encoder: CommandEncoder) -> None:
        self._encoder = encoder

    def nodes(self) -> Nodes:
        """The one."""
        return [HOME]
        yield {}

    def send(self, batch: Batch) -> RouteFlow:
        """Send a batch."""
        if not batch:
            return []
        encoder = self._encoder
        args = [encoder.args(command) for command in batch]
        replies = (yield {HOME: args})[HOME]
        unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = (yield {HOME: [encoder.with_script_text(args[place]) for place in unknown]})[HOME]
            for place, reply in zip(unknown, again, strict=True):
                replies[place] = reply
        return [encoder.decode(command, reply) for command, reply in zip(batch, replies, strict=True)]


_TURNS: Final = 6
_SLOTS: Final = 16_384
_ASKING: Final[Args] = ("ASKING",)
_MAP: Final[Args] = ("CLUSTER", "SLOTS")
Told = dict[Address | None, list[Reply]]


@dataclass(slots=True)
class RoutedCommand:
    """One command in flight: which node it goes to next, and how."""

    command: Command
    args: Args
    address: Address
    asking: bool = False
    left: tuple[Address, ...] = ()
    """Of a walk: the nodes that are still to be walked, this one included."""
    reply: Reply = None
    done: bool = False


class Cluster:
    """Routes each command to the node that holds its slot, as far as the slots are known."""

    def __init__(self, settings: Settings, encoder: CommandEncoder) -> None:
        self._settings = settings
        self._encoder = encoder
        self._holders: list[Address] = []
        self._met: tuple[Address, ...] = ()

    def nodes(self) -> Nodes:
        """Every node that holds records."""
        yield from self._learn_slots()
        return list(self._masters())

    def send(self, batch: Batch) -> RouteFlow:
        """Send a batch, and follow where the nodes point."""
        if not batch:
            return []
        yield from self._learn_slots()
        routed = [self._routed(command) for command in batch]
        for _ in range(_TURNS):
            left = [item for item in routed if not item.done]
            if not left:
                break
            told = yield _batch_by_node(left)
            self._apply_replies(left, told)
        return [self._decode(item) for item in routed]

    def _learn_slots(self) -> Generator[BatchByNode, Told, None]:
        """Ask for the slots where they are not known: the first node that answers decides."""
        if self._holders:
            return
        error: Reply = None
        for address in dict.fromkeys((*self._settings.addresses, *self._met)):
            (told,) = (yield {address: [_MAP]})[address]
            if not isinstance(told, Exception):
                self._holders = _slot_holders(told, address, self._settings.name)
                self._met = self._masters()
                return
            error = told
        raise self._encoder.decode(Clock(), error)

    def _masters(self) -> tuple[Address, ...]:
        return tuple(sorted(set(self._holders)))

    def _forget(self) -> None:
        self._holders = []

    def _routed(self, command: Command) -> RoutedCommand:
        match command:
            case Clock():
                return RoutedCommand(command, self._encoder.args(command), self._holders[0])
            case Walk(match, place):
                left, cursor = place or (self._masters(), 0)
                return RoutedCommand(command, self._encoder.args(Walk(match, cursor)), left[0], left=left)
        return RoutedCommand(command, self._encoder.args(command), self._holders[key_slot(command.key.encode())])

    def _apply_replies(self, routed: Sequence[RoutedCommand], told: Told) -> None:
        """Take in the replies of the nodes: an answer, or a redirection."""
        replies = {address: iter(args) for address, args in told.items()}
        for item in routed:
            asked, item.asking = item.asking, False
            if asked:
                next(replies[item.address])  # the OK to ASKING
            reply = item.reply = next(replies[item.address])
            match reply:
                case MovedError():  # before AskError, of which it is one
                    item.address = _redirected_address(reply, item.address)
                    if self._holders:
                        self._holders[reply.slot_id] = item.address
                case AskError():
                    item.address = _redirected_address(reply, item.address)
                    item.asking = True
                case NoScriptError():
                    item.args = self._encoder.with_script_text(item.args)
                    item.asking = asked
                case _:
                    item.done = True
                    if isinstance(reply, SemelError):
                        self._forget()  # a node that does not answer may not be one any more

    def _decode(self, item: RoutedCommand) -> Reply:
        reply = self._encoder.decode(item.command, item.reply)
        if isinstance(item.command, Walk) and not isinstance(reply, Exception):
            cursor, keys = reply
            left = item.left
            if cursor is None:
                left, cursor = left[1:], 0
            return ((left, cursor) if left else None), keys
        return reply


def _batch_by_node(routed: Sequence[RoutedCommand]) -> BatchByNode:
    batches: BatchByNode = {}
    for item in routed:
        args = batches.setdefault(item.address, [])
        args += [_ASKING, item.args] if item.asking else [item.args]
    return batches


def _redirected_address(error: AskError, asked: Address) -> Address:
    """Where a node points; without a host it means its own."""
    return error.host or asked[0], error.port


def _slot_holders(told: Any, asked: Address, name: str) -> list[Address]:
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
    """Routes commands to nodes. Each driver has its own."""

    def nodes(self) -> Nodes:
        """Every node that holds records."""

    def send(self, batch: Batch) -> RouteFlow:
        """Send a batch, and give the replies in its order."""


def route(settings: Settings, source: ScriptSource = RECORD_SCRIPTS) -> Route:
    """The way that fits the settings, for the scripts of `source`."""
    encoder = CommandEncoder(settings, source)
    return Cluster(settings, encoder) if settings.kind == "cluster" else SingleNode(encoder)
