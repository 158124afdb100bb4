"""SQLAlchemy tables: their types, defaults and key names apply, in each kind of write."""

import enum
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from semel.errors import UsageError
from semel.versions import Unchanged, Written, run, update_versioned, upsert

pytestmark = pytest.mark.anyio

A = {"id": "a-1"}


class State(enum.Enum):
    ON = "on"
    OFF = "off"


METADATA = sa.MetaData()
ASSET = sa.Table(
    "asset",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("current_state", sa.Enum(State), key="state", nullable=False),
    sa.Column("facts", sa.JSON),
    sa.Column("changed_by", sa.String(40), default="nobody", onupdate="somebody"),
    sa.Column("seen", sa.DateTime),
    sa.Column("row_version", sa.Integer, key="version", nullable=False),
    sa.Column("request", sa.String(40)),
)


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://")
    METADATA.create_all(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def row(connection: sa.Connection) -> tuple[object, ...]:
    return tuple(connection.execute(sa.select(ASSET.c.state, ASSET.c.facts, ASSET.c.version)).one())


def test_the_types_of_the_table_apply_to_a_new_row(connection: sa.Connection) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)
    assert run(connection, upsert(ASSET, A, {"state": State.ON, "facts": {"kw": [1]}, "seen": at})) == Written(1)
    assert row(connection) == (State.ON, {"kw": [1]}, 1)


def test_the_types_of_the_table_apply_to_a_change(connection: sa.Connection) -> None:
    run(connection, upsert(ASSET, A, {"state": State.ON}))
    assert run(connection, update_versioned(ASSET, A, {"state": State.OFF, "facts": {}}, expected=1)) == Written(2)
    assert row(connection) == (State.OFF, {}, 2)


def test_the_types_of_the_table_apply_to_an_event(connection: sa.Connection) -> None:
    run(connection, upsert(ASSET, A, {"state": State.ON}, newer=2))
    assert run(connection, upsert(ASSET, A, {"state": State.OFF, "facts": [1]}, newer=3)) == Written(3)
    assert run(connection, upsert(ASSET, A, {"state": State.ON, "facts": [2]}, newer=3)) == Unchanged(3)
    assert row(connection) == (State.OFF, [1], 3)


def test_python_side_defaults_apply(connection: sa.Connection) -> None:
    run(connection, upsert(ASSET, A, {"state": State.ON}))
    assert connection.scalar(sa.select(ASSET.c.changed_by)) == "nobody"
    run(connection, update_versioned(ASSET, A, {}, expected=1))
    assert connection.scalar(sa.select(ASSET.c.changed_by)) == "somebody"


def test_the_same_request_again_is_done_already(connection: sa.Connection) -> None:
    write = upsert(ASSET, A, {"state": State.ON}, request={"request": "r-1"})
    assert run(connection, write) == Written(1)
    assert run(connection, write) == Unchanged(1)


def test_a_column_that_the_table_lacks_is_told(connection: sa.Connection) -> None:
    with pytest.raises(UsageError, match="asset has no column colour; nothing was written"):
        run(connection, upsert(ASSET, A, {"colour": "red"}))


def test_a_table_on_a_driver_s_connection_is_refused(connection: sa.Connection) -> None:
    driver = connection.connection.dbapi_connection
    with pytest.raises(UsageError, match="A SQLAlchemy table needs a SQLAlchemy connection"):
        run(driver, upsert(ASSET, A, {"state": State.ON}))
