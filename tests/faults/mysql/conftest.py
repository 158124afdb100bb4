"""What the faults of the MySQL store share: a database of their own on MariaDB, users of both colours, an outsider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from semel.stores.mysql import MysqlStore
from tests.faults.mysql.sessions import session
from tests.faults.users import COLOURS, Colour, MakeUser, User
from tests.servers.databases import Databases


@pytest.fixture(scope="module")
def place(mariadb: Databases) -> str:
    """A database of one file of tests, with the tables made."""
    url = mariadb.new_database()
    with User(MysqlStore(url), "threads") as user:
        user.completed("first")
    return url


@pytest.fixture
def url(place: str, mariadb: Databases) -> str:
    """The same, emptied."""
    mariadb.admin("DELETE FROM semel_record", place)
    return place


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture
def make_user(url: str, colour: Colour) -> Iterator[MakeUser]:
    with ExitStack() as stack:

        def make(at: str = url, **settings: Any) -> User:
            return stack.enter_context(User(MysqlStore(at, **settings), colour))

        yield make


@pytest.fixture
def user(make_user: MakeUser) -> User:
    return make_user()


@pytest.fixture
def outsider(url: str) -> Iterator[Any]:
    """A session of somebody else."""
    connection = session(url)
    yield connection
    connection.close()
