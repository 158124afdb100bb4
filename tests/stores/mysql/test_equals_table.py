"""The strongest check there is: random operations give equal answers on the MySQL store and on the memory table.

Blind claims go without the look that spares a write: the arbiting statement alone decides. Joined operations run on a
connection of the caller's, which commits after each; their claims have no lease.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    InDoubtAnswer,
    Operation,
    Query,
    Read,
    Replay,
    Reused,
    Scan,
)
from semel.stores.memory import Table
from tests.stores.mysql.kit import Asker, connected, emptied
from tests.unit.stores.operations import SECOND, START, Sequences, without_lease, without_transaction

pytestmark = pytest.mark.slow

EVERYTHING: Operation = Scan(Query(), None, 1000)
TOGETHER = 5
SEEDS = range(0, 60 if os.environ.get("SEMEL_EFFORT") == "full" else 15, TOGETHER)
JOINED = (Claim, Complete, Fail, Checkpoint, Read)


@pytest.mark.parametrize("blind", [False, True], ids=["looking", "blind"])
@pytest.mark.parametrize("start", SEEDS)
def test_random_sequences_are_answered_as_by_the_table(asker: Asker, url: str, start: int, blind: bool) -> None:
    if blind:
        asker.store._context.dialect._sql["unless"] = ""  # type: ignore[attr-defined]  # the dialect of this store
    for seed, number, table, sequences, operation in _turns(asker, url, start):
        expected = _as_told(table.apply(operation, asker.clock.now))
        assert asker.all([operation]) == [expected], f"seed {seed}, operation {number}: {operation}"
        sequences.learn(expected)
        listing = table.apply(EVERYTHING, asker.clock.now)
        assert asker.all([EVERYTHING]) == [listing], f"seed {seed}, after {number}: {operation}"


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("start", SEEDS)
def test_random_sequences_in_a_callers_transactions_are_answered_as_by_the_table(
    asker: Asker, url: str, start: int, isolation: str
) -> None:
    with connected(url, init_command=f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}") as connection:
        joined = asker.store.join(connection)
        for seed, number, table, sequences, operation in _turns(asker, url, start):
            expected = _as_told(table.apply(without_lease(operation), asker.clock.now))
            if isinstance(operation, JOINED):
                (answer,) = joined.perform(asker.store.plan([operation], joined=True))
                connection.commit()
            else:
                (answer,) = asker.all([operation])
            assert without_transaction(answer) == expected, f"seed {seed}, operation {number}: {operation}"
            sequences.learn(expected)


class _Turn(NamedTuple):
    """One operation of a sequence, at its time by the store's clock."""

    seed: int
    number: int
    table: Table
    sequences: Sequences
    operation: Operation


def _turns(asker: Asker, url: str, start: int) -> Iterator[_Turn]:
    """The sequences from `start` on, each on empty tables; whoever takes a turn tells its sequence what came of it."""
    for seed in range(start, start + TOGETHER):
        emptied(url)
        asker.clock.now = START
        table, sequences = Table(), Sequences(seed)
        for number, (passing, operation) in enumerate(sequences.steps(40)):
            asker.clock.now += int(passing * SECOND)
            yield _Turn(seed, number, table, sequences, operation)


def _as_told(answer: Answer) -> Answer:
    """Whoever is refused needs no finished steps, and is told none."""
    if isinstance(answer, (Replay, Reused, InDoubtAnswer)):
        return replace(answer, record=replace(answer.record, steps=()))
    return answer
