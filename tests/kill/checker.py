"""The checker: judges a run from its logs alone, key by key, in linear time. It knows nothing of semel.

What a run must show (failure-modes 4.0): an effect in the caller's transaction happens exactly once; one outside of it
happens again only where a logged kill, at or after the effect, left its fate open (or where the process stood still for
longer than a lease, which the log must show as well); under `hold` it happens at most once; a finished step is never
repeated. All answers for a key are equal, and are the value of the last attempt. Every key comes to an end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tests.kill.grounds.ground import Row
from tests.kill.history import History, Settled
from tests.kill.ledger import Line
from tests.kill.positions import EXPLAINS_RERUN, EXPLAINS_STEP, Mode, mode_of
from tests.kill.run import Hit

T = TypeVar("T", Line, Row, Hit)


@dataclass
class Verdict:
    """What was found. A run is good if there are no problems."""

    problems: list[str] = field(default_factory=list)
    operations: int = 0
    replays: int = 0
    take_overs: int = 0
    repeated_after_kill: int = 0
    repeated_after_stall: int = 0
    unexplained: int = 0
    lost: int = 0
    wedged: int = 0
    held: int = 0
    zombies: int = 0


def check(history: History) -> Verdict:
    """Judge every key."""
    verdict = Verdict()
    effects, rows, answers = _by_key(history.effects), _by_key(history.rows), _by_key(history.answers)
    hits = _by_key(hit for kill in history.kills for hit in kill)
    for key, settled in sorted(history.settled.items()):
        judge = _Judge(
            key,
            effects=effects[key],
            rows=rows[key],
            answers=answers[key],
            hits=hits[key],
            settled=settled,
            lease_us=history.lease_us,
        )
        judge.judge(verdict)
        verdict.operations += 1
        verdict.replays += sum(line.what == "replayed" for line in answers[key])
        verdict.zombies += sum(line.what == "lost" for line in answers[key])
        verdict.held += settled.in_doubt_before
    verdict.problems += [f"key {key} has effects and was never asked about" for key in effects.keys() - history.settled]
    return verdict


def _by_key(things: Iterable[T]) -> defaultdict[int, list[T]]:
    found = defaultdict(list)
    for thing in things:
        found[thing.key].append(thing)
    return found


class _Judge:
    """One key."""

    def __init__(
        self,
        key: int,
        *,
        effects: list[Line],
        rows: list[Row],
        answers: list[Line],
        hits: list[Hit],
        settled: Settled,
        lease_us: int,
    ) -> None:
        self.key = key
        self.mode = mode_of(key)
        self.attempts = effects
        self.effects = [line for line in effects if line.what == "effect"]
        self.rows = rows
        self.answers = answers
        self.hits = hits
        self.settled = settled
        self.lease_us = lease_us

    def judge(self, verdict: Verdict) -> None:
        """Add what is wrong with this key, and what is worth counting."""
        verdict.take_overs += len({line.fence for line in self.attempts}) - 1 if self.attempts else 0
        if self.settled.status != "completed":
            verdict.wedged += 1
            self._complain(verdict, f"it ended as {self.settled.status} ({self.settled.value})")
            return
        for problem in (*self._answers(), *self._attempts()):
            self._complain(verdict, problem)
        match self.mode:
            case Mode.WITHIN:
                self._exactly_once(verdict, self.rows, 0)
            case Mode.HOLD:
                self._exactly_once(verdict, self.effects, 0)
            case Mode.RERUN:
                self._at_least_once(verdict, 0)
            case Mode.STEPS:
                self._at_least_once(verdict, 1)
                self._exactly_once(verdict, self.rows, 2)
                self._at_least_once(verdict, 3)
                if self.settled.steps != 3:
                    self._complain(verdict, f"{self.settled.steps} steps are recorded, not 3")

    def _complain(self, verdict: Verdict, what: str) -> None:
        verdict.problems.append(f"{self.mode.name.lower()} {self.key}: {what}")

    def _answers(self) -> Iterator[str]:
        """I2, I3, I7: all answers are equal, and are the value of an attempt that was seen."""
        values = {line.value for line in self.answers if line.what in ("ran", "replayed")} | {self.settled.value}
        if len(values) != 1:
            yield f"its answers differ: {sorted(values)}"
        known = {line.value: line.fence for line in self.attempts}
        if self.settled.value not in known:
            yield f"its answer {self.settled.value} came from no attempt"
        elif self.mode is not Mode.WITHIN and known[self.settled.value] != max(known.values()):
            yield f"its answer {self.settled.value} is not that of the last attempt"
        if self.mode is not Mode.HOLD and any(line.what == "in_doubt" for line in self.answers):
            yield "somebody was told that it is in doubt"

    def _attempts(self) -> Iterator[str]:
        """I4: fences rise and attempts are counted; a further attempt is told of the doubt."""
        if self.mode is Mode.WITHIN:
            for line in self.attempts:
                if (line.fence, line.attempt, line.in_doubt) != (1, 1, 0):
                    yield f"a transaction that was rolled back left a trace: {line}"
            return
        for line in self.attempts:
            if self.mode is not Mode.HOLD and (line.in_doubt != (line.fence > 1) or line.attempt != line.fence):
                yield f"an attempt was told wrong: {line}"
        for earlier, later in pairwise(self.attempts):
            if later.fence < earlier.fence and not self._stalled(later):
                yield f"a late attempt had an effect although it never stood still: {later}"

    def _exactly_once(self, verdict: Verdict, seen: list[Line] | list[Row], step: int) -> None:
        found = [thing for thing in seen if thing.step == step]
        if not found:
            verdict.lost += 1
            self._complain(verdict, f"its effect {step} is lost")
        elif len(found) > 1:
            verdict.unexplained += len(found) - 1
            self._complain(verdict, f"its effect {step} happened {len(found)} times: {found}")

    def _at_least_once(self, verdict: Verdict, step: int) -> None:
        found = [line for line in self.effects if line.step == step]
        if not found:
            verdict.lost += 1
            self._complain(verdict, f"its effect {step} is lost")
        kept = max(found, key=lambda line: line.fence, default=None)
        for line in found:
            if line is kept:
                continue
            if self._killed(line):
                verdict.repeated_after_kill += 1
            elif self._stalled(line):
                verdict.repeated_after_stall += 1
            else:
                verdict.unexplained += 1
                self._complain(verdict, f"no kill explains why there was another effect after {line}")

    def _killed(self, line: Line) -> bool:
        """Whether the attempt of this effect was killed before its end was recorded."""
        positions = EXPLAINS_STEP if line.step else EXPLAINS_RERUN
        return any(
            hit.life == line.life and hit.fence == line.fence and hit.step == line.step and hit.at in positions
            for hit in self.hits
        )

    def _stalled(self, line: Line) -> bool:
        """Whether the attempt says itself that it lost its lease, and took longer than a lease lasts."""
        return any(
            answer.what == "lost"
            and answer.life == line.life
            and answer.fence == line.fence
            and answer.micros >= self.lease_us
            for answer in self.answers
        )
