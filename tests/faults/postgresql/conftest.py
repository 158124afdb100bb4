"""What the faults of the PostgreSQL store share: a database of their own, users of both colours, and an outsider."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import with_tables
from tests.servers.databases import Databases
from tests.servers.records import FORGET_SWEEPS


@pytest.fixture
def store_kind() -> type[PostgresStore]:
    """Which store `make_user` makes."""
    return PostgresStore


@pytest.fixture(scope="module")
def place(postgresql: Databases) -> str:
    """A database of one file of tests, with the tables made."""
    return with_tables(PostgresStore, postgresql.new_database())


@pytest.fixture
def url(place: str) -> str:
    """The same, emptied."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("TRUNCATE semel_record, semel_step")
        connection.execute(FORGET_SWEEPS)
    return place


@pytest.fixture
def outsider(url: str) -> Iterator[Outsider]:
    """Somebody else's session on the same database."""
    with Outsider(url) as outsider:
        yield outsider
