"""`semel sweep`: delete what is expired, mark what has lapsed, ask the reconcile hooks, say what is held."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from types import FrameType
from typing import Annotated, Any, Final, Self

import typer
from rich.text import Text

from semel.cli.exit_codes import IN_DOUBT, usage_error
from semel.cli.printing import complain, console
from semel.cli.schedule import Schedule, time_of_day
from semel.cli.store_option import Url, app_option, check_alone, chosen_settings, load_engine, open_engine
from semel.cli.timefmt import duration, local, now
from semel.engine.admin import SweepReport
from semel.engine.sync_engine import SyncSemelBase
from semel.errors import TryLater


def sweep(
    url: Url = None,
    *,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Sweep again and again: 30s, 15m, 1h.", show_default=False)
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="HH:MM", help="Sweep every day at this time.", show_default=False)
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The zone of --at, such as Europe/Berlin; else this machine's.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Delete, and mark, at most so many records in one sweep.", show_default=False),
    ] = None,
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help=r"Sweep again and again, as \[cleanup] of the settings file says.")
    ] = False,
    app: Annotated[str | None, app_option("so that its reconcile hooks are asked")] = None,
) -> None:
    r"""Sweep once, or every so often, or at a time of day, until it is ended.

    With a settings file its \[cleanup] says how much one sweep does at most and, with --scheduled, when they are due.
    Without --app no hook is known, so what needs reconciling stays in doubt. Ctrl-C and SIGTERM end it between sweeps.
    The exit code of a single sweep is 4 where records are held: somebody has to resolve them.
    """
    check_alone(url, app)
    settings = chosen_settings(url)
    cleanup = {} if settings is None else settings.cleanup
    schedule = _schedule(every, time_of_day(at, zone), cleanup, scheduled=scheduled)
    with _sweeper(url, app, limit or cleanup.get("limit")) as sweep_once, Ending() as ending:
        if schedule.begins_at_once:
            held = _report(sweep_once, going_on=schedule.goes_on)
            if not schedule.goes_on:
                if held:
                    raise typer.Exit(IN_DOUBT)
                return
        while not ending.asked:
            due = schedule.due(now())
            if schedule.every is None:
                console().print(Text(f"next sweep {due:%Y-%m-%d %H:%M %Z}", "dim"))
            if _wait_until(due, ending):
                _report(sweep_once, going_on=True)


_LONGEST_WAIT: Final = timedelta(hours=1)


def _wait_until(due: datetime, ending: Ending) -> bool:
    """Wait in parts, so that a clock that is set meanwhile is noticed; False where an end was asked for first."""
    while (left := due - now()) > timedelta(0):
        ending.wait(min(left, _LONGEST_WAIT).total_seconds())
        if ending.asked:
            return False
    return True


def _schedule(every: str | None, daily: Schedule | None, cleanup: Mapping[str, Any], *, scheduled: bool) -> Schedule:
    """When to sweep; what is given with the command goes before the file."""
    if scheduled and (every is not None or daily is not None):
        message = "--scheduled takes its times from the settings file, so --at or --every cannot be given beside it"
        raise usage_error(f"{message}; nothing was swept.")
    if every is not None and daily is not None:
        message = "--every and --at are two ways to say when; nothing was swept. Give one of them."
        raise usage_error(message)
    if scheduled:
        return Schedule.of_cleanup(cleanup)
    return daily or Schedule(None if every is None else duration(every))


def _report(sweep_once: Callable[[], SweepReport], *, going_on: bool) -> int:
    """Sweep, print what was done, and answer how many records are held."""
    try:
        report = sweep_once()
    except TryLater as error:
        if not going_on:
            raise
        complain(error.code, f"{error.message} The next sweep tries again.")
        return 0
    parts = [Text(local(now()), "dim")]
    names = ["deleted", "lapsed", "reconciled", "held", *(["invalidated"] if report.invalidated else [])]
    for name in names:
        count = getattr(report, name)
        style = "dim" if not count else "bold yellow" if name in ("lapsed", "held") else "bold green"
        parts.append(Text(f"{name} {count}", style))
    if report.held:
        parts.append(Text("see: semel list --stuck", "dim"))
    console().print(Text("  ").join(parts), soft_wrap=True)
    return report.held


@contextmanager
def _sweeper(url: str | None, app: str | None, limit: int | None) -> Iterator[Callable[[], SweepReport]]:
    """What to call for one sweep, by the colour of the engine."""
    if app is None:
        with open_engine(url) as semel:
            yield partial(semel.sweep, limit=limit)
        return
    loaded = load_engine(app)
    if isinstance(loaded, SyncSemelBase):
        with loaded:
            yield partial(loaded.sweep, limit=limit)
        return
    with asyncio.Runner() as runner:
        try:
            yield lambda: runner.run(loaded.sweep(limit=limit))
        finally:
            runner.run(loaded.close())


class Ending:
    """Turns SIGINT and SIGTERM into a wish that is looked at between sweeps; the second one ends at once."""

    def __init__(self) -> None:
        self.asked = False
        self._pipe = os.pipe()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for end in self._pipe:
            os.close(end)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, self._before[signal.Signals(number)])
        os.write(self._pipe[1], b"!")

    def wait(self, seconds: float) -> None:
        """Wait, unless an end is asked for first."""
        select.select([self._pipe[0]], [], [], seconds)
