"""A failure that was rolled back is counted beside the transactions of others, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest

from semel.core.operations import Answer, Claim, Counted, CountFailure, Granted, Operation, Read, StateMismatch
from semel.core.record import Failure, StoredRecord
from semel.core.store import Store
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.settings import address
from semel.stores.postgresql import PostgresStore
from semel.stores.sql.settings import Settings
from tests.servers.databases import Databases
from tests.unit.stores.operations import KEYS, claim, nonce

pytestmark = pytest.mark.slow
PATIENCE = 60.0  # longer than a test may take: a statement that waits for somebody does not end in time


def count(number: int) -> CountFailure:
    asked = claim(number=number)
    error = Failure("shop.Declined", "no")
    return CountFailure(asked.key, asked.fingerprint, asked.nonce, error, asked.terms, asked.about, max_attempts=3)


class Place:
    """A store, a driver of semel's own, and a caller's connection with a transaction that can stay open."""

    def __init__(self, store: Store, connection: Any) -> None:
        self.store = store
        self.connection = connection
        self.driver = store.driver()

    def alone(self, operation: Operation) -> Answer | Exception:
        (answers,) = self.driver.perform([self.store.plan([operation], joined=False)])
        assert isinstance(answers, list), answers
        return answers[0]

    def inside(self, operation: Claim) -> Answer | Exception:
        return self.store.join(self.connection).perform(self.store.plan([operation], joined=True))[0]

    def stored(self) -> StoredRecord | None:
        found: Any = self.alone(Read(KEYS[0].digest))
        record: StoredRecord | None = found.record
        return record


@pytest.fixture(params=["postgresql", "mariadb"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    databases: Databases = request.getfixturevalue(request.param)
    url = databases.new_database()
    made: Callable[[], tuple[Store, Any]] = {"postgresql": lambda: _postgresql(url), "mariadb": lambda: _mariadb(url)}[
        request.param
    ]
    store, connection = made()
    with closing(connection):
        opened = Place(store, connection)
        with closing(opened.driver):
            yield opened


def _postgresql(url: str) -> tuple[Store, Any]:
    return PostgresStore(url, lock_timeout=PATIENCE, listen=False), psycopg.connect(url)


def _mariadb(url: str) -> tuple[Store, Any]:
    return MysqlStore(url, listen=False), pymysql.connect(**address(Settings.of(url)))


@pytest.mark.timeout(30)
def test_a_key_that_an_open_transaction_has_just_claimed_is_left_alone(place: Place) -> None:
    assert place.stored() is None
    assert isinstance(place.inside(claim(number=1)), Granted)
    assert place.alone(count(2)) == StateMismatch(None)
    place.connection.rollback()
    assert isinstance(place.alone(count(2)), Counted)


@pytest.mark.timeout(30)
def test_a_failure_that_an_open_transaction_tries_again_is_left_alone(place: Place) -> None:
    first = place.alone(count(1))
    assert isinstance(first, Counted)
    assert isinstance(place.inside(claim(number=2)), Granted)
    assert isinstance(place.alone(count(3)), StateMismatch)
    place.connection.rollback()
    assert place.stored() == first.record
    second = place.alone(count(3))
    assert isinstance(second, Counted)
    assert (second.record.attempts, second.record.nonce) == (2, nonce(3))
