"""The report of a run: what was killed where, what came of it, and the verdict."""

from collections.abc import Iterable

from tests.kill.checker import Verdict
from tests.kill.positions import MEANING, At
from tests.kill.run import Run


def report(run: Run, verdict: Verdict, positions: Iterable[At]) -> str:
    """The report as text."""
    hits = run.hits()
    lines = [f"{hits[at]:6}  {MEANING[at]}" for at in positions]
    never = [MEANING[at] for at in positions if not hits[at]]
    return "\n".join(
        [
            f"{len(run.kills)} kills (SIGKILL) in {run.seconds:.1f} s, {len(run.kills) / run.seconds:.1f} a second",
            "  hits  position of an asker when its process was killed (two askers per process)",
            *lines,
            f"never hit: {', '.join(never) or 'none'}",
            summary(run, verdict),
        ]
    )


def summary(run: Run, verdict: Verdict) -> str:
    """What came of it."""
    return "\n".join(
        [
            f"keys {verdict.operations}, asked for {run.asked} times, replayed {verdict.replays} times",
            f"take-overs {verdict.take_overs}, audits of a snapshot under way {run.audits}",
            f"effects repeated after a kill at or after the effect {verdict.repeated_after_kill}",
            f"effects repeated after a stall longer than the lease {verdict.repeated_after_stall}",
            f"held in doubt and resolved {verdict.held}, attempts that lost their lease {verdict.zombies}",
            f"lost {verdict.lost}, duplicated without explanation {verdict.unexplained}, wedged {verdict.wedged}",
            *(f"PROBLEM {problem}" for problem in verdict.problems),
        ]
    )
