"""What the overview draws: rates, duplicates and durations of a bounded sample, as figures and as shapes.

A sample is at most so many records, and at most so many bytes of them: how long a page takes depends on neither the
number of records nor what is in them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Literal, NamedTuple

from semel.core.record import Record, Status
from semel.server.console.rendering import share, show_duration, show_number

_TONES: Final = {
    Status.COMPLETED: "good",
    Status.RUNNING: "info",
    Status.IN_DOUBT: "warn",
    Status.FAILED: "bad",
    Status.CANCELLED: "calm",
}
_BUCKETS: Final = 30
_WIDTH: Final = 620
_LEFT: Final = 44
_EDGES_MS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000)
_EDGES: Final = [timedelta(milliseconds=edge) for edge in _EDGES_MS]
_LANES: Final = 8
_LONGEST_NAME: Final = 46


class Bar(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    radius: float = 1


class Text(NamedTuple):
    """A word in a chart; one whose look is `less` is left out where there is little room."""

    x: float
    y: float
    words: str
    anchor: str = "start"
    look: Literal["", "label", "less"] = ""


class Line(NamedTuple):
    """A line of an axis."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(slots=True)
class Chart:
    """A chart with its shapes, and the same figures as a table."""

    id: str
    title: str
    summary: str
    height: float
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    legend: tuple[tuple[str, str], ...]
    width: float = _WIDTH
    bars: list[Bar] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """One operation in the sample."""

    name: str
    number: int
    failed: int
    in_doubt: int
    replays: int
    median: str


class Sample:
    """Records that the overview is drawn from; each figure is made once.

    `is_all`: they are all there are, or all since `since`, where not all were looked at.
    """

    def __init__(
        self, records: Sequence[Record], now: datetime, *, is_all: bool, since: datetime | None = None
    ) -> None:
        self.records = records
        self.now = now
        self.is_all = is_all
        self.since = since
        self.number = len(records)

    @cached_property
    def first(self) -> datetime:
        """When the oldest was claimed."""
        return min(record.created_at for record in self.records)

    @cached_property
    def rate(self) -> str:
        """Records in a minute, up to now."""
        minutes = max((self.now - self.first).total_seconds(), 1.0) / 60
        return f"{self.number / minutes:,.3g}"

    @cached_property
    def replays(self) -> int:
        """Duplicates that were answered from them."""
        return sum(record.replays for record in self.records)

    @cached_property
    def duplicate_share(self) -> str:
        """Which part of all calls were duplicates."""
        return share(self.replays, self.replays + self.number)

    @cached_property
    def durations(self) -> list[timedelta]:
        """How long those took that have settled, shortest first."""
        return durations_of(self.records)

    @cached_property
    def median(self) -> str:
        """What half of them took at most."""
        return _show(_quantile(self.durations, 0.5))

    @cached_property
    def p99(self) -> str:
        """What 99 of 100 took at most."""
        return _show(_quantile(self.durations, 0.99))

    @cached_property
    def operations(self) -> list[OperationFigures]:
        """The same by operation, the most frequent first."""
        groups: dict[str, list[Record]] = {}
        for record in self.records:
            groups.setdefault(record.key.operation, []).append(record)
        return [
            OperationFigures(
                name,
                len(group),
                sum(record.status is Status.FAILED for record in group),
                sum(record.status is Status.IN_DOUBT for record in group),
                sum(record.replays for record in group),
                _show(_quantile(durations_of(group), 0.5)),
            )
            for name, group in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
        ]


def durations_of(records: Sequence[Record]) -> list[timedelta]:
    """How long those took that have settled, shortest first."""
    return sorted(record.duration for record in records if record.duration is not None)


def _quantile(ordered: Sequence[timedelta], part: float) -> timedelta | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None


def _show(length: timedelta | None) -> str:
    return "–" if length is None else show_duration(length)


def draw_all(sample: Sample) -> list[Chart]:
    """The charts of a sample."""
    return [draw_rates(sample), draw_durations(sample), draw_duplicates(sample)]


