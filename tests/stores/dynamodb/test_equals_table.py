"""The strongest check there is: random operations give equal answers on the DynamoDB store and on the memory table."""

import os

import pytest

from semel.core.operations import Operation, Query, Scan, SkipRecords
from semel.stores.memory import Table
from tests.servers.ministack import Tables
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import SECOND, START, Sequences

pytestmark = pytest.mark.slow

EVERYTHING: Operation = Scan(Query(), None, 1000)
TOGETHER = 5
SEEDS = range(0, 250 if os.environ.get("SEMEL_EFFORT") == "full" else 20, TOGETHER)


@pytest.mark.parametrize("start", SEEDS)
def test_random_sequences_are_answered_as_by_the_table(asker: Asker, dynamodb: Tables, url: str, start: int) -> None:
    for seed in range(start, start + TOGETHER):
        dynamodb.empty(url)
        asker.clock.now = START
        table, sequences = Table(), Sequences(seed)
        for number, (passing, operation) in enumerate(sequences.steps(40)):
            asker.clock.now += int(passing * SECOND)
            if isinstance(operation, SkipRecords):
                continue  # refused: no index leads to items by time alone
            expected = table.apply(operation, asker.clock.now)
            assert asker.all([operation]) == [expected], f"seed {seed}, operation {number}: {operation}"
            sequences.learn(expected)
            listing = table.apply(EVERYTHING, asker.clock.now)
            assert asker.all([EVERYTHING]) == [listing], f"seed {seed}, after {number}: {operation}"
