"""A database of its own for each test, and one who asks the store in it."""

from collections.abc import Iterator

import pytest

from semel.stores.postgresql import PostgresStore
from tests.servers.databases import Databases
from tests.stores.postgresql.kit import Asker


@pytest.fixture
def url(postgresql: Databases) -> str:
    return postgresql.new_database()


@pytest.fixture
def asker(url: str) -> Iterator[Asker]:
    asker = Asker(PostgresStore(url))
    yield asker
    asker.close()
