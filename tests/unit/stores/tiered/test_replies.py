"""What a cache may answer, a Redis or not: it is a miss, or nothing is confirmed, and nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest

from semel.core.circuit import Breaker
from semel.core.observer import Logging
from semel.errors import StoreUnavailable
from semel.stores.cache.logic import CacheBreaker
from semel.stores.cache.operations import (
    CacheGet,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CacheOperation,
    CachePut,
    CachePutResult,
)
from semel.stores.cache.redis import RedisCache
from semel.stores.cache.settings import Cache
from tests.unit.stores.operations import KEYS, START
from tests.unit.stores.tiered.records import completed

LOOK = CacheGet(KEYS[0], b"epoch")
FILL = CachePut(completed(KEYS[0]), b"epoch", START, START)
DROP = CacheInvalidate(KEYS[0].digest, KEYS[0].operation, 1)
NONSENSE = [
    None,
    b"OK",
    [],
    [1, b"no entry", START, 1],
    [1, 2, START, 1],
    [0, None, START, 0],
    [0, b"epoch", b"now", 0],
    [2, b"", START, 0],
    Exception("of a bug"),
]


def answered(operation: CacheOperation, reply: Any) -> Any:
    gate = CacheBreaker(Breaker(failures=2, rest=1, longest=1, chance=float), float, Logging())
    plan = RedisCache(Cache("redis://host"), gate, lambda: b"which").plan([operation], joined=False)
    next(plan)
    try:
        plan.send([reply])
    except StopIteration as end:
        return end.value[0]
    raise AssertionError(reply)


@pytest.mark.parametrize("reply", NONSENSE)
def test_a_look_that_is_answered_with_nonsense_is_a_miss(reply: Any) -> None:
    assert answered(LOOK, reply) == CacheMiss()


@pytest.mark.parametrize("reply", NONSENSE)
def test_a_fill_that_is_answered_with_nonsense_filled_nothing(reply: Any) -> None:
    assert answered(FILL, reply) == CachePutResult(done=False)


@pytest.mark.parametrize("reply", NONSENSE)
def test_a_drop_that_is_answered_with_nonsense_is_an_error(reply: Any) -> None:
    assert isinstance(answered(DROP, reply), Exception)


def test_a_drop_that_no_redis_would_answer_so_can_be_tried_again() -> None:
    assert isinstance(answered(DROP, b"OK"), StoreUnavailable)


def test_a_number_is_how_long_ago_it_was_dropped() -> None:
    assert answered(DROP, 7) == CacheInvalidated(7)
