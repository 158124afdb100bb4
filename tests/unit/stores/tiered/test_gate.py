"""The gate in front of a cache: when callers go past it, who tries it, and what the observer hears."""

from semel.core.circuit import Breaker
from semel.core.observer import Signal
from semel.errors import StoreUnavailable
from semel.stores.cache.logic import CacheBreaker

SILENCE = StoreUnavailable("nothing came")


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.heard: list[str] = []
        breaker = Breaker(failures=2, rest=1, longest=4, chance=lambda: 1.0)
        self.gate = CacheBreaker(breaker, lambda: self.now, self)

    def observe(self, event: Signal) -> None:
        self.heard.append(event.kind)

    def shut(self) -> None:
        self.gate.silent(SILENCE)
        self.gate.silent(SILENCE)


def test_it_shuts_after_two_rounds_without_an_answer_and_says_so_once() -> None:
    world = World()
    world.gate.silent(SILENCE)
    assert world.gate.admits()
    world.gate.silent(SILENCE)
    world.gate.silent(SILENCE)
    assert (world.gate.shut, world.gate.admits(), world.heard) == (True, False, ["cache_open"])


def test_an_answer_in_between_starts_the_count_again() -> None:
    world = World()
    world.gate.silent(SILENCE)
    world.gate.answered()
    world.gate.silent(SILENCE)
    assert not world.gate.shut


def test_after_its_rest_one_caller_tries_and_the_others_still_go_past() -> None:
    world = World()
    world.shut()
    world.now = 1.0
    assert [world.gate.admits() for _ in range(3)] == [True, False, False]
    assert not world.gate.resting


def test_it_opens_to_all_once_the_one_was_answered() -> None:
    world = World()
    world.shut()
    world.now = 1.0
    world.gate.admits()
    world.gate.answered()
    assert (world.gate.admits(), world.gate.admits(), world.heard) == (True, True, ["cache_open", "cache_closed"])
