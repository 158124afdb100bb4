"""The ledger: an append-only file of effects, apart from the database, that survives every kill. Also the answers.

What always holds: a line is written by one `write` to a descriptor opened with O_APPEND, and has 128 bytes, so that no
line crosses a page: Linux ends a large write early when the writer is killed, but only between two pages. Effects are
flushed to the disk before the effect counts as done. Nothing is ever changed or deleted.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kill.positions import Mode

LENGTH = 128
EFFECTS, ANSWERS = "effects.ledger", "answers.ledger"
ANSWERED = frozenset({"ran", "replayed", "cached"})
"""What an answer is called that has a value."""


class Line(NamedTuple):
    """One effect, or one answer that an asker got.

    `what` is "effect", "try" (an attempt began inside a transaction), or of answers "ran", "replayed", "in_doubt",
    "cached" (replayed by a cache in front of the store), "later" (nothing definite: asked again), "lost" (it ran here
    and was not recorded) and "returned" (a claim that came too late is about to be given back). `at` is the machine's
    monotonic clock when the line was made, `micros` the time since its key was asked for.
    """

    what: str
    mode: int
    key: int
    step: int
    fence: int
    attempt: int
    in_doubt: int
    life: int
    sequence: int
    micros: int
    at: int
    value: str

    def encode(self) -> bytes:
        """The line as bytes, of fixed length."""
        return ",".join(map(str, self)).ljust(LENGTH - 1).encode("ascii") + b"\n"

    @staticmethod
    def decode(line: bytes) -> "Line":
        """The line of these bytes."""
        what, *numbers, value = line.decode("ascii").rstrip().split(",")
        return Line._make((what, *map(int, numbers), value))

    @property
    def name(self) -> str:
        """What a message calls the key."""
        return f"{Mode(self.mode).name.lower()} {self.key}"

    @property
    def asked(self) -> int:
        """When its key was asked for."""
        return self.at - self.micros


class Ledger:
    """An open ledger, for appending."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._durable = durable

    def append(self, line: Line) -> None:
        """Write a line down for good."""
        if os.write(self._file, line.encode()) != LENGTH:
            message = "the ledger took only part of a line"
            raise OSError(message)
        if self._durable:
            os.fdatasync(self._file)


def read_ledger(path: Path, *, last: int = 0) -> Iterator[Line]:
    """Every line, or the `last` so many, in the order of writing."""
    if not path.exists():
        return
    content = path.read_bytes()
    if len(content) % LENGTH:
        message = f"{path} holds a torn line"
        raise AssertionError(message)
    for start in range(max(0, len(content) - last * LENGTH) if last else 0, len(content), LENGTH):
        yield Line.decode(content[start : start + LENGTH])
