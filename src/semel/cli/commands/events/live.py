"""What a command that runs on shows of itself: a table that changes on a terminal, lines elsewhere.

The last line is printed after everything has ended, so it tells of all that was done.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from semel.cli.printing import console
from semel.cli.record_view import as_line
from semel.errors import StoreUnavailable
from semel.texts import clean

Every = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How often a line is printed where there is no terminal."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Lines as JSON objects, also on a terminal.")]
_REFRESH: Final = timedelta(milliseconds=500)


class Rate:
    """How much a number grew in a second, since the last look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = clock(), 0

    def of(self, number: int) -> float:
        """The growth, now that the number is `number`."""
        now = self._clock()
        then, before = self._before
        self._before = now, number
        return 0.0 if now <= then else round((number - before) / (now - then), 1)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have the first SIGINT or SIGTERM call `stop`; the next one ends the process at once."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask() -> None:
        restore()
        stop()

    def restore() -> None:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    for number in before:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        restore()


Look = Callable[[], Awaitable[tuple[dict[str, Any], RenderableType]]]
"""Gives what there is to tell, for a line, and as a table."""


@asynccontextmanager
async def showing(look: Look, *, every: timedelta, as_json: bool) -> AsyncIterator[None]:
    """Show what `look` gives for as long as the block runs, and once more at its end.

    While the block runs, a look that the store does not answer is left out.
    """
    if sys.stdout.isatty() and not as_json:
        with Live(console=console(), auto_refresh=False, transient=False) as live:

            async def update() -> None:
                _, table = await look()
                live.update(table, refresh=True)

            async with _repeating(update, min(every, _REFRESH)):
                yield
            await update()
        return

    async def print_line() -> None:
        figures, _ = await look()
        sys.stdout.write((as_line(figures) if as_json else plain_line(figures)) + "\n")
        sys.stdout.flush()

    async with _repeating(print_line, every):
        yield
    await print_line()


@asynccontextmanager
async def _repeating(act: Callable[[], Awaitable[None]], every: timedelta) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(every.total_seconds())
            with suppress(StoreUnavailable):  # what is shown goes on, as what runs does: the next look has an answer
                await act()

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        with suppress(asyncio.CancelledError):
            await repeating


def plain_line(figures: dict[str, Any]) -> str:
    """Names and values, without what is nested."""
    return "  ".join(
        f"{name.replace('_', ' ')} {clean(str(value))}"
        for name, value in figures.items()
        if not isinstance(value, dict)
    )


def number_table(first: str, *columns: str, title: str | None = None) -> Table:
    """A table of a name and numbers."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), title=title, title_justify="left")
    grid.add_column(first, overflow="ellipsis", no_wrap=True)
    for column in columns:
        grid.add_column(column, justify="right", no_wrap=True)
    return grid
