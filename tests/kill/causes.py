"""Why an effect of one key happened again: by a kill, by a stall, by a server that forgot. Nothing else explains it.

What always holds: every cause is read from the logs: a kill that hit this very attempt, an attempt that said itself
that its end is not recorded, an outage between an acknowledgement and the run that shows that nobody remembered it.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from tests.kill.history import Settled
from tests.kill.ledger import ANSWERED, Line
from tests.kill.positions import EXPLAINS_RERUN, EXPLAINS_STEP, MEANING, Mode
from tests.kill.run import Hit, Outage


class Attempt(NamedTuple):
    """One run of a handler, as its lines show it."""

    fence: int
    life: int
    asked: int
    """When its key was asked for: the claim was granted afterwards."""
    at: int
    """When it had its first effect: the claim was granted before."""


class Forgotten(NamedTuple):
    """Something that a server acknowledged, and what shows that it was forgotten."""

    what: str
    outage: Outage

    def __str__(self) -> str:
        return f"forgotten by {self.outage.server} in outage {self.outage.number}: {self.what}"


class Causes:
    """What the logs say about one key."""

    def __init__(
        self,
        *,
        attempts: list[Line],
        answers: list[Line],
        hits: list[Hit],
        outages: list[Outage],
        settled: Settled,
        lease_us: int,
    ) -> None:
        self._answers = answers
        self._hits = hits
        self._outages = outages
        self._lease_us = lease_us
        self.forgotten = self._first_forgotten(_attempts(attempts), settled)
        """What was forgotten of this key, where anything was."""

    def killed(self, line: Line) -> str:
        """The kill that hit the attempt of this effect before its end was recorded."""
        positions = EXPLAINS_STEP if line.step else EXPLAINS_RERUN
        for hit in self._hits:
            if (hit.life, hit.fence, hit.step) == (line.life, line.fence, line.step) and hit.at in positions:
                return f"kill {hit.kill} hit it at: {MEANING[hit.at]}"
        return ""

    def stalled(self, line: Line) -> str:
        """Where the attempt says itself that its end is not recorded, after at least the length of a lease."""
        for answer in self._answers:
            mine = (answer.life, answer.fence) == (line.life, line.fence)
            if mine and answer.what == "lost" and answer.micros >= self._lease_us:
                return (
                    f"it was told after {answer.micros // 1000} ms that its end is not recorded{self._during(answer)}"
                )
        return ""

    def _during(self, line: Line) -> str:
        outage = self._between(line.asked, line.at)
        return f", in outage {outage.number} of {outage.server}" if outage else ""

    def _between(self, begin: int, end: int) -> Outage | None:
        """The last outage that fell into this time."""
        return next((each for each in reversed(self._outages) if each.began < end and each.ended > begin), None)

    def _first_forgotten(self, attempts: list[Attempt], settled: Settled) -> Forgotten | None:
        """Something acknowledged before an outage and unknown after it; without an outage between it is no excuse."""
        for what, begin, end in (*_claims_forgotten(attempts), *self._ends_forgotten(attempts, settled)):
            outage = self._between(begin, end)
            if outage is not None:
                return Forgotten(what, outage)
        return None

    def _ends_forgotten(self, attempts: list[Attempt], settled: Settled) -> Iterator[tuple[str, int, int]]:
        """A completion was acknowledged, and yet there was another attempt, or there is no completion at last."""
        for answer in self._answers:
            if answer.what not in ANSWERED:
                continue
            ended = int(answer.value.partition(".")[0])
            for attempt in attempts:
                if attempt.fence > ended:
                    what = f"the completion with fence {ended} was acknowledged, then fence {attempt.fence} was granted"
                    yield what, answer.asked, attempt.at
            if settled.status != "completed":
                what = f"the completion with fence {ended} was acknowledged, and its record is {settled.status}"
                yield what, answer.asked, self._outages[-1].ended if self._outages else answer.asked


def _attempts(lines: list[Line]) -> list[Attempt]:
    """The attempts whose claims were acknowledged, in the order of their first lines.

    A claim inside the caller's transaction is nothing to remember before that is committed.
    """
    first: dict[tuple[int, int, int], Attempt] = {}
    for line in lines:
        if line.mode == Mode.WITHIN:
            continue
        attempt = Attempt(line.fence, line.life, line.asked, line.at)
        first.setdefault(attempt[:3], attempt)
    return list(first.values())


def _claims_forgotten(attempts: list[Attempt]) -> Iterator[tuple[str, int, int]]:
    """A fence rises as long as the record is remembered: granted a second time, or a lower one later, it was not."""
    for earlier, later in combinations(attempts, 2):
        if later.fence == earlier.fence or (later.fence < earlier.fence and later.asked > earlier.at):
            what = f"the claim with fence {earlier.fence} was acknowledged, then fence {later.fence} was granted"
            yield what, earlier.asked, later.at
