"""The harness: variants of one case run in turns, and are compared only with what ran beside them.

What always holds: a ratio is taken inside one round, between two variants that ran one after the other on the same
machine in the same second; figures of two runs are never compared. Medians are reported with their spread.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from bench.machine import Watch
from bench.site import Fact, Site, in_this_process

Measure = Callable[[int], float]
"""Makes so many calls and gives back the seconds that they took, without what was prepared for them."""

DISTURBED = 0.1


@dataclass(frozen=True)
class Effort:
    """How much is measured. The defaults are those of the published figures.

    `tries`: how often a round is begun again in which other processes took more than `DISTURBED` of the machine.
    """

    rounds: int = 15
    scale: float = 1.0
    rows: int = 100_000
    tries: int = 5

    def calls(self, usual: int) -> int:
        """How many calls a variant makes in one round."""
        return max(1, round(usual * self.scale))

    def keys(self, usual: int) -> int:
        """How many keys there are to replay: as usual, and fewer where little is measured."""
        return min(usual, self.calls(usual))


@dataclass(frozen=True)
class Comparison:
    """How a variant is compared: "faster" counts how many times the baseline's speed, "slower" how many times its time.

    `bound` is the target, where there is one.
    """

    kind: Literal["faster", "slower"]
    bound: float | None = None

    def ratio(self, seconds: float, baseline: float) -> float:
        """The ratio to the baseline."""
        return baseline / seconds if self.kind == "faster" else seconds / baseline

    def met(self, ratio: float) -> bool | None:
        """Whether a ratio is within the bound; None where there is none."""
        if self.bound is None:
            return None
        return ratio >= self.bound if self.kind == "faster" else ratio <= self.bound

    @property
    def target(self) -> str:
        """The bound in words."""
        if self.bound is None:
            return ""
        return f"≥ {self.bound:g}× the speed" if self.kind == "faster" else f"≤ {self.bound:g}× the time"


@dataclass(frozen=True)
class Variant:
    """One way to do the same work.

    `added`: a variant whose time, too, belongs to the baseline.
    """

    name: str
    prepare: Callable[[Path, Effort], AbstractContextManager[Measure]]
    calls: int
    against: str | None = None
    by: Comparison = Comparison("slower")
    added: str | None = None


@dataclass(frozen=True)
class Case:
    """Variants that are compared with each other.

    Attributes:
        needs: a package of others that has to be installed.
        site: what runs around all of it: a server, with tables that hold so many rows.
        facts: what is counted after the rounds, on the same site.
    """

    name: str
    title: str
    variants: tuple[Variant, ...] = ()
    notes: tuple[str, ...] = ()
    needs: str | None = None
    site: Callable[[Path, int], AbstractContextManager[Site]] = in_this_process
    facts: Callable[[Path, Effort], Sequence[Fact]] | None = None


@dataclass
class Figures:
    """What was measured of one variant, once per round, per call.

    Seconds, processor seconds, the share of the machine that other processes took meanwhile, ratio to the baseline.
    """

    variant: Variant
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds per call."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float | None:
        """The median of the ratios; None for a baseline."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def verdict(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.ratio is None else self.variant.by.met(self.ratio)


@dataclass
class Outcome:
    """What was measured of one case, and how what it was measured on is set."""

    case: Case
    figures: list[Figures]
    facts: Sequence[Fact]
    settings: Mapping[str, object]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The middle half of `values`: a quarter is below the first, a quarter above the second."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


Prepared = list[tuple[Variant, Measure]]
Sample = tuple[float, float, float]


def run_case(case: Case, effort: Effort, folder: Path, advance: Callable[[str, int], None]) -> Outcome:
    """Measure a case: a round to warm up, then rounds that count. `advance` is told what is done, in how many steps.

    Raises:
        Unavailable: it cannot be measured here.
    """
    figures = {variant.name: Figures(variant) for variant in case.variants}
    facts: Sequence[Fact] = ()
    with ExitStack() as stack:
        advance(f"{case.name}: preparing", 0)
        site = stack.enter_context(case.site(folder, effort.rows))
        prepared: Prepared = []
        for variant in case.variants:
            advance(f"{case.name}: preparing {variant.name}", 1)
            prepared.append((variant, stack.enter_context(variant.prepare(folder, effort))))
        _rounds(prepared, figures, effort, _Turn(case.name, site.processes, advance))
        if case.facts is not None:
            advance(f"{case.name}: counting", 1)
            facts = case.facts(folder, effort)
    for measured in figures.values():
        variant = measured.variant
        if variant.against is not None:
            baseline = figures[variant.against].seconds
            if variant.added is not None:
                baseline = [sum(both) for both in zip(baseline, figures[variant.added].seconds, strict=True)]
            pairs = zip(measured.seconds, baseline, strict=True)
            measured.ratios = [variant.by.ratio(seconds, usual) for seconds, usual in pairs]
    return Outcome(case, list(figures.values()), facts, site.settings)


@dataclass(frozen=True)
class _Turn:
    """What every round of a case needs to know."""

    case: str
    processes: tuple[int, ...]
    advance: Callable[[str, int], None]


def _rounds(prepared: Prepared, figures: dict[str, Figures], effort: Effort, turn: _Turn) -> None:
    if not prepared:
        return
    _round(prepared, effort, turn.processes, lambda name: turn.advance(f"{turn.case}: warming up {name}", 1))
    for number in range(effort.rounds):
        shift = number % len(prepared)  # nobody is always first, or always after the same neighbour's disk writes
        for name, sample in _quiet_round(prepared[shift:] + prepared[:shift], effort, turn).items():
            for values, value in zip(_columns(figures[name]), sample, strict=True):
                values.append(value)


def _columns(figures: Figures) -> tuple[list[float], list[float], list[float]]:
    return figures.seconds, figures.processor, figures.others


def _quiet_round(prepared: Prepared, effort: Effort, turn: _Turn) -> dict[str, Sample]:
    """A round, tried again while others disturb it: the one that was disturbed least."""
    best: dict[str, Sample] = {}
    for attempt in range(max(1, effort.tries)):
        again = f" (try {attempt + 1})" if attempt else ""
        before = partial(_before, turn, again)
        samples = _round(prepared, effort, turn.processes, before)
        if not best or _most_others(samples) < _most_others(best):
            best = samples
        if _most_others(best) <= DISTURBED:
            break
    turn.advance(turn.case, len(prepared))
    return best


def _before(turn: _Turn, again: str, name: str) -> None:
    turn.advance(f"{turn.case}: {name}{again}", 0)


def _most_others(samples: dict[str, Sample]) -> float:
    return max(others for _, _, others in samples.values())


def _round(
    prepared: Prepared, effort: Effort, processes: tuple[int, ...], before: Callable[[str], None]
) -> dict[str, Sample]:
    samples = {}
    for variant, measure in prepared:
        before(variant.name)
        calls = effort.calls(variant.calls)
        gc.collect()
        watch = Watch(processes)
        seconds = measure(calls)
        used, others = watch.stop()
        samples[variant.name] = (seconds / calls, used / calls, others)
    return samples


def steps(case: Case, effort: Effort) -> int:
    """How often `run_case` advances."""
    return len(case.variants) * (effort.rounds + 2) + (1 if case.facts is not None else 0)
