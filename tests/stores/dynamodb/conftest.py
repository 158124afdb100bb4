"""A store on a table of this worker, empty, with a clock that stands still."""

from collections.abc import Iterator

import pytest

from semel.stores.dynamodb import DynamoStore
from tests.servers.ministack import Tables
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import Clock


@pytest.fixture
def url(dynamodb: Tables) -> str:
    """A table of this worker, empty."""
    dynamodb.empty(dynamodb.url)
    return dynamodb.url


@pytest.fixture
def asker(url: str, clock: Clock) -> Iterator[Asker]:
    """A store on it, asked without an engine."""
    asker = Asker(DynamoStore(url, clock=clock), clock)
    yield asker
    asker.driver.close()
