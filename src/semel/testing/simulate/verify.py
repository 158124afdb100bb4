"""The whole programme: every small world to the end, larger ones by chance, spread over processes.

What always holds: the same number of schedules and the same seed give the same run, however many processes share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from semel.testing.simulate.explore import Tally, every, some
from semel.testing.simulate.pool import WorkerPool
from semel.testing.simulate.report import SOMETIMES, Explored, Report
from semel.testing.simulate.server_worlds import SERVER_SOMETIMES, SERVER_WORLDS
from semel.testing.simulate.within import WITHIN_SOMETIMES, WITHIN_WORLDS, WithinWorld
from semel.testing.simulate.world import World
from semel.testing.simulate.worlds import DECORATED, SMALL, by_chance

Progress = Callable[[int, int], None]

ENOUGH_FOR_ALL: Final = 180_000
ENOUGH_FOR_MORE: Final = 3_000_000
_PIECE: Final = 1_000
_EVERY: Final[tuple[World | WithinWorld, ...]] = (*SMALL, *DECORATED, *SERVER_WORLDS, *WITHIN_WORLDS)
_NAMES: Final = tuple(world.name for world in _EVERY)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work: one world to the end, or a run of schedules by chance."""

    world: World | WithinWorld | None
    seed: int = 0
    first: int = 0
    count: int = 0

    def run(self) -> tuple[Piece, Tally]:
        """Do it."""
        if self.world is not None:
            return self, every(self.world)
        worlds: list[World | WithinWorld] = [*by_chance(self.seed), *WITHIN_WORLDS]
        return self, some(worlds, self.seed, self.first, self.count)


def verify(schedules: int = 200_000, seed: int = 0, workers: int = 2, progress: Progress | None = None) -> Report:
    """Run at least this many schedules.

    Args:
        schedules: how many. From 180,000 on, the small worlds are explored to the end and chance does the rest; from
            three million on they are explored with one more slow moment. With fewer, chance does it all.
        seed: where chance comes from.
        workers: over how many processes to spread the work; with 0 it is done in this one.
        progress: called with the number of schedules done and to do.
    """
    began = time.perf_counter()
    run = Run(schedules, seed, progress)
    with WorkerPool(workers) as pool:
        run.take(pool, run.small_pieces())
        run.take(pool, run.chance_pieces())
    return run.report(time.perf_counter() - began)


class Run:
    """One run of the programme."""

    def __init__(self, schedules: int, seed: int, progress: Progress | None) -> None:
        self._schedules = schedules
        self._seed = seed
        self._progress = progress
        self._total = Tally()
        self._explored: dict[str, Explored] = {}
        self._by_chance = 0

    def small_pieces(self) -> list[Piece]:
        """The small worlds, if there are schedules enough for all of them; the largest first."""
        if self._schedules < ENOUGH_FOR_ALL:
            return []
        more = 1 if self._schedules >= ENOUGH_FOR_MORE else 0
        small = [Piece(replace(world, slow=world.slow + more)) for world in (*SMALL, *DECORATED, *SERVER_WORLDS)]
        return [*small, *(Piece(replace(world, slow=world.slow + more)) for world in WITHIN_WORLDS)]

    def chance_pieces(self) -> list[Piece]:
        """What is left to do, but never none."""
        left = max(self._schedules - self._total.schedules, self._schedules // 10)
        return [Piece(None, self._seed, first, min(_PIECE, left - first)) for first in range(0, left, _PIECE)]

    def take(self, pool: WorkerPool, pieces: list[Piece]) -> None:
        """Have pieces of work done, and take in what they found; after a failure nothing more is begun."""
        if self._total.failing:
            return
        for piece, tally in pool.results([piece.run for piece in pieces]):
            self._total.add(tally)
            if piece.world is not None:
                world = piece.world
                self._explored[world.name] = Explored(
                    world.name, world.budget, world.slow, tally.schedules, tally.cut, tally.states, tally.complete
                )
            else:
                self._by_chance += tally.schedules
            if self._progress is not None:
                self._progress(self._total.schedules, max(self._schedules, self._total.schedules))
            if tally.failing:
                pool.close()
                return

    def _wanted(self) -> frozenset[str]:
        """What must have been reached. The worlds of Redis and DynamoDB are explored to the end, or not at all."""
        served = SERVER_SOMETIMES if self._explored else frozenset[str]()
        return SOMETIMES | WITHIN_SOMETIMES | served

    def report(self, seconds: float) -> Report:
        """What was found."""
        total = self._total
        return Report(
            schedules=total.schedules,
            cut=total.cut,
            states=total.states,
            moves=total.moves,
            longest=total.longest,
            seconds=seconds,
            seed=self._seed,
            worlds=tuple(self._explored[name] for name in _NAMES if name in self._explored),
            by_chance=self._by_chance,
            seen=total.seen,
            missing=tuple(sorted(self._wanted() - total.seen.keys())),
            failing=tuple(total.failing),
        )
