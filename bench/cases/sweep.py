"""PostgreSQL, a sweep of many expired records: how long it takes, and what claims notice of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cases.rows import FEW, many
from bench.claimer import Claimer, claimer
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import EXPIRED, execute, fill, server
from bench.site import Fact, Site

CALLS = 200
_SWEPT = "swept"
_BESIDE = Comparison("slower", 1.2)
_MILLION = 1_000_000
_FIVE_MINUTES = 300


class Sweeper:
    """`semel sweep` in a process of its own, which stands still whenever it is not to be measured beside."""

    def __init__(self, url: str, rows: int) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "semel", "sweep", url], stdout=subprocess.DEVNULL)
        self._went_on = time.perf_counter()
        self.seconds = 0.0
        """How long it was under way, since it was started."""
        self._oldest = f"SELECT FROM semel_record WHERE digest = sha256(int8send({rows - 1}))"
        self._url = url

    def begin(self) -> None:
        """Wait until the first record is gone, then stand still."""
        while execute(self._url, self._oldest) and not self.is_over:
            time.sleep(0.01)
        self.stand_still()

    @property
    def is_over(self) -> bool:
        """Whether all of it is done."""
        return self._process.poll() is not None

    def go_on(self) -> None:
        """Sweep."""
        self._process.send_signal(signal.SIGCONT)
        self._went_on = time.perf_counter()

    def stand_still(self) -> None:
        """Do nothing until told to go on; a statement on its way is carried out by the server all the same."""
        self._process.send_signal(signal.SIGSTOP)
        self.seconds += time.perf_counter() - self._went_on

    def finish(self) -> None:
        """Sweep to the end.

        Raises:
            AssertionError: the sweep failed.
        """
        self.go_on()
        code = self._process.wait()
        self.seconds += time.perf_counter() - self._went_on
        if code:
            message = f"semel sweep ended with {code}: there is nothing to measure"
            raise AssertionError(message)

    def end(self) -> None:
        """Leave no process behind, wherever the case was cut off."""
        self._process.kill()
        self._process.wait()


class Sweep:
    """What the variants of the case share: the table, who claims in it, and the sweep."""

    @contextmanager
    def site(self, folder: Path, rows: int) -> Iterator[Site]:
        """A table full of records that are over, a claimer, and a sweep that has begun and stands still."""
        self._rounds, self._beside = 0, 0
        self._rows = many(rows)
        with server(folder, min(rows, FEW)) as site:
            url = fill(folder, _SWEPT, self._rows, EXPIRED)
            with claimer(url) as one:
                self._claimer: Claimer = one
                one.median(1)
                self._sweeper = Sweeper(url, self._rows)
                try:
                    self._sweeper.begin()
                    yield site
                finally:
                    self._sweeper.end()

    @contextmanager
    def alone(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Claims while the sweep stands still."""
        yield self._claimer.median

    @contextmanager
    def beside(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        """Claims while the sweep goes on."""

        def measure(calls: int) -> float:
            self._sweeper.go_on()
            seconds = self._claimer.median(calls)
            self._rounds += 1
            self._beside += not self._sweeper.is_over
            self._sweeper.stand_still()
            return seconds

        yield measure

    def facts(self, folder: Path, effort: Effort) -> Sequence[Fact]:
        """How long the whole sweep took, and how much of the comparison was really made beside it."""
        self._sweeper.finish()
        seconds = self._sweeper.seconds
        per_million = seconds / self._rows * _MILLION
        return [
            Fact("records swept", self._rows),
            Fact("the sweep, claims beside it included", seconds, "s"),
            Fact("the same for a million records", per_million, "s", _FIVE_MINUTES),
            Fact("measurements beside the sweep, of those meant to be", self._beside, "", self._rounds, "exactly"),
        ]


_SWEEP = Sweep()
SWEEP = Case(
    "sweep",
    "PostgreSQL, claims alone, median: beside a sweep and without",
    (
        Variant("claim", _SWEEP.alone, CALLS),
        Variant("claim, beside a sweep", _SWEEP.beside, CALLS, against="claim", by=_BESIDE),
    ),
    notes=(
        "The sweep is `semel sweep` in another process; it is stopped (SIGSTOP) for the claims without it.",
        f"Ten times as many expired records as --rows, or as many as --rows where that is over {FEW:,}.",
        "A sweep that ends before the rounds do leaves nothing to compare with: give more --rows, or fewer rounds.",
    ),
    site=_SWEEP.site,
    facts=_SWEEP.facts,
)
