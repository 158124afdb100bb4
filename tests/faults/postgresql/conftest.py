"""What the faults of the PostgreSQL store share: a database of their own, users of both colours, and an outsider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import COLOURS, Colour, MakeUser, User
from tests.servers.databases import Databases


@pytest.fixture(scope="module")
def place(postgresql: Databases) -> str:
    """A database of one file of tests, with the tables made."""
    url = postgresql.new_database()
    with User(PostgresStore(url), "threads") as user:
        user.completed("first")
    return url


@pytest.fixture
def url(place: str) -> str:
    """The same, emptied."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("TRUNCATE semel_record, semel_step")
    return place


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture
def make_user(url: str, colour: Colour) -> Iterator[MakeUser]:
    with ExitStack() as stack:

        def make(at: str = url, **settings: Any) -> User:
            return stack.enter_context(User(PostgresStore(at, **settings), colour))

        yield make


@pytest.fixture
def user(make_user: MakeUser) -> User:
    return make_user()


@pytest.fixture
def outsider(url: str) -> Iterator[Outsider]:
    """Somebody else's session on the same database."""
    with Outsider(url) as outsider:
        yield outsider
