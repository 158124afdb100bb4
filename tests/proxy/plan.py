"""What a proxy does to which message: the plan of one test.

What always holds: a cut happens once, at a message that is found by counting and never by time.
"""

import threading
from dataclasses import dataclass, field
from enum import Enum

from tests.proxy.wire import Direction, Message


class How(Enum):
    """What happens at the message."""

    DROP = "the message is not passed on; the connection ends"
    DROP_REPLY = "the request is passed on; when the reply begins to arrive, it is dropped and the connection ends"
    SPLIT = "half of the message is passed on; the connection ends"
    HOLD = "the message waits until `release` is set"


@dataclass(frozen=True, eq=False)
class Cut:
    """Do something at the `message`-th message of a direction, counted from 1 and from when the plan was made.

    `kind` and `containing` narrow down which messages count.
    """

    direction: Direction
    message: int
    how: How
    kind: str = ""
    containing: bytes = b""
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when the message has come, before anything is done to it."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when it has been dealt with: the connection was ended, or the held message was passed on."""
    release: threading.Event = field(default_factory=threading.Event)
    """Set by the test in order to let a held message go."""

    def __post_init__(self) -> None:
        if self.message < 1:
            raise ValueError("Messages are counted from 1.")
        if self.how is How.DROP_REPLY and self.direction is not Direction.TO_SERVER:
            raise ValueError("Only a request has a reply: DROP_REPLY needs TO_SERVER. To drop a message, use DROP.")

    def counts(self, direction: Direction, message: Message) -> bool:
        """Whether a message is one of those that this cut counts."""
        return direction is self.direction and self.kind in ("", message.kind) and self.containing in message.data


class Plan:
    """Cuts, each with its own count; shared by all connections of a proxy."""

    def __init__(self, *cuts: Cut) -> None:
        self._lock = threading.Lock()
        self._left = {cut: cut.message for cut in cuts}

    def at(self, direction: Direction, message: Message) -> Cut | None:
        """Count a message, and return the cut that falls on it."""
        with self._lock:
            due = None
            for cut in [cut for cut in self._left if cut.counts(direction, message)]:
                self._left[cut] -= 1
                if self._left[cut] == 0:
                    del self._left[cut]
                    due = cut
            return due
