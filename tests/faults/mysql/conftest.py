"""What the faults of the MySQL store share: a database of their own on MariaDB, users of both colours, an outsider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from semel.stores.mysql import MysqlStore
from tests.faults.mysql.sessions import session
from tests.faults.users import with_tables
from tests.servers.databases import Databases
from tests.servers.records import FORGET_SWEEPS


@pytest.fixture
def store_kind() -> type[MysqlStore]:
    """Which store `make_user` makes."""
    return MysqlStore


@pytest.fixture(scope="module")
def place(mariadb: Databases) -> str:
    """A database of one file of tests, with the tables made."""
    return with_tables(MysqlStore, mariadb.new_database())


@pytest.fixture
def url(place: str, mariadb: Databases) -> str:
    """The same, emptied."""
    mariadb.admin("DELETE FROM semel_record", place)
    mariadb.admin(FORGET_SWEEPS, place)
    return place


@pytest.fixture
def outsider(url: str) -> Iterator[Any]:
    """A session of somebody else."""
    connection = session(url)
    yield connection
    connection.close()
