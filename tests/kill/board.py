"""The board: one page of shared memory through which workers show where they are and the killer says where to stop.

What always holds: a slot is written by one asker of one worker, apart from `barrier`, which is the killer's. Words are
written whole. A slot is read for the log only once its writer is dead and reaped: it says where the kill hit.
"""

import mmap
import time
from enum import IntEnum
from pathlib import Path

from tests.kill.positions import At, Mode

_WORDS = 16
_WORD = 4
_PAUSE = 0.0003


class Field(IntEnum):
    """Words of a slot."""

    AT = 0
    BARRIER = 1
    ARRIVED = 2
    KEY = 3
    MODE = 4
    FENCE = 5
    STEP = 6
    ASKED = 7


class Board:
    """Header, slots and answers, mapped from a file."""

    def __init__(self, path: Path, *, askers: int, keys: int) -> None:
        self.askers = askers
        self.keys = keys
        size = _WORDS * _WORD * (askers + 1) + askers * keys
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        view = memoryview(self._map)
        self._words = view[: _WORDS * _WORD * (askers + 1)].cast("I")
        self._answers = view[_WORDS * _WORD * (askers + 1) :]

    @property
    def stopping(self) -> bool:
        """Whether workers shall end after the operation they are at."""
        return bool(self._words[0])

    def stop(self) -> None:
        """Let workers end by themselves."""
        self._words[0] = 1

    @property
    def window(self) -> tuple[int, int]:
        """Which keys are asked for now: from the first number up to, not including, the second."""
        return self._words[1], self._words[2]

    def move(self, low: int, high: int) -> None:
        """Have other keys asked for."""
        self._words[2] = high
        self._words[1] = low

    def slot(self, number: int) -> "Slot":
        """The slot of one asker."""
        start = _WORDS * (number + 1)
        return Slot(self._words[start : start + _WORDS])

    def answer(self, asker: int, key: int) -> None:
        """This asker has a definite answer for this key."""
        self._answers[asker * self.keys + key] = 1

    def answered(self, asker: int, key: int) -> bool:
        """Whether this asker has its answer."""
        return bool(self._answers[asker * self.keys + key])

    def known(self, key: int) -> bool:
        """Whether somebody has an answer for this key, so that it is recorded."""
        return any(self.answered(asker, key) for asker in askers_of(key, self.askers))

    def settled(self, key: int) -> bool:
        """Whether everybody who asks for this key has an answer."""
        return all(self.answered(asker, key) for asker in askers_of(key, self.askers))


class Slot:
    """One asker: one thread of one worker process, whichever incarnation."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def begin(self, key: int, mode: Mode) -> None:
        """A new operation; the position is set last."""
        words = self._words
        words[Field.AT] = At.IDLE
        words[Field.KEY], words[Field.MODE] = key, mode
        words[Field.FENCE] = words[Field.STEP] = 0
        words[Field.ASKED] += 1
        self.mark(At.ASKING)

    def mark(self, at: At) -> None:
        """Go on to a position, and stand there while the killer wants it."""
        words = self._words
        words[Field.AT] = at
        if words[Field.BARRIER] == at + 1:
            words[Field.ARRIVED] = 1
            while words[Field.BARRIER] == at + 1:
                time.sleep(_PAUSE)
            words[Field.ARRIVED] = 0

    def word(self, field: Field) -> int:
        """One word."""
        return self._words[field]

    def put(self, field: Field, value: int) -> None:
        """Write one word."""
        self._words[field] = value

    @property
    def at(self) -> At:
        """Where the asker is."""
        return At(self._words[Field.AT])

    @property
    def arrived(self) -> bool:
        """Whether it stands at the barrier."""
        return bool(self._words[Field.ARRIVED])

    def raise_barrier(self, at: At) -> None:
        """Stop the asker when it gets there."""
        self._words[Field.ARRIVED] = 0
        self._words[Field.BARRIER] = at + 1

    def lift_barrier(self) -> None:
        """Let it go on."""
        self._words[Field.BARRIER] = 0

    def wipe(self) -> None:
        """Make ready for the next incarnation; what was asked so far is kept."""
        asked = self._words[Field.ASKED]
        self._words[:] = memoryview(bytes(_WORDS * _WORD)).cast("I")
        self._words[Field.ASKED] = asked


def askers_of(key: int, askers: int) -> tuple[int, ...]:
    """Who asks for a key: three askers, of different processes where there are three."""
    return tuple({(key + turn * 3) % askers for turn in range(3)})
