"""What a run is to do, and what it did, as values."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.kill.positions import At


class Hit(NamedTuple):
    """Where one thread of a killed worker was."""

    at: At
    key: int
    fence: int
    step: int
    life: int
    kill: int = 0
    """The number of the kill, as in the log of kills."""


class Outage(NamedTuple):
    """A kill of a server, up to when it answered again; by the machine's monotonic clock, in microseconds."""

    number: int
    server: str
    began: int
    ended: int


class Breaking(NamedTuple):
    """How a server is killed."""

    kill: Callable[[], str]
    """Kills one, has it answer again, and says which one it was."""
    is_time: Callable[[], bool] = lambda: True
    """Asked again and again before that, while everybody is at work."""


NOTHING_BREAKS: Final = Breaking(str)


class Plan(NamedTuple):
    """How much to do. A position is covered after `least` kills there. A stall is SIGSTOP for longer than a lease.

    An outage is a SIGKILL of the server that the ground is on, and its start afterwards.
    """

    kills: int
    least: int
    seed: int
    stalls: int = 0
    outages: int = 0
    processes: int = 4
    settle_within: float = 120.0

    @property
    def keys(self) -> int:
        """More keys than can be used up."""
        return (self.kills + self.stalls) * 40 + self.outages * 300 + 2000


class Run(NamedTuple):
    """What a run did, apart from the ledgers it left."""

    kills: list[tuple[Hit, ...]]
    keys: int
    asked: int
    seconds: float
    wedged: list[int]
    audits: int
    outages: list[Outage]
    missing: list[str]
    """What an audit did not find in the store."""

    def hits(self) -> Counter[At]:
        """How often each position was hit."""
        return Counter(hit.at for kill in self.kills for hit in kill)
