"""A store on Redis, in either colour: no records at first, a clock that stands still."""

from collections.abc import Iterator

import pytest

from semel.stores.redis import RedisStore
from tests.servers.redis import Keys
from tests.stores.redis.kit import Asker, BlockingAsker, LoopAsker
from tests.unit.stores.operations import Clock


@pytest.fixture
def keys(redis_keys: Keys) -> Keys:
    redis_keys.empty()
    return redis_keys


@pytest.fixture(params=[BlockingAsker, LoopAsker], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> type[Asker]:
    kind: type[Asker] = request.param
    return kind


@pytest.fixture
def asker(keys: Keys, clock: Clock, colour: type[Asker]) -> Iterator[Asker]:
    asker = colour(RedisStore(keys.url, clock=clock), clock)
    yield asker
    asker.close()
