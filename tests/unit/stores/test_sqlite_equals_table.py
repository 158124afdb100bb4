"""The strongest check there is: random operations give equal answers on the SQLite store and on the memory table."""

from pathlib import Path

import pytest

from semel.core.operations import Operation, Query, Scan
from semel.stores.memory import Table
from semel.stores.sqlite import SqliteStore
from tests.unit.stores.operations import SECOND, Clock, Sequences

EVERYTHING: Operation = Scan(Query(), None, 1000)


@pytest.mark.parametrize("start", range(0, 300, 20))
def test_random_sequences_are_answered_as_by_the_table(start: int, tmp_path: Path) -> None:
    for seed in range(start, start + 20):
        _compare(seed, SqliteStore(tmp_path / f"{seed}.db", clock=(clock := Clock()), synchronous="NORMAL"), clock)


def _compare(seed: int, store: SqliteStore, clock: Clock) -> None:
    table, sequences, driver = Table(), Sequences(seed), store.driver()
    try:
        for number, (passing, operation) in enumerate(sequences.steps(40)):
            clock.now += int(passing * SECOND)
            expected = table.apply(operation, clock.now)
            ((answer,),) = driver.perform([store.plan([operation], joined=False)])  # type: ignore[misc]
            assert answer == expected, f"seed {seed}, operation {number}: {operation}"
            sequences.learn(expected)
            ((listing,),) = driver.perform([store.plan([EVERYTHING], joined=False)])  # type: ignore[misc]
            assert listing == table.apply(EVERYTHING, clock.now), f"after seed {seed}, operation {number}: {operation}"
    finally:
        driver.close()
