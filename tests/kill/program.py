"""One run from the first kill to the verdict."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from semel.core.policy import microseconds
from tests.kill.asker import LEASE
from tests.kill.checker import Verdict, check
from tests.kill.grounds.ground import Ground
from tests.kill.grounds.private import Private
from tests.kill.history import gather, settle
from tests.kill.killer import Killer
from tests.kill.positions import At, positions_of
from tests.kill.report import report, summary
from tests.kill.run import Plan, Run

_LEAST = 5


class Outcome(NamedTuple):
    """What a run came to."""

    run: Run
    verdict: Verdict
    text: str
    summary: str
    never_hit: list[At]
    """Positions that no kill hit; a run with one of those proves nothing about it."""

    @property
    def good(self) -> bool:
        """Whether the run is a pass."""
        return not (
            self.verdict.problems or self.verdict.forgotten or self.run.missing or self.run.wedged or self.never_hit
        )


def kill_and_check(
    folder: Path, ground: Ground, kills: int, seed: int, tell: Callable[[int, int], None] = lambda kills, covered: None
) -> Outcome:
    """Kill `kills` workers or more, let everything settle, and judge."""
    plan = Plan(kills, min(_LEAST, kills // len(At) + 1), seed)
    return _judged(folder, ground, Killer(folder, ground, plan, tell).run())


def stall_and_check(folder: Path, ground: Ground, stalls: int, seed: int) -> Outcome:
    """Stop workers for longer than their lease, let them go on, and judge."""
    return _judged(folder, ground, Killer(folder, ground, Plan(0, 0, seed, stalls=stalls)).run())


def break_server_and_check(
    folder: Path,
    private: Private,
    outages: int,
    seed: int,
    tell: Callable[[int, int], None] = lambda kills, covered: None,
) -> Outcome:
    """Kill the server under the workers and start it again, `outages` times, and judge.

    Whoever was told that its run is not recorded says so: that, and nothing else, explains an effect that is repeated.
    """
    ground = private.ground
    run = Killer(folder, ground, Plan(0, 0, seed, outages=outages), tell, private.breaking).run()
    return _judged(folder, ground, run, lease_us=0)


def demand_a_pass(outcome: Outcome, kills: int) -> None:
    """Demand that killed workers did no harm, and that the run had the kills and repetitions to prove it."""
    assert outcome.never_hit == [], f"a run in which a position was never hit is not a pass: {outcome.never_hit}"
    assert len(outcome.run.kills) >= kills, len(outcome.run.kills)
    demand_no_harm(outcome)
    assert outcome.verdict.take_overs > 0, outcome.summary
    assert outcome.verdict.repeated_after_kill > 0, outcome.summary


def demand_no_harm(outcome: Outcome) -> None:
    """Demand that nothing was lost, forgotten or wedged, and that every repetition has its reason."""
    assert outcome.run.wedged == [], outcome.run.wedged
    assert outcome.run.missing == [], outcome.run.missing
    assert outcome.verdict.problems == [], outcome.verdict.problems
    assert outcome.verdict.forgotten == 0, outcome.verdict.explained


def _judged(folder: Path, ground: Ground, run: Run, *, lease_us: int = microseconds(LEASE)) -> Outcome:
    settled = settle(folder, ground, run.keys)
    verdict = check(gather(folder, ground, run, settled, lease_us))
    positions, hits = (
        positions_of(ground.modes, commits_rounds=ground.commits_rounds, cached=ground.cache is not None),
        run.hits(),
    )
    never = [at for at in positions if run.kills and not hits[at]]
    return Outcome(run, verdict, report(run, verdict, positions), summary(run, verdict), never)
