"""What is to happen in each round: which library, which kills, which cuts. The seed decides, and nothing else.

What always holds: positions, cuts and kinds of clients are dealt from shuffled decks, so that a run of 40 rounds has
each of them at least once, and the last life of a round is neither killed nor cut.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import Enum
from itertools import product
from typing import Final, NamedTuple, TypeVar

from tests.client.kill.positions import At, Cut

T = TypeVar("T")

LEASE: Final = timedelta(seconds=20)
"""Longer than any machine is slow. The store's clock goes forward between lives, so nobody waits for its end."""
_OVER: Final = LEASE + timedelta(seconds=1)
_NEARLY_OVER: Final = LEASE - timedelta(milliseconds=100)
TRIES: Final = 4
_LONGEST_MOMENT: Final = 0.06
STOPS: Final = (*At, At.SENT, At.RECEIVED, At.EFFECTED, At.IN_REPLY)
"""Where lives are killed; between send and reply, where nobody can know what happened, twice as often."""
_NOTHING_ARRIVED: Final = (Cut.BEFORE, Cut.IN_REQUEST)
_WITHOUT_KILL: Final = 4


class Library(Enum):
    """Through which library a client asks."""

    HTTPX = "httpx"
    HTTPX_ASYNC = "httpx, awaited"
    REQUESTS = "requests"


class Severed(NamedTuple):
    """A cut: how much of the message passes before, and whether the connection is reset or ends in order."""

    cut: Cut
    portion: float
    reset: bool


class LifePlan(NamedTuple):
    """One life of a client: first the cuts, one for each try, then the kill.

    `late` keeps the service at what it does until the next life asks for the same. `then` is how much time passes, by
    the store's clock, before the next one: the lease is over, or runs a little longer and has to be waited for.
    """

    stop: At | None = None
    cuts: tuple[Severed, ...] = ()
    portion: float = 0.5
    moment: float = 0.0
    late: bool = False
    then: timedelta = _OVER


class RoundPlan(NamedTuple):
    """One order. One without a name cannot be asked for again: it can only be resumed."""

    number: int
    library: Library
    named: bool
    lives: tuple[LifePlan, ...]


def plans(rounds: int, seed: int, stops: Sequence[At] = STOPS) -> list[RoundPlan]:
    """The plan of a run; every fourth round has no kill."""
    chance = random.Random(seed)
    kinds = _deck(chance, list(product(Library, (True, False))))
    deal = _Dealer(chance, stops)
    return [_round(deal, number, *next(kinds)) for number in range(rounds)]


def _round(deal: "_Dealer", number: int, library: Library, named: bool) -> RoundPlan:
    lives = deal.only_cut() if number % _WITHOUT_KILL == _WITHOUT_KILL - 1 else deal.killed()
    return RoundPlan(number, library, named, (*lives, LifePlan()))


class _Dealer:
    """Makes lives out of what the decks give."""

    def __init__(self, chance: random.Random, stops: Sequence[At]) -> None:
        self._chance = chance
        # A first life gets to every position; of the later ones many have nothing left to do.
        self._first_stops = _deck(chance, stops)
        self._later_stops = _deck(chance, stops)
        self._cuts = _deck(chance, list(Cut))
        self._early_cuts = _deck(chance, _NOTHING_ARRIVED)

    def killed(self) -> list[LifePlan]:
        """One kill, or a second one in the life that resumes."""
        stops = [next(self._first_stops), next(self._later_stops)][: self._chance.choice((1, 1, 2))]
        return [self._life(stop, self._chance.choice((0, 0, 1, 2))) for stop in stops]

    def only_cut(self) -> list[LifePlan]:
        """Often more cuts than a client tries: it gives up, and another life has to resume."""
        return [self._life(None, self._chance.randint(1, TRIES + 1))]

    def _life(self, stop: At | None, cuts: int) -> LifePlan:
        chance = self._chance
        # A try that had its effect would leave nothing to be killed in.
        kinds = self._early_cuts if stop in (At.RECEIVED, At.EFFECTED) else self._cuts
        return LifePlan(
            stop,
            tuple(Severed(next(kinds), chance.random(), chance.random() < 0.5) for _ in range(cuts)),
            chance.random(),
            chance.uniform(0, _LONGEST_MOMENT),
            late=stop is not None and chance.random() < 0.5,
            then=chance.choice((_OVER, _NEARLY_OVER)),
        )


def _deck(chance: random.Random, cards: Sequence[T]) -> Iterator[T]:
    while True:
        yield from chance.sample(cards, len(cards))
