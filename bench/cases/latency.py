"""PostgreSQL, latencies beside lines that were drawn elsewhere: the targets of a hospital's revenue cycle.

What always holds: these lines are what users of other systems were promised, not semel's targets; they are met long
before those are, and stand here so that figures in milliseconds have something to be held against.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.callers import Numbers, alone, in_threads, timed
from bench.harness import Case, Effort
from bench.postgresql_server import database, server
from bench.site import Fact
from bench.workload import once
from semel import Semel

CALLERS = 100
EACH = 10
CALLS = 200
_SOURCE = "hospital"


def _facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    numbers = Numbers()
    numbers.take(1)  # the template was filled with the first
    crowd: list[float] = []
    first: list[float] = []
    again: list[float] = []
    with database(folder, "latency") as url, Semel(url) as semel:
        call = once(semel)
        in_threads(CALLERS, numbers.take(CALLERS), call)  # until everything is opened and prepared
        for _ in range(effort.rounds):
            in_threads(CALLERS, numbers.take(CALLERS * effort.calls(EACH)), timed(call, crowd))
            few = numbers.take(effort.calls(CALLS))
            alone(few, timed(call, first))
            alone(few, timed(call, again))
    return [
        Fact(f"{CALLERS} threads, first run, average", 1e3 * statistics.fmean(crowd), "ms", 100, source=_SOURCE),
        Fact(f"{CALLERS} threads, first run, 95 of 100 below", 1e3 * _below(crowd, 95), "ms", 200, source=_SOURCE),
        Fact(f"{CALLERS} threads, first run, 99 of 100 below", 1e3 * _below(crowd, 99), "ms"),
        Fact("one caller, first run, median", 1e3 * statistics.median(first), "ms", 50, source=_SOURCE),
        Fact("one caller, first run, 95 of 100 below", 1e3 * _below(first, 95), "ms"),
        Fact("one caller, replay, median", 1e3 * statistics.median(again), "ms", 100, source=_SOURCE),
        Fact("one caller, replay, 95 of 100 below", 1e3 * _below(again, 95), "ms"),
    ]


def _below(seconds: list[float], percent: int) -> float:
    """What so many of a hundred are below."""
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] if len(seconds) > 1 else seconds[0]


LATENCY = Case(
    "latency",
    "PostgreSQL, how long a call takes, beside the lines of a hospital's revenue cycle",
    notes=(
        f"Its load test: {CALLERS} threads make {EACH} requests each.",
        "Its line for an insert is held against a whole first run, that for a look-up without cache against a replay.",
    ),
    site=server,
    facts=_facts,
)
