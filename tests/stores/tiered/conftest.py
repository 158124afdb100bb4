"""The cache of a worker, empty at first."""

from collections.abc import Iterator

import pytest

from tests.servers.redis import Keys
from tests.stores.tiered.kit import Asked


@pytest.fixture
def keys(redis_keys: Keys) -> Keys:
    redis_keys.empty()
    return redis_keys


@pytest.fixture
def asked(keys: Keys) -> Iterator[Asked]:
    asked = Asked(keys)
    yield asked
    asked.close()
