"""The strongest check there is: random operations give equal answers on the SQLite store and on the memory table.

Blind claims are told that the look before them found nothing, as if the record had come in between: then the arbiting
statements alone decide, and a look that spares the write cannot hide what they get wrong. Joined operations run on a
connection of the caller's, which commits after each; their claims have no lease.
"""

import os
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Operation,
    Query,
    Read,
    ReadHistory,
    Reopen,
    Resolve,
    Scan,
)
from semel.core.store import Plan
from semel.stores.memory import Table
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.joined import SqliteJoined
from tests.unit.stores.kit import Asker, connected
from tests.unit.stores.operations import KEYS, SECOND, START, Clock, Sequences, without_lease, without_transaction

EVERYTHING: Operation = Scan(Query(), None, 1000)
HISTORIES: tuple[Operation, ...] = tuple(ReadHistory(key.digest) for key in KEYS)
TOGETHER = 20
SEQUENCES = range(0, 300, TOGETHER)
FEWER = SEQUENCES if os.environ.get("SEMEL_EFFORT") == "full" else SEQUENCES[:5]
JOINED = (Claim, Complete, Fail, Checkpoint, Read, Resolve, Reopen)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Asker]:
    clock = Clock()
    asker = Asker(SqliteStore(tmp_path / "semel.db", clock=clock, synchronous="NORMAL"), clock)
    yield asker
    asker.driver.close()


@pytest.mark.parametrize("start", FEWER)
def test_random_sequences_in_a_callers_transactions_are_answered_as_by_the_table(pair: Asker, start: int) -> None:
    pair.record()
    with connected(Path(pair.store.path)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        joined = pair.store.join(connection)
        assert isinstance(joined, SqliteJoined)
        for seed in range(start, start + TOGETHER):
            for table in ("semel_record", "semel_step", "semel_search"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the names above
            connection.commit()
            pair.clock.now = START
            _compare_joined(seed, pair, joined, connection)


def _compare_joined(seed: int, asker: Asker, joined: SqliteJoined, connection: sqlite3.Connection) -> None:
    table, sequences = Table(), Sequences(seed)
    for number, (passing, operation) in enumerate(sequences.steps(40)):
        asker.clock.now += int(passing * SECOND)
        expected = table.apply(without_lease(operation), asker.clock.now)
        if isinstance(operation, JOINED):
            (answer,) = joined.perform(asker.store.plan([operation], joined=True))
            connection.commit()
        else:
            answer = _ask(asker, operation, blind=False)
        assert without_transaction(answer) == expected, f"seed {seed}, operation {number}: {operation}"
        sequences.learn(expected)


@pytest.mark.parametrize(
    ("start", "blind"),
    [
        pytest.param(start, blind, marks=[pytest.mark.slow] if start else [])
        for start, blind in (*product(SEQUENCES, [False]), *product(FEWER, [True]))
    ],
)
def test_random_sequences_are_answered_as_by_the_table(pair: Asker, start: int, blind: bool) -> None:
    for seed in range(start, start + TOGETHER):
        for table in ("semel_record", "semel_step", "semel_search"):
            pair.writer().execute(f"DELETE FROM {table}")  # noqa: S608 - the names above
        pair.clock.now = START
        compare(seed, pair, blind=blind)


def compare(seed: int, asker: Asker, *, blind: bool) -> None:
    """Demand equal answers, and equal tables after each."""
    table, sequences = Table(), Sequences(seed)
    for number, (passing, operation) in enumerate(sequences.steps(40)):
        asker.clock.now += int(passing * SECOND)
        expected = table.apply(operation, asker.clock.now)
        answer = _ask(asker, operation, blind=blind)
        assert answer == expected, f"seed {seed}, operation {number}: {operation}"
        sequences.learn(expected)
        for everything in (EVERYTHING, *HISTORIES):
            found = _ask(asker, everything, blind=False)
            assert found == table.apply(everything, asker.clock.now), f"seed {seed}, after {number}: {operation}"


def _ask(asker: Asker, operation: Operation, *, blind: bool) -> Answer | Exception:
    plan = asker.store.plan([operation], joined=False)
    (reply,) = asker.driver.perform([_blinded(plan, asker.clock) if blind and isinstance(operation, Claim) else plan])
    assert isinstance(reply, list), reply
    return reply[0]


def _blinded(plan: Plan, clock: Clock) -> Plan:
    next(plan)
    command = plan.send(([], -1, clock.now))
    while True:
        try:
            command = plan.send((yield command))
        except StopIteration as stop:
            return list(stop.value)
