"""What asks for keys, without colour: which key next, what an effect is, what an answer means.

What always holds: an effect is in the ledger, or in the caller's transaction, before the position after it is shown;
every answer is written down before the next key is asked for. A key is asked for again until the answer is definite.
"""

import itertools
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from semel import AsyncAttempt, Attempt, Policy
from semel.engine.call_flow import Result
from semel.errors import InDoubt
from tests.kill.board import Board, Field, askers_of
from tests.kill.grounds.ground import Row
from tests.kill.ledger import ANSWERS, EFFECTS, Ledger, Line
from tests.kill.positions import At, Mode, Modes, mode_of

LEASE: Final = timedelta(seconds=0.7)
REJECT: Final = Policy(lease_for=LEASE, when_running="reject")
WAIT: Final = Policy(lease_for=LEASE, when_running="wait", wait_for=timedelta(seconds=0.3))
_ASK_AGAIN: Final = (0.02, 0.2)


class Asker:
    """Asks as number `number` of the board; `life` is the incarnation of its process."""

    def __init__(self, folder: Path, board: Board, number: int, life: int, modes: Modes) -> None:
        self.board = board
        self.modes = modes
        self.slot = board.slot(number)
        self.random = random.Random(f"{life} {number}")
        self._number = number
        self._life = life
        self._effects = Ledger(folder / EFFECTS, durable=True)
        self._answers = Ledger(folder / ANSWERS, durable=False)
        self._sequence = itertools.count(number * 1_000_000)
        self._seen = 0
        self._open: list[int] = []
        self._not_before: dict[int, float] = {}
        self._began = 0

    def next_key(self) -> int | None:
        """One of the keys in the window that this asker still wants an answer for, and may ask for now."""
        low, high = self.board.window
        for key in range(max(self._seen, low), high):
            if self._number in askers_of(key, self.board.askers) and not self.board.answered(self._number, key):
                self._open.append(key)
        self._seen = high
        now = time.monotonic()
        ready = [key for key in self._open if self._not_before.get(key, 0.0) <= now]
        return self.random.choice(ready) if ready else None

    def mode_of(self, key: int) -> Mode:
        """What kind of operation a key stands for."""
        return mode_of(key, self.modes)

    def joins(self, key: int, *, cached: bool) -> bool:
        """Whether to ask inside a transaction of one's own."""
        if self.mode_of(key) is not Mode.WITHIN:
            return False
        # Inside one nothing is looked up in a cache, so what is recorded is asked for outside as well.
        return not (cached and self.board.known(key) and self.random.random() < 0.7)

    def begin(self, key: int) -> Policy:
        """A question begins; under which policy."""
        self._began = _micros()
        self.slot.begin(key, self.mode_of(key))
        policy = WAIT if self.random.random() < 0.2 else REJECT
        return policy.replace(in_doubt="hold") if self.mode_of(key) is Mode.HOLD else policy

    def end(self, key: int, result: Result[str]) -> None:
        """The question has an answer. Granted, and yet somebody else's answer: the lease was lost."""
        if self.slot.word(Field.FENCE) and result.replayed:
            self._note("lost", key)
        self._note(("cached" if result.cache == "hit" else "replayed") if result.replayed else "ran", key, result.value)
        self._settled(key)

    def end_badly(self, key: int, error: Exception) -> None:
        """No value came: in doubt is an answer, anything else is asked again. After a grant it says: not recorded."""
        if isinstance(error, InDoubt):
            self._note("in_doubt", key)
            self._settled(key)
            return
        if self.slot.word(Field.FENCE) and self.mode_of(key) is not Mode.WITHIN:
            self._note("lost", key)
        self._note("later", key, type(error).__name__)
        self._not_before[key] = time.monotonic() + self.random.uniform(*_ASK_AGAIN)

    def _settled(self, key: int) -> None:
        self.board.answer(self._number, key)
        self._open.remove(key)

    def _note(self, what: str, key: int, value: str = "") -> None:
        at, fence = _micros(), self.slot.word(Field.FENCE)
        line = Line(what, self.mode_of(key), key, 0, fence, 0, 0, self._life, 0, at - self._began, at, value)
        self._answers.append(line)

    def _line(self, what: str, step: int, attempt: Attempt | AsyncAttempt) -> Line:
        at, sequence = _micros(), next(self._sequence)
        return Line(
            what,
            self.slot.word(Field.MODE),
            self.slot.word(Field.KEY),
            step,
            attempt.fence,
            attempt.number,
            int(attempt.in_doubt),
            self._life,
            sequence,
            at - self._began,
            at,
            f"{attempt.fence}.{self._life}.{sequence}",
        )

    def effect(self, attempt: Attempt | AsyncAttempt) -> str:
        """An effect outside the database, as a handler has it."""
        self.slot.mark(At.STARTED)
        line = self._line("effect", 0, attempt)
        self.slot.mark(At.IN_EFFECT)
        self._effects.append(line)
        self.slot.mark(At.DONE)
        return line.value

    def row(self, attempt: Attempt | AsyncAttempt) -> Line:
        """What to insert in the caller's transaction; the ledger learns only that it was tried."""
        self.slot.mark(At.JOINED_STARTED)
        return self._tried(0, attempt)

    def step(self, step: int, attempt: Attempt | AsyncAttempt) -> int:
        """The effect of a plain step."""
        self.slot.put(Field.STEP, step)
        self.slot.mark(At.STEP_STARTED)
        line = self._line("effect", step, attempt)
        self.slot.mark(At.STEP_EFFECT)
        self._effects.append(line)
        self.slot.mark(At.STEP_DONE)
        return line.sequence

    def step_row(self, step: int, attempt: Attempt | AsyncAttempt) -> Line:
        """What a step inserts in a transaction."""
        self.slot.put(Field.STEP, step)
        return self._tried(step, attempt)

    def last_step_done(self, attempt: Attempt | AsyncAttempt) -> str:
        """The value of a handler made of steps."""
        line = self._line("try", 0, attempt)
        self._effects.append(line)
        self.slot.put(Field.STEP, 0)
        self.slot.mark(At.RETURNING)
        return line.value

    def _tried(self, step: int, attempt: Attempt | AsyncAttempt) -> Line:
        line = self._line("try", step, attempt)
        self._effects.append(line)
        return line


def _micros() -> int:
    """The clock that all processes of a machine share."""
    return time.monotonic_ns() // 1000


def row_of(line: Line) -> Row:
    """The row that stands for an effect."""
    return Row(line.mode, line.key, line.step, line.fence, line.life, line.sequence)
