"""A Redis without room that evicts nothing: what it holds is given, nothing is added, and it does not count as away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from semel import Semel
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CachePut,
    CachePutResult,
)
from tests.faults.tiered.pressing import Heard
from tests.servers.redis import Keys, RedisServer
from tests.stores.tiered.kit import Asked
from tests.unit.stores.operations import KEYS, SECOND, START
from tests.unit.stores.tiered.records import completed

pytestmark = pytest.mark.slow
RECORD = completed(KEYS[0])


@pytest.fixture(scope="module")
def server(start_redis: Callable[..., AbstractContextManager[RedisServer]]) -> Iterator[RedisServer]:
    with start_redis() as server:
        yield server


@pytest.fixture
def keys(server: RedisServer) -> Keys:
    keys = server.keys()
    keys.said("CONFIG", "SET", "maxmemory", "0")
    return keys


def fill_up(keys: Keys) -> None:
    """From now on there is no room."""
    keys.said("CONFIG", "SET", "maxmemory-policy", "noeviction")
    keys.said("CONFIG", "SET", "maxmemory", "1")


def test_a_look_that_misses_is_answered_without_an_epoch(asked: Asked, keys: Keys) -> None:
    fill_up(keys)
    for _ in range(3):
        assert asked(CacheGet(KEYS[0], b"e")) == [CacheMiss(b"", START)]
    assert not asked.gate.shut


def test_a_fill_is_refused_for_want_of_room_and_the_cache_is_not_taken_for_silent(asked: Asked, keys: Keys) -> None:
    asked(CacheGet(KEYS[0], b"e"))
    fill_up(keys)
    for _ in range(3):
        assert asked(CachePut(RECORD, b"e", START + SECOND, START)) == [CachePutResult(done=False, full=True)]
    assert not asked.gate.shut


def test_what_it_holds_is_given_and_can_be_dropped(asked: Asked, keys: Keys) -> None:
    asked(CacheGet(KEYS[0], b"e"))
    asked(CachePut(RECORD, b"e", START + SECOND, START))
    fill_up(keys)
    assert asked(CacheGet(KEYS[0], b"f")) == [CacheHit(RECORD, START, SECOND)]
    assert asked(CacheInvalidate(KEYS[0].digest, KEYS[0].operation, SECOND)) == [CacheInvalidated(0)]
    assert asked(CacheGet(KEYS[0], b"f")) == [CacheMiss(b"", START)]


def test_replays_go_on_and_the_observer_hears_of_no_cache_that_is_away(tmp_path: Path, keys: Keys) -> None:
    heard = Heard()
    with Semel(tmp_path / "semel.db", cache=f"{keys.url}&timeout=5", observer=heard) as semel:
        for key in ["warm", *["cached"] * 2]:
            semel.run(key, lambda: "kept", operation="pay", fingerprint=None)
        fill_up(keys)
        for number in range(5):
            assert [
                semel.run(f"new {number}", lambda: 1, operation="pay", fingerprint=None).cache for _ in range(3)
            ] == ["miss"] * 3
            assert semel.run("cached", lambda: "again", operation="pay", fingerprint=None).cache == "hit"
    assert heard.kinds["cache_open"] == 0
