"""What the look at a SQL store counts: by index and up to a limit, which it names, so it never reads all records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.core.operations import Complete, Fail, Operation
from semel.core.record import Failure
from semel.core.store import Store
from semel.stores import admin
from semel.stores.admin import DEFAULT_HORIZON
from semel.stores.mysql import MysqlStore
from semel.stores.postgresql import PostgresStore
from semel.stores.sql import admin as sql_admin
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite import admin as sqlite_admin
from tests.stores.postgresql.kit import claim

pytestmark = pytest.mark.slow

LIMIT = 3
LAPSED, IN_DOUBT = "lease ended, not swept", "in doubt"


def _sqlite(folder: Path, _request: pytest.FixtureRequest) -> SqliteStore:
    return SqliteStore(folder / "semel.db")


def _postgresql(_folder: Path, request: pytest.FixtureRequest) -> PostgresStore:
    return PostgresStore(request.getfixturevalue("postgresql").new_database())


def _mariadb(_folder: Path, request: pytest.FixtureRequest) -> MysqlStore:
    return MysqlStore(request.getfixturevalue("mariadb").new_database())


@pytest.fixture(params=[_sqlite, _postgresql, _mariadb], ids=["sqlite", "postgresql", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Any = request.param(tmp_path, request)
    made.admin().migrate()
    return made  # type: ignore[no-any-return]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small limit in the place of a hundred thousand."""
    for module in (admin, sql_admin, sqlite_admin):
        monkeypatch.setattr(module, "MOST_COUNTED", LIMIT)


class Records:
    """Writes records of some kinds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._driver = store.driver()
        self._number = 0

    def _ask(self, operation: Operation) -> Any:
        [answers] = self._driver.perform([self._store.plan([operation], joined=False)])
        assert isinstance(answers, list), answers
        return answers[0]

    def _lease(self, seconds: int) -> Any:
        self._number += 1
        return self._ask(claim(f"o-{self._number}", lease=seconds)).lease

    def completed(self, number: int) -> None:
        for _ in range(number):
            self._ask(Complete(self._lease(30), b"\x01"))

    def lapsed(self, number: int) -> None:
        for _ in range(number):
            self._lease(0)

    def in_doubt(self, number: int) -> None:
        for _ in range(number):
            self._ask(Fail(self._lease(30), "doubt", Failure("app.Broke", ""), doubtful=True))

    def close(self) -> None:
        self._driver.close()


@pytest.fixture
def records(store: Store) -> Any:
    made = Records(store)
    yield made
    made.close()


def found(store: Any) -> dict[str, str]:
    return {finding.topic: finding.found for finding in store.admin().examine(DEFAULT_HORIZON)}


def test_few_records_are_counted_exactly(store: Store, records: Records) -> None:
    records.completed(4)
    records.in_doubt(2)
    records.lapsed(1)
    told = found(store)
    assert (told[IN_DOUBT], told[LAPSED], told["expired records"]) == ("2", "1", "0")
    assert told["keep_for"].startswith("24 h (the shortest there is)")


def test_a_store_without_records_has_none_to_count(store: Store) -> None:
    told = found(store)
    assert (told[IN_DOUBT], told[LAPSED], told["expired records"]) == ("0", "0", "0")


@pytest.mark.usefixtures("few")
def test_what_is_beyond_the_limit_is_told_as_more(store: Store, records: Records) -> None:
    records.in_doubt(LIMIT + 2)
    assert found(store)[IN_DOUBT] == "more than 3"


@pytest.mark.usefixtures("few")
def test_as_many_as_the_limit_are_told_as_they_are(store: Store, records: Records) -> None:
    records.in_doubt(LIMIT)
    assert found(store)[IN_DOUBT] == "3"


@pytest.mark.usefixtures("few")
def test_a_lease_that_ended_is_found_among_the_newest(store: Store, records: Records) -> None:
    records.completed(LIMIT)
    records.lapsed(1)
    expected = "1" if isinstance(store, SqliteStore) else "1 among the newest 3 records"
    assert found(store)[LAPSED] == expected


def test_counting_by_hand_is_exact(store: Store, records: Records, few: None) -> None:
    records.completed(LIMIT + 2)
    with Semel(store) as semel:
        assert semel.count() == LIMIT + 2