def draw_rates(sample: Sample) -> Chart:
    """Records by the time at which they were claimed, and what became of them."""
    first, length = sample.first, (sample.now - sample.first) or timedelta(seconds=1)
    counts = [Counter[Status]() for _ in range(_BUCKETS)]
    for record in sample.records:
        place = min(int((record.created_at - first) / length * _BUCKETS), _BUCKETS - 1)
        counts[max(place, 0)][record.status] += 1
    most = max(sum(count.values()) for count in counts)
    chart = Chart(
        "rates",
        "Claims over time",
        f"Claims in {_BUCKETS} equal parts of the last {show_duration(length)}; at most {most} in one of them.",
        190,
        ("Claimed from", *(status.replace("_", " ") for status in _TONES)),
        [],
        tuple((tone, status.replace("_", " ")) for status, tone in _TONES.items()),
    )
    top, floor = 12.0, 160.0
    _draw_scale(chart, most, top, floor)
    width = (_WIDTH - _LEFT) / _BUCKETS
    for place, count in enumerate(counts):
        at = floor
        for status, tone in _TONES.items():
            high = (floor - top) * count[status] / most
            if high:
                at -= high
                chart.bars.append(
                    Bar(round(_LEFT + place * width + 1, 1), round(at, 1), round(width - 2, 1), round(high, 1), tone)
                )
        if count:
            begins = first + length * (place / _BUCKETS)
            chart.rows.append((f"{begins:%Y-%m-%d %H:%M:%S}", *(show_number(count[status]) for status in _TONES)))
    chart.texts.append(Text(_LEFT, 180, f"{show_duration(length)} ago"))
    chart.texts.append(Text(_WIDTH, 180, "now", "end"))
    return chart


def _draw_scale(chart: Chart, most: int, top: float, floor: float) -> None:
    """A line at the floor and at the top, with what they stand for."""
    for at, words in ((floor, "0"), (top, show_number(most))):
        chart.lines.append(Line(_LEFT, at, _WIDTH, at))
        chart.texts.append(Text(_LEFT - 8, at + 4, words, "end"))


def draw_durations(sample: Sample) -> Chart:
    """How many took how long, on a scale on which each step is three times the one before."""
    counts = [0] * (len(_EDGES_MS) + 1)
    for length in sample.durations:
        counts[bisect_left(_EDGES, length)] += 1
    names = [*(f"≤ {_edge(edge)}" for edge in _EDGES_MS), f"> {_edge(_EDGES_MS[-1])}"]
    most = max(*counts, 1)
    chart = Chart(
        "durations",
        "How long they took",
        f"Half took at most {sample.median}, 99 of 100 at most {sample.p99}.",
        190,
        ("Took", "Records"),
        [(name, show_number(count)) for name, count in zip(names, counts, strict=True)],
        (("info", "settled records"),),
    )
    top, floor = 12.0, 160.0
    _draw_scale(chart, most, top, floor)
    width = (_WIDTH - _LEFT) / len(counts)
    for place, count in enumerate(counts):
        x, high = _LEFT + place * width, (floor - top) * count / most
        if count:
            chart.bars.append(
                Bar(round(x + 3, 1), round(floor - high, 1), round(width - 6, 1), round(high, 1), "info", 2)
            )
        words = _edge(_EDGES_MS[place]) if place < len(_EDGES_MS) else "more"
        chart.texts.append(Text(round(x + width / 2, 1), 176, words, "middle", "less" if place % 2 else ""))
    return chart


def _edge(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{rest} ms" if rest else f"{seconds} s"


def draw_duplicates(sample: Sample) -> Chart:
    """Runs, and duplicates that were answered without a run, by operation."""
    figures = sorted(sample.operations, key=lambda one: -(one.number + one.replays))[:_LANES]
    most = max(one.number + one.replays for one in figures)
    chart = Chart(
        "duplicates",
        "Runs and duplicates",
        f"{show_number(sample.replays)} duplicates were answered without a run, {sample.duplicate_share} of all calls.",
        len(figures) * 34 + 8,
        ("Operation", "Records", "Duplicates", "Share"),
        [
            (one.name, show_number(one.number), show_number(one.replays), share(one.replays, one.replays + one.number))
            for one in figures
        ],
        (("good", "records"), ("warn", "duplicates answered without a run")),
    )
    for place, one in enumerate(figures):
        y = place * 34 + 4
        words = f"{show_number(one.number)} + {show_number(one.replays)}"
        chart.texts.append(Text(0, y + 10, _shorten(one.name), look="label"))
        chart.texts.append(Text(_WIDTH, y + 10, words, "end"))
        runs, repeats = (_WIDTH * number / most for number in (one.number, one.replays))
        chart.bars.append(Bar(0, y + 15, round(runs, 1), 9, "good", 2))
        if one.replays:
            chart.bars.append(Bar(round(runs + 1, 1), y + 15, round(max(repeats - 1, 1), 1), 9, "warn", 2))
    return chart


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def meter(parts: Sequence[tuple[str, int]], total: int) -> list[dict[str, object]]:
    """The parts of a whole as rectangles of a bar that is 1000 wide."""
    found: list[dict[str, object]] = []
    at = 0.0
    for tone, number in parts:
        width = 1000 * number / total if total else 0
        if width:
            found.append({"x": round(at, 2), "width": round(width, 2), "tone": tone})
        at += width
    return found
