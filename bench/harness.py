"""The harness: variants of one case run in turns, and are compared only with what ran beside them.

What always holds: a ratio is taken inside one round, between two variants that ran one after the other on the same
machine in the same second; figures of two runs are never compared. Medians are reported with their spread.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Measure = Callable[[int], float]
"""Makes so many calls and gives back the seconds that they took, without what was prepared for them."""


@dataclass(frozen=True)
class Effort:
    """How much is measured. The defaults are those of the published figures."""

    rounds: int = 15
    scale: float = 1.0
    rows: int = 100_000

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
    """One way to do the same work."""

    name: str
    prepare: Callable[[Path, Effort], AbstractContextManager[Measure]]
    calls: int
    against: str | None = None
    by: Comparison = Comparison("slower")


@dataclass(frozen=True)
class Case:
    """Variants that are compared with each other."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()
    needs: str | None = None


@dataclass
class Figures:
    """What was measured of one variant, once per round: seconds per call, processor seconds, ratio to its baseline."""

    variant: Variant
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
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


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The middle half of `values`: a quarter is below the first, a quarter above the second."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def run_case(case: Case, effort: Effort, folder: Path, advance: Callable[[str], None]) -> list[Figures]:
    """Measure a case: one round to warm up, then rounds that count. `advance` is told before each measurement."""
    figures = {variant.name: Figures(variant) for variant in case.variants}
    with ExitStack() as stack:
        measures = []
        for variant in case.variants:
            advance(f"{case.name}: preparing {variant.name}")
            measures.append((variant, stack.enter_context(variant.prepare(folder, effort))))
        for turn in range(-1, effort.rounds):
            shift = turn % len(measures)  # nobody is always first, or always after the same neighbour's disk writes
            for variant, measure in measures[shift:] + measures[:shift]:
                advance(f"{case.name}: {variant.name}")
                calls = effort.calls(variant.calls)
                gc.collect()
                used = time.process_time()
                seconds = measure(calls)
                used = time.process_time() - used
                if turn >= 0:
                    figures[variant.name].seconds.append(seconds / calls)
                    figures[variant.name].processor.append(used / calls)
    for measured in figures.values():
        variant = measured.variant
        if variant.against is not None:
            pairs = zip(measured.seconds, figures[variant.against].seconds, strict=True)
            measured.ratios = [variant.by.ratio(seconds, baseline) for seconds, baseline in pairs]
    return list(figures.values())


def steps(case: Case, effort: Effort) -> int:
    """How often `run_case` advances."""
    return len(case.variants) * (effort.rounds + 2)
