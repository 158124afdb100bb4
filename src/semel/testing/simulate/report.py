"""What a run proved: how many schedules, which worlds to the end, what was reached, and what failed.

What always holds: a run passes only if no invariant was broken and everything that should happen sometimes did happen:
a fault that never struck, or a path that nobody took, proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from semel.testing.simulate.explore import Failing

SOMETIMES: Final = frozenset({
    "fault: refuse", "fault: lose", "fault: late", "fault: half", "fault: hang",
    "fault: crash", "fault: crash before", "fault: crash after",
    "fault: stall", "fault: stall before", "fault: stall after",
    "fault: cancel", "fault: jump forward", "fault: jump back",
    "fault: doubt", "fault: retry", "fault: final", "fault: unsure",
    "answered: first", "answered: replay", "answered: InProgress", "answered: InDoubt", "answered: KeyReused",
    "answered: LeaseLost", "answered: FailedBefore", "answered: StoreUnavailable",
    "answered: Broken", "answered: Declined", "answered: NothingHappened",
    "found running", "replayed", "reused", "held back", "too early to ask",
    "taken over", "taken over to ask", "claimed again", "granted again", "next generation",
    "completed", "completed again", "renewed", "refused: Complete", "refused: Fail", "refused: Renew",
    "failed: final", "failed: retry", "failed: doubt", "failed: retry, never called", "failed: doubt, never called",
    "failed: final, never called",
    "hook: happened", "hook: did not happen", "resumed after a step", "effect repeated", "zombie superseded",
    "zombie's effect", "arrived late",
    "promoted", "promoted, too late", "waited and got it", "waited in vain", "last read finds it",
    "cancelled with its claim waiting or answered", "cancelled with its claim out",
    "cancelled with its claim granted", "given back", "cleaned up",
    "duplicates in one batch", "strangers in one batch", "round of several kinds",
    "lead handed over", "led on for the gone", "leader interrupted", "heir interrupted",
    "refused at once", "sent away", "left alone", "found again",
    "erased", "replayed, erased", "erasing answered", "erasing answered: NotResolvable",
    "erasing answered: StoreUnavailable", "answered: ResultNotKept",
    "resolved", "nothing to resolve", "corrected", "answered: stated", "correcting answered",
    "correcting answered: NotResolvable", "correcting answered: StoreUnavailable",
    "purged", "lapsed", "swept", "swept: reconciled", "settled in the end", "held, then resolved", "told in time",
    "stall reported",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Explored:
    """How far one small world was explored."""

    name: str
    faults: int
    slow: int
    schedules: int
    cut: int
    states: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `verify`."""

    schedules: int
    cut: int
    states: int
    moves: int
    longest: int
    seconds: float
    seed: int
    worlds: tuple[Explored, ...]
    by_chance: int
    seen: dict[str, int]
    missing: tuple[str, ...]
    failing: tuple[Failing, ...]

    @property
    def passed(self) -> bool:
        """Whether every invariant held and everything that should be reached was."""
        return not self.failing and not self.missing

    @property
    def exhaustive(self) -> int:
        """How many schedules come from worlds that were explored to the end."""
        return sum(world.schedules for world in self.worlds if world.complete)

    def __str__(self) -> str:
        return "\n".join([*self._head(), *self._worlds(), *self._sometimes(), *map(str, self.failing), self._verdict()])

    def summary(self) -> str:
        """One line."""
        rate = self.schedules / self.seconds if self.seconds else 0.0
        return (
            f"{self.schedules:,} schedules in {self.seconds:.1f} s ({rate:,.0f}/s), {self.moves:,} moves, "
            f"{self.states:,} states, longest {self.longest} moves; {self.exhaustive:,} exhaustive, "
            f"{self.by_chance:,} by chance with seed {self.seed}"
        )

    def _head(self) -> list[str]:
        cut = f"{self.cut:,} further ones were cut short where they reached a state seen before"
        return [self.summary(), cut]

    def _worlds(self) -> list[str]:
        if not self.worlds:
            return ["no world was explored to the end: that takes more schedules than were asked for"]
        lines = ["explored to the end (two processes or more, every order of moves, every combination of faults):"]
        for world in self.worlds:
            end = "" if world.complete else "  NOT to the end"
            bounds = f"{world.faults} faults, slow {world.slow}"
            lines.append(
                f"  {world.name:<22} {bounds:<16} {world.schedules:>8,} schedules {world.states:>8,} states{end}"
            )
        return lines

    def _sometimes(self) -> list[str]:
        lines = ["reached:"]
        lines += [f"  {count:>12,}  {name}" for name, count in sorted(self.seen.items())]
        lines += [f"         NEVER  {name}" for name in self.missing]
        return lines

    def _verdict(self) -> str:
        if self.failing:
            return f"FAILED: {len(self.failing)} schedules break an invariant"
        if self.missing:
            return f"NOT PROVED: {len(self.missing)} things that should happen sometimes never did"
        return "PASSED: every invariant held in every schedule, and everything that should be reached was"
