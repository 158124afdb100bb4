"""One run from the first kill to the verdict."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from semel.core.policy import microseconds
from tests.kill.asker import LEASE
from tests.kill.checker import Verdict, check
from tests.kill.history import gather, settle
from tests.kill.killer import Killer, Plan, Run
from tests.kill.positions import At
from tests.kill.report import report, summary

_LEAST = 5


class Outcome(NamedTuple):
    """What a run came to."""

    run: Run
    verdict: Verdict
    text: str
    summary: str

    @property
    def never_hit(self) -> list[At]:
        """Positions that no kill hit; a run with one of those proves nothing about it."""
        hits = self.run.hits()
        return [at for at in At if not hits[at]]

    @property
    def good(self) -> bool:
        """Whether the run is a pass."""
        return not (self.verdict.problems or self.run.wedged or self.never_hit)


def kill_and_check(
    folder: Path, kills: int, seed: int, tell: Callable[[int, int], None] = lambda kills, covered: None
) -> Outcome:
    """Kill `kills` workers or more, let everything settle, and judge."""
    return _judged(folder, Killer(folder, Plan(kills, min(_LEAST, kills // len(At) + 1), seed), tell).run())


def stall_and_check(folder: Path, stalls: int, seed: int) -> Outcome:
    """Stop workers for longer than their lease, let them go on, and judge."""
    return _judged(folder, Killer(folder, Plan(0, 0, seed, stalls=stalls)).run())


def _judged(folder: Path, run: Run) -> Outcome:
    settled = settle(folder, run.keys)
    verdict = check(gather(folder, run.kills, settled, microseconds(LEASE)))
    return Outcome(run, verdict, report(run, verdict), summary(run, verdict))
