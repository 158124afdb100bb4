"""However many items a batch has, a process that loads, runs and reads it keeps only a few of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.processes import run_bounded
from tests.servers.records import emptied

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if FULL else 300)]
FEW, MANY = 12_000, 60_000
GROWTH = 20
MOST_ITEMS, MOST_MEMORY = 10_000_000, 200


def peak(url: str, count: int, run: int) -> float:
    """The most memory that a process took for so many items, in MiB."""
    words = [sys.executable, "-m", "tests.batch.loading_memory", url, str(count), str(run)]
    done = run_bounded(words, 7000 if FULL else 250)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_more_items_take_no_more_memory(tmp_path: Path) -> None:
    few, many = (peak(f"sqlite:///{tmp_path / str(count)}.db", count, 1000) for count in (FEW, MANY))
    print(f"{few:.0f} MiB for {FEW:,} items, {many:.0f} MiB for {MANY:,}")
    assert many - few <= GROWTH


@pytest.mark.skipif(not FULL, reason="takes as long as a load of ten million items; `make verify` runs it")
def test_ten_million_items_take_less_than_200_mib(request: pytest.FixtureRequest) -> None:
    databases = request.getfixturevalue("postgresql")
    url = emptied(databases, databases.url)
    most = peak(url, MOST_ITEMS, 100_000)
    print(f"{most:.0f} MiB for {MOST_ITEMS:,} items")
    assert most < MOST_MEMORY
