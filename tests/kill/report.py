"""The report of a run: what was killed where, what came of it, and the verdict."""

from collections import Counter
from collections.abc import Iterable

from tests.kill.checker import Verdict
from tests.kill.positions import MEANING, At
from tests.kill.run import Run


def report(run: Run, verdict: Verdict, positions: Iterable[At]) -> str:
    """The report as text: what was killed, what came of it, and why each repeated effect was repeated."""
    parts = [_kills(run, positions)] if run.kills else []
    parts += [_outages(run)] if run.outages else []
    return "\n".join([*parts, summary(run, verdict), *verdict.explained])


def _kills(run: Run, positions: Iterable[At]) -> str:
    hits = run.hits()
    lines = [f"{hits[at]:6}  {MEANING[at]}" for at in positions]
    never = [MEANING[at] for at in positions if not hits[at]]
    return "\n".join(
        [
            f"{len(run.kills)} kills (SIGKILL) in {run.seconds:.1f} s, {len(run.kills) / run.seconds:.1f} a second",
            "  hits  position of an asker when its process was killed (two askers per process)",
            *lines,
            f"never hit: {', '.join(never) or 'none'}",
        ]
    )


def _outages(run: Run) -> str:
    servers = ", ".join(
        f"{count} of {server}" for server, count in Counter(each.server for each in run.outages).items()
    )
    away = max(outage.ended - outage.began for outage in run.outages) / 1_000_000
    return f"{len(run.outages)} kills of a server ({servers}) in {run.seconds:.1f} s, the longest outage {away:.1f} s"


def summary(run: Run, verdict: Verdict) -> str:
    """What came of it."""
    asked = f"asked for {run.asked} times, replayed {verdict.replays} times, of these {verdict.cached} from a cache"
    harm = f"lost {verdict.lost}, duplicated without explanation {verdict.unexplained}, wrong answers {verdict.wrong}"
    return "\n".join(
        [
            f"keys {verdict.operations}, {asked}",
            f"take-overs {verdict.take_overs}, audits of a snapshot under way {run.audits}",
            f"effects repeated after a kill at or after the effect {verdict.repeated_after_kill}",
            f"effects repeated after a stall longer than the lease, or in an outage {verdict.repeated_after_stall}",
            f"held in doubt and resolved {verdict.held}, attempts that lost their lease {verdict.zombies}",
            f"{harm}, wedged {verdict.wedged}, forgotten by a server {verdict.forgotten}",
            *(f"PROBLEM {problem}" for problem in (*run.missing, *verdict.problems)),
        ]
    )
