"""What is refused before any statement is sent, and what a write looks like as SQL."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from semel.errors import ConcurrentModification, UsageError
from semel.versions import Unchanged, Write, Written, arun, run, update_versioned, upsert
from semel.versions.execute import Step
from semel.versions.sql_text import Dialect, statement

pytestmark = pytest.mark.anyio

A = {"id": "a-1"}
ON = {"state": "on"}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    one = sqlite3.connect(":memory:")
    one.execute("CREATE TABLE asset (id TEXT PRIMARY KEY, state TEXT, request TEXT, version INTEGER)")
    yield one
    one.close()


NAMED: dict[str, Callable[[str], Write]] = {
    "table": lambda name: upsert(name, A, ON),
    "key": lambda name: upsert("asset", {name: 1}, ON),
    "value": lambda name: upsert("asset", A, {name: 1}),
    "version": lambda name: upsert("asset", A, ON, version=name),
    "request": lambda name: upsert("asset", A, ON, request={name: 1}),
}


@pytest.mark.parametrize("place", NAMED)
@pytest.mark.parametrize("name", ['asset"', "asset`", "asset; --", "", "1st", "as set", "a.b-c", "asset."])
def test_what_is_not_a_name_is_refused(place: str, name: str) -> None:
    with pytest.raises(UsageError, match=r"not a plain name.*nothing was written"):
        NAMED[place](name)


@pytest.mark.parametrize(
    "given",
    [
        {"key": {}, "values": ON},
        {"key": {"id": None}, "values": ON},
        {"key": A, "values": A},
        {"key": A, "values": {"version": 3}},
        {"key": A, "values": {"request": 3}, "request": {"request": "r"}},
        {"key": A, "values": ON, "request": {}},
        {"key": A, "values": ON, "request": {"request": None}},
        {"key": A, "values": ON, "newer": 0},
        {"key": A, "values": ON, "newer": 2, "expected": 1},
    ],
    ids=[
        "no-key",
        "a-key-that-is-none",
        "the-key-as-a-value",
        "the-version-as-a-value",
        "the-request-as-a-value",
        "no-request-column",
        "a-request-that-is-none",
        "newer-than-nothing",
        "two-conditions",
    ],
)
def test_a_write_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing was written"):
        upsert("asset", **given)


def test_names_are_quoted_and_values_numbered() -> None:
    sql, values = statement(Step.ADD_OR_CHANGE, upsert("plant.asset", A, ON, newer=7), Dialect("postgresql", "$"))
    assert sql == (
        'INSERT INTO "plant"."asset" AS stored ("id", "state", "version") VALUES ($1, $2, $3)'
        ' ON CONFLICT ("id") DO UPDATE SET "state" = excluded."state", "version" = excluded."version"'
        ' WHERE stored."version" < excluded."version" RETURNING "version"'
    )
    assert values == ["a-1", "on", 7]


def test_a_key_that_names_many_rows_is_told(connection: sqlite3.Connection) -> None:
    run(connection, upsert("asset", {"id": "a-1"}, ON))
    run(connection, upsert("asset", {"id": "a-2"}, ON))
    with pytest.raises(UsageError, match=r"2 rows of asset were changed: state does not name one row\. Roll the"):
        run(connection, update_versioned("asset", ON, {"request": "r"}, expected=1))


def test_a_version_that_is_null_is_told(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO asset (id) VALUES ('a-1')")
    with pytest.raises(UsageError, match="the version of the row is NULL"):
        run(connection, upsert("asset", A, ON, newer=2))


@pytest.mark.parametrize("factory", [sqlite3.Row, lambda cursor, row: {"nothing": "useful"}], ids=["Row", "dict"])
def test_the_row_factory_of_the_connection_does_not_matter(connection: sqlite3.Connection, factory: Any) -> None:
    connection.row_factory = factory
    run(connection, upsert("asset", A, ON, newer=3))
    assert run(connection, upsert("asset", A, ON, newer=3)) == Unchanged(3)


def test_a_subclass_of_a_connection_is_known() -> None:
    class Mine(sqlite3.Connection):
        pass

    one = sqlite3.connect(":memory:", factory=Mine)
    one.execute("CREATE TABLE asset (id TEXT PRIMARY KEY, state TEXT, version INTEGER)")
    assert run(one, upsert("asset", A, ON)) == Written(1)
    one.close()


async def test_the_wrong_colour_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(UsageError, match=r"other colour; nothing was written\. Use run"):
        await arun(connection, upsert("asset", A, ON))


async def test_the_wrong_colour_of_sqlalchemy_is_refused() -> None:
    from sqlalchemy.ext.asyncio import AsyncSession

    with pytest.raises(UsageError, match=r"other colour; nothing was written\. Use await arun"):
        run(AsyncSession(), upsert("asset", A, ON))


@pytest.mark.parametrize(
    "thing", [object(), "postgresql://", sa.create_engine("sqlite://")], ids=["object", "url", "engine"]
)
def test_what_is_not_a_connection_is_refused(thing: object) -> None:
    with pytest.raises(UsageError, match="is not a connection that versions knows; nothing was written"):
        run(thing, upsert("asset", A, ON))


def test_the_error_survives_a_process_pool() -> None:
    error = ConcurrentModification("It changed.", expected=1, found=2)
    kind, arguments = error.__reduce__()
    again = kind(*arguments)
    assert (type(again), again.expected, again.found) == (ConcurrentModification, 1, 2)


def test_a_write_does_nothing_by_itself(connection: sqlite3.Connection) -> None:
    assert isinstance(upsert("asset", A, ON), Write)
    assert connection.execute("SELECT count(*) FROM asset").fetchone() == (0,)
