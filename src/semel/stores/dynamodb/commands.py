"""Commands: what a plan asks its driver for, and the replies that are expected. Frozen values, no behaviour."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from semel.core.operations import Operation
from semel.core.store import Answers

Item = dict[str, Any]
"""A stored item, in the form of the wire: attribute values by name, each under the letter of its type."""


class CallerWrite(dict[str, Any]):
    """A write of the caller in a transaction of semel's: it is sent as it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the service. The reply is its answer, or one of the two below."""

    action: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold; nothing was written. `item` is what stood in the way, None where nothing did."""

    item: Item | None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The item would be larger than the service keeps; nothing was written."""


@dataclass(frozen=True, slots=True)
class NoIndex:
    """The table does not have the index that was asked for; nothing was read."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A transaction was given up; nothing was written. `reasons`: one for each write, in order."""

    reasons: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Inside:
    """One operation, to be carried out with the caller's writes. The reply is its answer."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Now:
    """What time the service has. The reply is a `Moment`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so many seconds pass."""

    seconds: float


Steps = Generator[Any, Any, Any]
"""A part of a plan: yields commands and receives their replies."""
Chain = Generator[Any, Any, Answers]
"""What follows each other: the operations on one record."""


@dataclass(frozen=True, slots=True)
class Together:
    """Chains that may go side by side. The reply is the answers of each.

    It is the first command of every plan; a chain may ask for it too.
    """

    chains: tuple[Chain, ...]
