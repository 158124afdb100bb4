"""What records are searched by is kept beside them in a table of its own: written with the claim, gone with the record.

What a search shows does not tell, because the records decide what fits; so the rows themselves are counted here, on
every store that has them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from semel import Policy, Semel
from semel.core.operations import Claim, CountFailure, Granted, Operation, Read
from semel.core.record import About, Failure
from semel.core.store import Driver, Store
from semel.stores.memory import Table
from semel.stores.mysql import MysqlStore
from semel.stores.postgresql import PostgresStore
from semel.stores.search import term_numbers
from semel.stores.sqlite import SqliteStore
from tests.servers.databases import Databases
from tests.servers.records import emptied
from tests.unit.stores.operations import KEYS, Clock, Sequences, claim

ANN = About(subject="ann", tags={"till": "7"})
BOB = About(subject="bob", requester="web", tags={"till": "7"})
KEPT = Policy(keep_for=timedelta(seconds=60), retry_errors=(ConnectionError,))
ROWS = "SELECT digest, term, created_us, scope FROM semel_search ORDER BY digest, term"


class Place(NamedTuple):
    """A store, a connection of the caller's to its database, and how many rows there are."""

    store: Store
    connect: Callable[[], Any]
    rows: Callable[[], list[tuple[Any, ...]]]

    def number_of_rows(self) -> int:
        return len(self.rows())


def _sqlite(clock: Clock, request: pytest.FixtureRequest) -> Place:
    path: Path = request.getfixturevalue("tmp_path") / "semel.db"

    def rows() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(ROWS).fetchall()

    return Place(SqliteStore(path, clock=clock), lambda: closing(sqlite3.connect(path)), rows)


def _postgresql(clock: Clock, request: pytest.FixtureRequest) -> Place:
    import psycopg

    server: Databases = request.getfixturevalue("postgresql")
    url = emptied(server, server.url)
    return Place(
        PostgresStore(url, clock=clock),
        lambda: closing(psycopg.connect(url)),
        lambda: server.admin_each([ROWS], url),
    )


def _mariadb(clock: Clock, request: pytest.FixtureRequest) -> Place:
    from tests.stores.mysql.kit import connected

    server: Databases = request.getfixturevalue("mariadb")
    url = emptied(server, server.url)
    return Place(MysqlStore(url, clock=clock), lambda: connected(url), lambda: server.admin_each([ROWS], url))


@pytest.fixture(params=[_sqlite, _postgresql, _mariadb], ids=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, clock: Clock) -> Place:
    made: Place = request.param(clock, request)
    return made


@pytest.fixture
def semel(place: Place) -> Iterator[Semel]:
    with Semel(place.store, policy=KEPT) as semel:
        yield semel


def run(semel: Any, about: About | None, key: str = "k", error: Exception | None = None) -> None:
    def handler() -> int:
        if error is not None:
            raise error
        return 1

    semel.run(key, handler, operation="pay", fingerprint=None, about=about)


def test_a_claim_about_nothing_leaves_no_row(place: Place, semel: Semel) -> None:
    run(semel, None)
    run(semel, About())
    assert place.number_of_rows() == 0


def test_a_claim_leaves_a_row_for_each_value(place: Place, semel: Semel) -> None:
    run(semel, ANN)
    assert place.number_of_rows() == 2


def test_a_replay_leaves_the_rows_alone(place: Place, semel: Semel) -> None:
    run(semel, ANN)
    run(semel, BOB)
    assert place.number_of_rows() == 2


@pytest.mark.parametrize(("about", "rows"), [(None, 0), (BOB, 3)], ids=["nothing", "another"])
def test_a_new_life_has_the_rows_of_its_own_claim_alone(
    place: Place, semel: Semel, clock: Clock, about: About | None, rows: int
) -> None:
    run(semel, ANN)
    clock.advance(100)
    run(semel, about)
    assert place.number_of_rows() == rows


@pytest.mark.parametrize(("about", "rows"), [(None, 0), (BOB, 3)], ids=["nothing", "another"])
def test_a_further_attempt_has_the_rows_of_its_own_claim_alone(
    place: Place, semel: Semel, about: About | None, rows: int
) -> None:
    with pytest.raises(ConnectionError):
        run(semel, ANN, error=ConnectionError())
    run(semel, about)
    assert place.number_of_rows() == rows


