"""Servers watched by Sentinels: the primary is found, also after another has taken its place."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from semel.core.operations import Complete, Granted, Replay
from semel.errors import StoreUnavailable
from semel.stores.admin import DEFAULT_HORIZON
from semel.stores.redis import RedisStore
from tests.servers.redis_cluster import await_copy, is_primary
from tests.servers.redis_sentinel import Watched
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import KEYS, Clock, claim

pytestmark = pytest.mark.slow

Start = Callable[..., AbstractContextManager[Watched]]


def test_after_a_failover_the_new_primary_is_used(start_redis_sentinel: Start, colour: type[Asker]) -> None:
    with start_redis_sentinel() as watched:
        asker = colour(RedisStore(watched.url), Clock())
        try:
            asker.all([Complete(asker.granted().lease, b"x")])
            await_copy(watched.primary, watched.replica)
            watched.primary.kill()
            while not is_primary(watched.replica):
                (answer,) = asker.all([claim(KEYS[1], number=2)])
                assert isinstance(answer, (StoreUnavailable, Granted))
            (answer,) = asker.all([claim(KEYS[0], number=3)])
            while isinstance(answer, StoreUnavailable):
                (answer,) = asker.all([claim(KEYS[0], number=3)])
            assert isinstance(answer, Replay)
        finally:
            asker.close()


def test_a_service_that_nobody_watches_is_told(start_redis_sentinel: Start, colour: type[Asker]) -> None:
    with start_redis_sentinel() as watched:
        asker = colour(RedisStore(f"{watched.url}-of-somebody-else"), Clock())
        try:
            (answer,) = asker.all([claim()])
        finally:
            asker.close()
        assert isinstance(answer, StoreUnavailable)
        assert "nothing was recorded" in answer.message
        findings = {finding.topic: finding for finding in RedisStore(watched.url).admin().examine(DEFAULT_HORIZON)}
        assert findings["role"].verdict == "note"
