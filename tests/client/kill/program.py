"""One run from the first round to the verdict, and its report."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.client.kill.checker import Kind, Problem, check
from tests.client.kill.killer import Killer
from tests.client.kill.plans import STOPS, plans
from tests.client.kill.positions import At, Cut
from tests.client.kill.story import Story


class Outcome(NamedTuple):
    """What a run came to."""

    seed: int
    seconds: float
    stories: list[Story]
    problems: list[Problem]

    @property
    def kills(self) -> Counter[At]:
        """How often a life was killed at each position."""
        return Counter(life.killed for story in self.stories for life in story.lives if life.killed is not None)

    @property
    def cuts(self) -> Counter[Cut]:
        """How often a connection was cut at each position."""
        return Counter(cut for story in self.stories for life in story.lives for cut in life.cuts)

    @property
    def never_hit(self) -> list[At | Cut]:
        """Positions that were never hit; a run with one of those proves nothing about it."""
        return [*(at for at in At if not self.kills[at]), *(cut for cut in Cut if not self.cuts[cut])]

    @property
    def good(self) -> bool:
        """Whether the run is a pass."""
        return not (self.problems or self.never_hit)


def kill_and_check(
    folder: Path,
    rounds: int,
    seed: int,
    *,
    mutant: str = "",
    stops: Sequence[At] = STOPS,
    tell: Callable[[int, int], None] = lambda rounds, problems: None,
) -> Outcome:
    """Lead so many orders through kills and cuts, and judge. `tell` is given rounds and problems as it goes."""
    began = time.monotonic()
    stories: list[Story] = []
    problems: list[Problem] = []
    with Killer(folder, mutant) as killer:
        for plan in plans(rounds, seed, stops):
            stories.append(killer.round(plan))
            problems += check(stories[-1])
            tell(len(stories), len(problems))
    return Outcome(seed, time.monotonic() - began, stories, problems)


def report(outcome: Outcome) -> str:
    """The report as text."""
    stories, kills, cuts = outcome.stories, outcome.kills, outcome.cuts
    never = [f"{type(one).__name__}.{one.name}" for one in outcome.never_hit]
    kinds = Counter(problem.kind for problem in outcome.problems)
    clients = Counter(f"{story.plan.library.value}, {_named(story)}" for story in stories)
    reports = [life.report for story in stories for life in story.lives if life.report is not None]
    return "\n".join(
        [
            f"{len(stories)} rounds in {outcome.seconds:.1f} s, seed {outcome.seed}",
            f"{kills.total():6}  kills (SIGKILL)",
            *(f"{kills[at]:6}    {at.value}" for at in At),
            f"{cuts.total():6}  cuts",
            *(f"{cuts[cut]:6}    {cut.value}" for cut in Cut),
            f"{len(stories):6}  rounds by client",
            *(f"{count:6}    {client}" for client, count in sorted(clients.items())),
            f"{sum(len(story.lives) for story in stories):6}  lives",
            f"{sum(bool(one.gave_up) for one in reports):6}    gave up after the last try",
            f"{sum(len(one.resumed) for one in reports):6}  requests resumed by a later life",
            f"{sum(len(story.requests) for story in stories):6}  requests that the service saw",
            f"{sum(len(story.effects) for story in stories):6}  effects",
            f"{sum(not story.effects for story in stories):6}  orders that were never kept and never sent",
            f"never hit: {', '.join(never) or 'none'}",
            ", ".join(f"{kind.value} {kinds[kind]}" for kind in Kind),
            *(f"PROBLEM in round {at}: {kind.value}: {text}" for at, kind, text in outcome.problems),
            "PASS" if outcome.good else "NOT A PASS",
        ]
    )


def _named(story: Story) -> str:
    return "named" if story.plan.named else "without a name"
