"""How the demo looks: lines of what happened, below them the live scene, at the end the table and the verdict.

What always holds: without a terminal the lines and the tables are all there is, and they say the same.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from semel.texts import clean
from semel_lab.demo.check import Row, Verdict
from semel_lab.demo.scenario import Story
from semel_lab.demo.state import PaymentView, Scene, WorkerView

_BAR = 18
_FRAMES = 12
_MOST_ROWS = 12


class Screen:
    """The watcher of the director, on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=_FRAMES, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, story: Story) -> None:
        """What is going to be shown, in three sentences."""
        text = (
            f"Each of {len(story.payments)} payments is asked for {story.duplicates} times at once, at "
            f"{len(story.workers)} worker processes that share one SQLite file. "
            f"One worker is killed with SIGKILL inside a handler: the provider has charged, nothing is recorded yet. "
            f"At the end the provider's own ledger, a separate append-only file, has to show one charge per key, "
            f"and every caller has to hold the same receipt."
        )
        self._console.print(Text.assemble(("semel demo", "bold"), (f"  seed {story.seed}", "dim")))
        self._console.print(Padding(Text(text), (1, 2)))

    def note(self, seconds: float, text: str, style: str = "") -> None:
        """A line of what happened."""
        time = Text(f"{seconds:6.2f} s", "dim")
        if self._live is None:
            self._console.print(Text.assemble(time, "  ", (clean(text), style)), soft_wrap=True)
            return
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(time, Text(clean(text), style))
        self._console.print(line)

    def update(self, scene: Scene) -> None:
        """Draw the scene again."""
        if self._live is not None:
            self._live.update(picture(scene), refresh=True)

    def finish(self, verdict: Verdict, kept: str) -> None:
        """The table, the verdict, and where to look further."""
        self._console.print(results(verdict))
        for line in conclusion(verdict):
            self._console.print(Padding(line, (0, 2)))
        if kept:
            self._console.print(Padding(Text(kept, "dim"), (1, 2, 0, 2)))


def picture(scene: Scene) -> RenderableType:
    """The scene at a moment."""
    ledger = Text.assemble("  ledger  ", (f"{scene.charges} charges", "bold"), _repeats(scene.recognised))
    return Group(Text(), _workers(scene), Text(), _payments(scene), Text(), ledger)


def _repeats(count: int) -> Text:
    return Text(f", repeated key recognised {_times(count)}", "yellow") if count else Text()


def _workers(scene: Scene) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for view in scene.workers.values():
        grid.add_row(f"  {view.name}", f"pid {view.pid}" if view.pid else "", _doing(view))
    return grid


def _doing(view: WorkerView) -> Text:
    if view.state == "killed":
        return Text(f"✘ killed inside {', '.join(view.runs) or 'no handler'}", "bold red")
    if view.state == "starting":
        return Text("starting", "dim")
    answered = f"{view.answered} answered"
    if not view.runs:
        return Text(answered, "dim")
    runs = ", ".join(name if attempt == 1 else f"{name} (attempt {attempt})" for name, attempt in view.runs.items())
    return Text.assemble((f"▶ runs {runs}", "cyan"), (f"  {answered}", "dim"))


def _payments(scene: Scene) -> Table:
    grid = Table.grid(padding=(0, 2))
    digits = len(str(scene.story.duplicates))
    for width in (max(map(len, scene.payments)) + 2, _BAR, 2 * digits + 1):
        grid.add_column(no_wrap=True, min_width=width)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    views = [view for view in scene.payments.values() if view.asked]
    active = [view for view in views if view.answered < scene.story.duplicates]
    # Of many payments those that are not done are worth the room.
    for view in views if len(views) <= _MOST_ROWS else active[:_MOST_ROWS]:
        total = scene.story.duplicates
        bar = ProgressBar(total, view.answered, width=_BAR, complete_style="green", finished_style="green")
        grid.add_row(f"  {view.payment.name}", bar, f"{view.answered:>{digits}}/{total}", _standing(scene, view))
    return grid


def _standing(scene: Scene, view: PaymentView) -> Text:
    if view.answered >= scene.story.duplicates:
        return Text(f"✔ {view.ran} ran, {view.replayed} replayed", "green")
    waiting = scene.story.duplicates - view.answered
    if view.orphaned:
        return Text(f"✘ worker dead, {waiting} wait for its lease", "red")
    if view.taken_over_by:
        return Text(f"▶ taken over by {view.taken_over_by}, {waiting - 1} wait", "yellow")
    return Text(f"▶ one runs, {waiting - 1} wait", "cyan") if view.ran else Text("asked", "dim")


def results(verdict: Verdict) -> Table:
    """One row per payment."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("payment", no_wrap=True)
    table.add_column("amount", justify="right", no_wrap=True)
    for name in ("asked", "ran", "replayed", "attempts", "charges"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for row in verdict.rows:
        asked = f"{row.asked}+{row.asked_again}" if row.asked_again else str(row.asked)
        numbers = (asked, str(row.ran), str(row.replayed), str(row.attempts), str(row.charges))
        table.add_row(row.payment, row.amount, *numbers, _verdict(row))
    return table


def _verdict(row: Row) -> Text:
    if row.faults:
        return Text("✘ " + clean("; ".join(row.faults)), "bold red")
    return Text("✔ once, taken over" if row.attempts > 1 else "✔ once", "green")


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def conclusion(verdict: Verdict) -> list[Text]:
    """The verdict in words."""
    rows = verdict.rows
    asked, again = sum(row.asked for row in rows), sum(row.asked_again for row in rows)
    ran, replayed = sum(row.ran for row in rows), sum(row.replayed for row in rows)
    charges, recognised = sum(row.charges for row in rows), sum(row.recognised for row in rows)
    counts = (
        f"{asked} callers asked, {again} of them again after the kill. Handlers ran {_times(ran)}, {replayed} answers "
        f"were replayed. The provider recognised a repeated key {_times(recognised)} and charged {_times(charges)}."
    )
    if verdict.holds:
        end = Text("✔ The ledger holds: one charge per key, and every caller has the same receipt.", "bold green")
    else:
        end = Text(f"✘ The ledger does not hold. {clean('; '.join(verdict.faults))}".rstrip(), "bold red")
    return [Text(counts), Text(), end]
