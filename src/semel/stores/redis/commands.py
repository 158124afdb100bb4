"""Commands: what a plan yields to a driver, a list at a time. Frozen values, without colour and without a connection.

What always holds: a command touches one key, so any command may go to whichever node holds that key. The reply of a
command is its value or the error that befell it; one of a list never stands for its neighbours'.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

Reply = Any
"""What the server said, or an exception."""
Batch = Sequence["Command"]
Talk = Generator[Batch, list[Reply], Any]


class Script(msgspec.Struct, frozen=True):
    """One of the scripts, on one record."""

    name: str
    key: str
    values: tuple[Any, ...] = ()


class Look(msgspec.Struct, frozen=True):
    """Fields of a record, without a script: for passing over many."""

    key: str
    fields: tuple[str, ...]


class Walk(msgspec.Struct, frozen=True):
    """The next few keys that fit `match`. The reply is a pair: where to go on (None: that was all), and the keys."""

    match: str
    place: Any = None


class Clock(msgspec.Struct, frozen=True):
    """The store's now, in microseconds; of any node."""


Command = Script | Look | Walk | Clock
