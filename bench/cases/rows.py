"""PostgreSQL with many records: what a claim costs in a large table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.claimer import claimer
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import address, database, execute, fill, server
from bench.site import Fact, Site

FEW = 100_000
CALLS = 200
_LARGER = Comparison("slower", 1.3)


def many(rows: int) -> int:
    """How many records the large table has: as asked for, and ten times the usual where that is not many."""
    return rows if rows > FEW else 10 * rows


@contextmanager
def _few_rows(folder: Path, rows: int) -> Iterator[Site]:
    with server(folder, min(rows, FEW)) as site:
        yield site


@contextmanager
def _usual(folder: Path, effort: Effort) -> Iterator[Measure]:
    with database(folder, "rows-usual") as url, claimer(url) as one:
        yield one.median


@contextmanager
def _large(folder: Path, effort: Effort) -> Iterator[Measure]:
    with claimer(fill(folder, "large", many(effort.rows))) as one:
        yield one.median


def _rows_facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    size, rows = execute(
        address(folder, "large"), "SELECT pg_total_relation_size('semel_record'), count(*) FROM semel_record"
    )[0]
    return [
        Fact("records in the large table", rows),
        Fact("storage of a record, its indexes included", size / rows, "bytes", 2048, source="hospital"),
    ]


ROWS = Case(
    "rows-5m",
    "PostgreSQL, claims alone, median: a large table against a usual one",
    (
        Variant("claim, usual table", _usual, CALLS),
        Variant("claim, large table", _large, CALLS, against="claim, usual table", by=_LARGER),
    ),
    notes=(f"Usual: at most {FEW:,} records. Large: ten times as many; `--rows 5000000` makes it five million.",),
    site=_few_rows,
    facts=_rows_facts,
)
