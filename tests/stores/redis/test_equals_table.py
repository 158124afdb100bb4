"""The strongest check there is: random operations give equal answers on the Redis store and on the memory table."""

import os

import pytest
from msgspec.structs import replace

from semel.core.operations import Answer, InDoubtAnswer, Operation, Query, Replay, Reused, Scan, SkipRecords
from semel.stores.memory import Table
from tests.servers.redis import Keys
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import SECOND, START, Sequences

pytestmark = pytest.mark.slow

EVERYTHING: Operation = Scan(Query(), None, 1000)
TOGETHER = 5
SEEDS = range(0, 250 if os.environ.get("SEMEL_EFFORT") == "full" else 15, TOGETHER)


@pytest.mark.parametrize("start", SEEDS)
def test_random_sequences_are_answered_as_by_the_table(asker: Asker, keys: Keys, start: int) -> None:
    for seed in range(start, start + TOGETHER):
        keys.empty()
        asker.clock.now = START
        table, sequences = Table(), Sequences(seed)
        for number, (passing, operation) in enumerate(sequences.steps(40)):
            asker.clock.now += int(passing * SECOND)
            if isinstance(operation, SkipRecords):
                continue  # refused: keys on Redis have no order
            expected = _as_told(table.apply(operation, asker.clock.now))
            assert asker.all([operation]) == [expected], f"seed {seed}, operation {number}: {operation}"
            sequences.learn(expected)
            listing = table.apply(EVERYTHING, asker.clock.now)
            assert asker.all([EVERYTHING]) == [listing], f"seed {seed}, after {number}: {operation}"


def _as_told(answer: Answer) -> Answer:
    """Whoever is refused needs no finished steps, and is told none."""
    if isinstance(answer, (Replay, Reused, InDoubtAnswer)):
        return replace(answer, record=replace(answer.record, steps=()))
    return answer
