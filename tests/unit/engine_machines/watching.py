"""What a thread or a task is to a watch: it moves the clock and answers, here by hand."""

import math
from collections.abc import Sequence
from typing import Any

from semel.core.flow import Flow
from semel.core.operations import Answer, Operation
from semel.engine.background import PerformAll, SleepUntil, Watched, watching
from semel.testing.clock import VirtualClock


class Watching:
    """Drives the watch over something."""

    def __init__(self, watched: Watched, clock: VirtualClock) -> None:
        self.clock = clock
        self._flow: Flow[None] = watching(watched, clock)
        self.wanted: Any = next(self._flow)

    def rest_until_due(self) -> Any:
        """Let the watch rest as long as it asks for; what it wants then."""
        assert isinstance(self.wanted, SleepUntil), self.wanted
        if self.wanted.until is not None:
            # The virtual clock counts whole microseconds: never stop just short of the instant.
            self.clock.advance(max(0.0, math.ceil((self.wanted.until - self.clock.monotonic()) * 1e6) / 1e6))
        return self.go_on()

    def disturb(self) -> Any:
        """Wake the watch before its time; what it wants then."""
        assert isinstance(self.wanted, SleepUntil), self.wanted
        return self.go_on()

    def answer(self, *answers: Answer | Exception) -> Any:
        """Answer what the watch asked for; what it wants then."""
        assert isinstance(self.wanted, PerformAll), self.wanted
        return self.go_on(list(answers))

    def go_on(self, answer: Sequence[Answer | Exception] | None = None) -> Any:
        """Hand over an answer, if there is one; what it wants then."""
        self.wanted = self._flow.send(answer)
        return self.wanted

    @property
    def asked(self) -> list[Operation]:
        """The operations that it wants carried out."""
        assert isinstance(self.wanted, PerformAll), self.wanted
        return self.wanted.operations
