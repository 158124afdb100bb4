"""What is pressed on the start page, what it is doing, and the line that says what happened.

What always holds: of one service one button runs at a time. A line is made of figures that were read from ledgers and
answers after the trouble, and says so where they are not what was promised.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

log = logging.getLogger(__name__)
ENDS_WITHIN: Final = 120.0
MOST_LINES: Final = 3
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What happened.

    Attributes:
        line: in words, with the figures.
        asked: how often something was asked for: requests, deliveries, starts of a process.
        wanted: how many effects there have to be.
        made: how many there are.
    """

    line: str
    asked: int = 0
    wanted: int = 0
    made: int = 0

    @property
    def holds(self) -> bool:
        """Whether there are as many effects as there have to be."""
        return self.wanted == self.made and self.wanted > 0


@dataclass(frozen=True)
class Button:
    """A way to make trouble.

    Attributes:
        name: in addresses.
        label: what is on it.
        does: what it does, in a sentence.
        press: does it, tells how far it is, and gives what happened.
    """

    name: str
    label: str
    does: str
    press: Callable[[Tell], Awaitable[Outcome]]


@dataclass
class Service:
    """A service of the start page, with what was pressed there.

    Attributes:
        name: in addresses.
        title: for people.
        blurb: what it is, in a sentence.
        address: where its own pages are.
        running: the button that runs, if one does.
        progress: how far that one is.
        said: what happened, the latest first.
    """

    name: str
    title: str
    blurb: str
    address: str
    buttons: Sequence[Button]
    running: Button | None = None
    progress: str = ""
    said: deque[tuple[Button, Outcome]] = field(default_factory=lambda: deque(maxlen=MOST_LINES))

    def find(self, name: str) -> Button | None:
        """The button of that name."""
        return next((button for button in self.buttons if button.name == name), None)


@dataclass
class Totals:
    """All that was asked for since the start, and what came of it."""

    asked: int = 0
    wanted: int = 0
    made: int = 0


class Runs:
    """Runs what is pressed."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = services
        self.totals = Totals()
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, name: str) -> Service | None:
        """The service of that name."""
        return next((service for service in self.services if service.name == name), None)

    def press(self, service: Service, button: Button) -> bool:
        """Press a button, unless another one of the service still runs."""
        if service.running is not None:
            return False
        service.running, service.progress = button, "Starting."
        task = asyncio.create_task(self._run(service, button))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """End what runs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, service: Service, button: Button) -> None:
        def tell(line: str) -> None:
            service.progress = line

        try:
            async with asyncio.timeout(ENDS_WITHIN):
                outcome = await button.press(tell)
        except Exception as error:
            log.exception("%s of %s did not come to its end.", button.label, service.name)
            outcome = Outcome(f"It did not come to its end ({type(error).__name__}): {error}. Look into the terminal.")
        finally:
            service.running = None
        service.said.appendleft((button, outcome))
        self.totals.asked += outcome.asked
        self.totals.wanted += outcome.wanted
        self.totals.made += outcome.made
