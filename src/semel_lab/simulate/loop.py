"""Who decides: a script that is replayed, or dice. A schedule is the list of choices taken, and nothing else.

What always holds: the first option is the ordinary one, so what a script does not say is ordinary; a choice is asked
for only where there is more than one option, and every choice taken is written down.

Driving a flow by hand: what a shell does with `run`, as a flow of its own that stops wherever it has to wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from semel.core.flow import Flow


class Script:
    """Choices given beforehand; from there on the first option. Remembers how many options there were."""

    __slots__ = ("counts", "given", "known", "seen", "taken")

    def __init__(self, given: Sequence[int] = (), seen: set[int] | None = None) -> None:
        self.given = given
        self.known = len(given)
        self.taken: list[int] = []
        self.counts: list[int] = []
        self.seen = seen

    def fault(self, count: int) -> int:
        """Which of `count` options, the first being that nothing goes wrong."""
        taken = self.taken
        position = len(taken)
        choice = self.given[position] if position < self.known else 0
        if choice >= count:
            choice = 0  # a script made for other code, or one being shrunk
        taken.append(choice)
        self.counts.append(count)
        return choice

    def move(self, moves: Sequence[Any]) -> int:
        """Which of the moves there are."""
        return self.fault(len(moves))

    def new(self) -> bool:
        """Whether the script has been used up, so that states from here on count."""
        return len(self.taken) >= self.known and self.seen is not None


class Dice:
    """Choices by chance, all from one seed.

    Either each move is as likely as any other, or callers and processes have priorities that change now and then,
    which finds what needs few changes of turn in a long schedule.
    """

    __slots__ = ("_faulty", "_priorities", "_random", "_restless", "seen", "taken")

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._faulty = self._random.choice((0.02, 0.08, 0.25))
        self._priorities: dict[int, float] | None = {} if self._random.random() < 0.5 else None
        self._restless = self._random.choice((0.02, 0.1))
        self.taken: list[int] = []
        self.seen = None

    def fault(self, count: int) -> int:
        """Mostly nothing goes wrong."""
        choice = self._random.randrange(1, count) if self._random.random() < self._faulty else 0
        self.taken.append(choice)
        return choice

    def move(self, moves: Sequence[Any]) -> int:
        """Which of the moves there are."""
        priorities = self._priorities
        if priorities is None:
            choice = int(self._random.random() * len(moves))
        else:
            if self._random.random() < self._restless:
                priorities.clear()
            choice, best = 0, -1.0
            for index, move in enumerate(moves):
                priority = priorities.get(move.actor)
                if priority is None:
                    priority = priorities[move.actor] = self._random.random()
                if priority > best:
                    choice, best = index, priority
        self.taken.append(choice)
        return choice

    def new(self) -> bool:
        """Chance explores no tree."""
        return False


Inline = Mapping[type, Callable[[Any], Generator[Any, Any, Any]]]


class Gone(BaseException):
    """What the caller of a cancelled call sees."""


class Point:
    """A point of a handler that others can see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


START, EFFECT, LOOK = Point("start"), Point("effect"), Point("look at the ledger")
GONE = Gone("cancelled")


def driven(flow: Flow[Any], inline: Inline) -> Flow[Any]:
    """The same flow, some of its wishes fulfilled by flows of the caller; as `core.flow.run` does it."""
    try:
        wanted = next(flow)
        while True:
            try:
                act = inline.get(type(wanted))
                answer = (yield wanted) if act is None else (yield from act(wanted))
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()
