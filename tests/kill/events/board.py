"""The board of a run with events: shared memory in which workers show where they are, and are told where to stop.

What always holds: a slot is written by one worker, apart from `barrier`, which is the killer's. It is read for the
figures only once its writer is dead and reaped.
"""

import mmap
import time
from enum import IntEnum
from pathlib import Path
from typing import Final

_WORDS: Final = 8
_PAUSE: Final = 0.01


class At(IntEnum):
    """Where a kill can hit an event."""

    TAKEN = 1
    WRITTEN = 2
    COMMITTED = 3
    RAN = 4
    RECORDED = 5
    READ = 6
    CONFIRMED = 7


MEANING: Final = {
    At.TAKEN: "consumer: a message was taken, nothing was claimed",
    At.WRITTEN: "consumer with transaction=: the effect is written, nothing is committed",
    At.COMMITTED: "consumer with transaction=: effect and mark are committed, nothing is acknowledged",
    At.RAN: "consumer without: the effect has happened, nothing is recorded",
    At.RECORDED: "consumer without: the end is recorded, nothing is acknowledged",
    At.READ: "relay: events were read, none is published",
    At.CONFIRMED: "relay: the broker has confirmed, no cursor is saved",
}
OF_CONSUMERS: Final = (At.TAKEN, At.WRITTEN, At.COMMITTED, At.RAN, At.RECORDED)
OF_RELAYS: Final = (At.READ, At.CONFIRMED)


class Field(IntEnum):
    """Words of a slot."""

    BARRIER = 0
    ARRIVED = 1
    UNDER_WAY = 2
    REPEATS = 3
    PUBLISHED = 4


class Board:
    """What all share, and a slot for each worker, mapped from a file."""

    def __init__(self, path: Path, workers: int) -> None:
        size = 4 * _WORDS * (workers + 1)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        self._words = memoryview(self._map).cast("I")

    @property
    def allowed(self) -> int:
        """How many events the producer may add, in all."""
        return self._words[0]

    def allow(self, more: int) -> None:
        """Let it add more."""
        self._words[0] += more

    @property
    def is_ending(self) -> bool:
        """Whether the producer is to commit what it holds open, and end."""
        return bool(self._words[1])

    def end_producing(self) -> None:
        """Have it do so."""
        self._words[1] = 1

    @property
    def added(self) -> int:
        """How many events were committed."""
        return self._words[2]

    def count_added(self, number: int) -> None:
        """The producer has committed so many more."""
        self._words[2] += number

    def slot(self, number: int) -> "Slot":
        """The slot of one worker."""
        start = _WORDS * (number + 1)
        return Slot(self._words[start : start + _WORDS])


class Slot:
    """One worker, whichever incarnation."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def stand(self, at: IntEnum) -> None:
        """Be at a position, and stay there, with the whole process, while the killer wants it."""
        words = self._words
        if words[Field.BARRIER] == at:
            words[Field.ARRIVED] = 1
            while words[Field.BARRIER] == at:
                time.sleep(_PAUSE)
            words[Field.ARRIVED] = 0

    def word(self, field: Field) -> int:
        """One word."""
        return self._words[field]

    def change(self, field: Field, by: int) -> None:
        """Add to one word."""
        self._words[field] += by

    def set_barrier(self, at: IntEnum | None) -> None:
        """Have the worker stop at a position, or nowhere."""
        self._words[Field.BARRIER] = at or 0

    @property
    def has_arrived(self) -> bool:
        """Whether it stands there."""
        return bool(self._words[Field.ARRIVED])

    def wipe(self) -> None:
        """Make it ready for the next incarnation."""
        for number in range(_WORDS):
            self._words[number] = 0
