"""The checker: judges a run from its logs alone, key by key, in linear time. It knows nothing of semel.

What a run must show (failure-modes 4.0): an effect in the caller's transaction happens exactly once; one outside of it
happens again only where a logged kill, at or after the effect, left its fate open (or where the process stood still for
longer than a lease, which the log must show as well; or where a server forgot what it had acknowledged, which is told
apart and counted, because only a store of best effort may do so); under `hold` it happens at most once; a finished
step is never repeated. All answers for a key are equal, and are the value of the last attempt. The history of a key
tells every attempt that its record counts, once: an entry is written with the record, so a kill loses both or neither.
Every key comes to an end.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tests.kill.causes import Causes
from tests.kill.grounds.ground import Row
from tests.kill.history import History, Settled
from tests.kill.ledger import ANSWERED, Line
from tests.kill.positions import Mode, mode_of
from tests.kill.run import Hit

T = TypeVar("T", Line, Row, Hit)


@dataclass
class Verdict:
    """What was found. A run is good if there are no problems."""

    problems: list[str] = field(default_factory=list)
    operations: int = 0
    replays: int = 0
    cached: int = 0
    take_overs: int = 0
    repeated_after_kill: int = 0
    repeated_after_stall: int = 0
    forgotten: int = 0
    """Keys of which a server forgot in an outage what it had acknowledged."""
    explained: list[str] = field(default_factory=list)
    """For each effect that was repeated, and each other trace of forgetting: why."""
    unexplained: int = 0
    lost: int = 0
    wrong: int = 0
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
            mode_of(key, history.modes),
            Causes(
                attempts=effects[key],
                answers=answers[key],
                hits=hits[key],
                outages=history.outages,
                settled=settled,
                lease_us=history.lease_us,
            ),
            effects=effects[key],
            rows=rows[key],
            answers=answers[key],
            settled=settled,
        )
        judge.judge(verdict)
        verdict.operations += 1
        verdict.replays += sum(line.what in ("replayed", "cached") for line in answers[key])
        verdict.cached += sum(line.what == "cached" for line in answers[key])
        verdict.zombies += sum(line.what == "lost" for line in answers[key])
        verdict.held += settled.in_doubt_before
    verdict.problems += [f"key {key} has effects and was never asked about" for key in effects.keys() - history.settled]
    return verdict


def _by_key(things: Iterable[T]) -> defaultdict[int, list[T]]:
    found = defaultdict(list)
    for thing in things:
        found[thing.key].append(thing)
    return found


def _by(found: Iterable[Line | Row]) -> str:
    return "".join(f", by attempt {each.fence} in worker {each.life}" for each in found)


class _Judge:
    """One key."""

    def __init__(
        self,
        key: int,
        mode: Mode,
        causes: Causes,
        *,
        effects: list[Line],
        rows: list[Row],
        answers: list[Line],
        settled: Settled,
    ) -> None:
        self.key = key
        self.mode = mode
        self.causes = causes
        self.attempts = effects
        self.effects = [line for line in effects if line.what == "effect"]
        self.rows = rows
        self.answers = answers
        self.settled = settled

    def judge(self, verdict: Verdict) -> None:
        """Add what is wrong with this key, and what is worth counting."""
        verdict.take_overs += len({line.fence for line in self.attempts}) - 1 if self.attempts else 0
        verdict.forgotten += self.causes.forgotten is not None
        if self.settled.status != "completed":
            verdict.wedged += self.causes.forgotten is None
            self._excuse_or_complain(verdict, f"it ended as {self.settled.status} ({self.settled.value})")
            return
        if self.settled.entered != tuple(range(1, self.settled.attempts + 1)):
            told = f"{self.settled.attempts} attempts are counted, and its history tells of {self.settled.entered}"
            self._excuse_or_complain(verdict, told)
        wrong = list(self._answers())
        verdict.wrong += len(wrong)
        for problem in (*wrong, *self._attempts()):
            self._excuse_or_complain(verdict, problem)
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
                self._all_steps(verdict)
            case Mode.PLAIN_STEPS:
                for step in (1, 2, 3):
                    self._at_least_once(verdict, step)
                self._all_steps(verdict)

    def _all_steps(self, verdict: Verdict) -> None:
        if self.settled.steps != 3:
            self._complain(verdict, f"{self.settled.steps} steps are recorded, not 3")

    def _complain(self, verdict: Verdict, what: str) -> None:
        verdict.problems.append(f"{self.mode.name.lower()} {self.key}: {what}")

    def _explain(self, verdict: Verdict, what: str, why: object) -> None:
        verdict.explained.append(f"{self.mode.name.lower()} {self.key}: {what}: {why}")

    def _excuse_or_complain(self, verdict: Verdict, what: str) -> None:
        """What follows from a forgotten record is told with it; everything else is a problem."""
        if self.causes.forgotten is None:
            self._complain(verdict, what)
        else:
            self._explain(verdict, what, self.causes.forgotten)

    def _answers(self) -> Iterator[str]:
        """I2, I3, I7: all answers are equal, and are the value of an attempt that was seen."""
        values = {line.value for line in self.answers if line.what in ANSWERED} | {self.settled.value}
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
        """I4: fences rise and attempts are counted; a further attempt is told of the doubt.

        A claim that was given back because it came too late took a fence and was no attempt.
        """
        if self.mode is Mode.WITHIN:
            for line in self.attempts:
                if (line.fence, line.attempt, line.in_doubt) != (1, 1, 0):
                    yield f"a transaction that was rolled back left a trace: {line}"
            return
        returned = {answer.fence for answer in self.answers if answer.what == "returned"}
        for line in self.attempts:
            given_back = sum(fence < line.fence for fence in returned)
            is_counted = line.fence - given_back <= line.attempt <= line.fence
            if self.mode is not Mode.HOLD and (line.in_doubt != (line.attempt > 1) or not is_counted):
                yield f"an attempt was told wrong: {line}"
        for earlier, later in pairwise(self.attempts):
            if later.fence < earlier.fence and not self.causes.stalled(later):
                yield f"a late attempt had an effect although it never stood still: {later}"

    def _exactly_once(self, verdict: Verdict, seen: list[Line] | list[Row], step: int) -> None:
        found = [thing for thing in seen if thing.step == step]
        if not found:
            verdict.lost += 1
            self._complain(verdict, f"its effect {step} is lost")
        elif len(found) > 1:
            verdict.unexplained += len(found) - 1 if self.causes.forgotten is None else 0
            self._excuse_or_complain(verdict, f"its effect {step} happened {len(found)} times{_by(found)}")

    def _at_least_once(self, verdict: Verdict, step: int) -> None:
        found = [line for line in self.effects if line.step == step]
        if not found:
            verdict.lost += 1
            self._complain(verdict, f"its effect {step} is lost")
        kept = max(found, key=lambda line: (line.fence, line.at), default=None)
        for line in found:
            if line is not kept:
                self._repeated(verdict, line)

    def _repeated(self, verdict: Verdict, line: Line) -> None:
        """Why there was another effect after this one."""
        what = f"effect {line.step} of attempt {line.fence} in worker {line.life} was repeated"
        if killed := self.causes.killed(line):
            verdict.repeated_after_kill += 1
            self._explain(verdict, what, killed)
        elif stalled := self.causes.stalled(line):
            verdict.repeated_after_stall += 1
            self._explain(verdict, what, stalled)
        elif self.causes.forgotten is not None:
            self._explain(verdict, what, self.causes.forgotten)
        else:
            verdict.unexplained += 1
            self._complain(verdict, f"no kill explains why there was another effect after {line}")