def test_a_sweep_deletes_the_rows_of_the_records_that_it_deletes(place: Place, semel: Semel, clock: Clock) -> None:
    run(semel, ANN)
    clock.advance(50)
    run(semel, BOB, "other")
    clock.advance(50)
    assert semel.sweep().deleted == 1
    assert place.number_of_rows() == 3


def test_erasing_deletes_the_rows(place: Place, semel: Semel) -> None:
    run(semel, ANN)
    run(semel, BOB, "other")
    semel.erase("k", operation="pay", reason="asked")
    assert place.number_of_rows() == 3


def test_claims_in_one_list_have_their_own_rows(place: Place) -> None:
    answers = perform(
        place.store, *[claim(key, number=7, about=about) for key, about in zip(KEYS, (ANN, About(), BOB), strict=True)]
    )
    assert [type(answer) for answer in answers] == [Granted] * 3
    assert place.number_of_rows() == 5


def test_the_same_claim_sent_again_leaves_the_same_rows(place: Place) -> None:
    for _ in range(2):
        perform(place.store, claim(about=ANN))
    assert place.number_of_rows() == 2


def test_a_counted_failure_has_rows_and_a_new_life_of_its_key_has_others(place: Place, clock: Clock) -> None:
    perform(place.store, counted(claim(about=ANN)))
    assert place.number_of_rows() == 2
    clock.advance(10_000)
    perform(place.store, counted(claim(number=2, about=BOB)))
    assert place.number_of_rows() == 3


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_rows_of_a_claim_in_the_callers_transaction_end_with_it(place: Place, semel: Semel, ending: str) -> None:
    run(semel, None, "makes the tables")
    with place.connect() as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("BEGIN IMMEDIATE")
        with semel.within(connection):
            run(semel, ANN)
        assert place.number_of_rows() == 0
        getattr(connection, ending)()
    assert place.number_of_rows() == (2 if ending == "commit" else 0)


def test_a_new_life_in_the_callers_transaction_has_the_rows_of_its_own_claim(
    place: Place, semel: Semel, clock: Clock
) -> None:
    run(semel, ANN)
    clock.advance(100)
    with place.connect() as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("BEGIN IMMEDIATE")
        with semel.within(connection):
            run(semel, BOB)
        connection.commit()
    assert place.number_of_rows() == 3


@pytest.mark.parametrize("seed", range(6))
def test_after_random_operations_there_are_the_rows_of_every_record_and_no_others(
    place: Place, clock: Clock, seed: int
) -> None:
    table, sequences = Table(), Sequences(seed)
    with closing(place.store.driver()) as driver:
        perform_by(driver, place.store, Read(bytes(32)))  # makes the tables
        for number, (passing, drawn) in enumerate(sequences.steps(60)):
            operation = without_nul(drawn)
            clock.advance(passing)
            sequences.learn(table.apply(operation, clock.now))
            perform_by(driver, place.store, operation)
            expected = sorted(
                (record.key.digest, number, record.created_us, record.key.scope)
                for record in table.records.values()
                for number in term_numbers(record.about)
            )
            assert place.rows() == expected, f"seed {seed}, after {number}: {operation}"


def without_nul(operation: Operation) -> Operation:
    """The same without the character that PostgreSQL cannot keep."""
    error = getattr(operation, "error", None)
    if error is None:
        return operation
    cleaned = replace(error, message=error.message.replace("\0", ""))
    return replace(operation, error=cleaned)


def counted(asked: Claim) -> CountFailure:
    error = Failure("app.Broke", "why")
    return CountFailure(asked.key, asked.fingerprint, asked.nonce, error, asked.terms, asked.about)


def perform(store: Store, *operations: Any) -> list[Any]:
    with closing(store.driver()) as driver:
        return perform_by(driver, store, *operations)


def perform_by(driver: Driver, store: Store, *operations: Any) -> list[Any]:
    (answers,) = driver.perform([store.plan(operations, joined=False)])
    assert isinstance(answers, list), answers
    return answers
