"""A store on a table of this worker, empty, with a clock that stands still."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.admin import creation
from tests.servers.ministack import Tables
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import Clock


@pytest.fixture(scope="session")
def kept(dynamodb: Tables) -> str:
    """A table of this worker that the service deletes nothing from: the clock of these tests stands in the past."""
    url = dynamodb.new_url()
    dynamodb.client.create_table(**creation(urlsplit(url).netloc))
    return url


@pytest.fixture
def url(dynamodb: Tables, kept: str) -> str:
    """The same, empty."""
    dynamodb.empty(kept)
    return kept


@pytest.fixture
def asker(url: str, clock: Clock) -> Iterator[Asker]:
    """A store on it, asked without an engine."""
    asker = Asker(DynamoStore(url, clock=clock), clock)
    yield asker
    asker.driver.close()
