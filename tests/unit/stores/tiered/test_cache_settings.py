"""What `cache=` may be, and what is refused before anything is opened."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.stores.cache import Cache, TieredStore
from semel.stores.memory import MemoryStore


def test_a_url_carries_settings_of_the_cache_and_of_redis() -> None:
    cache = Cache.of("redis://host:1/2?cap=60&timeout=0.5&local=10&local_for=2&pattern=mine:{digest}")
    assert cache == Cache("redis://host:1/2?pattern=mine:{digest}", cap=60, timeout=0.5, local=10, local_for=2)


def test_a_time_may_be_a_timedelta() -> None:
    given: Any = timedelta(minutes=1)
    assert Cache("redis://host", cap=given).cap == 60


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Cache("redis://:secret@host"))


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "memory://"},
        {"url": "dynamodb://table"},
        {},
        {"url": "redis://host", "cap": 0},
        {"url": "redis://host", "timeout": -1},
        {"url": "redis://host", "local": -1},
        {"url": "redis://host", "local": "many"},
        {"url": "redis://host", "local_for": "soon"},
    ],
)
def test_what_cannot_be_a_cache_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing was opened"):
        Cache(**settings)


@pytest.mark.parametrize("given", [7, "redis://host?wrong=1", "redis://host?cap=x"])
def test_what_is_neither_url_nor_cache_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="nothing was opened"):
        Semel("memory://", cache=given)


@pytest.mark.parametrize("url", ["redis://localhost", "dynamodb://table?region=eu-west-1"])
@pytest.mark.parametrize("engine", [Semel, AsyncSemel])
def test_only_sql_stands_behind_a_cache(engine: Any, url: str) -> None:
    with pytest.raises(UsageError, match="cannot stand behind a cache"):
        engine(url, cache="redis://localhost")


@pytest.mark.parametrize("store", ["postgresql://localhost/x", "mysql://localhost/x", "django://default", "file"])
@pytest.mark.parametrize("cache", ["redis://h", "redis+cluster://h,i", "redis+sentinel://h/service"])
def test_a_store_of_sql_does_and_keeps_its_name(tmp_path: Path, store: str, cache: str) -> None:
    place = tmp_path / "semel.db" if store == "file" else store
    assert engine_of(Semel(place, cache=cache)).store.name == engine_of(Semel(place)).store.name


def test_a_cache_in_the_process_alone_needs_no_redis() -> None:
    with Semel("memory://", cache=Cache(local=10)) as semel:
        found = [semel.run("k", lambda: 7, operation="charge", fingerprint=None) for _ in range(3)]
    assert [(result.value, result.replayed, result.cache) for result in found] == [
        (7, False, "miss"),
        (7, True, "miss"),
        (7, True, "hit"),
    ]


def test_without_a_cache_a_result_says_nothing_of_it() -> None:
    with Semel("memory://") as semel:
        found = [semel.run("k", lambda: 7, operation="charge", fingerprint=None) for _ in range(2)]
    assert [result.cache for result in found] == [None, None]


def test_a_purged_entry_is_read_from_the_store_and_cached_anew() -> None:
    with Semel("memory://", cache=Cache(local=10)) as semel:
        for _ in range(2):
            semel.run("k", lambda: 7, operation="charge", fingerprint=None)
            semel.run("other", lambda: 8, operation="charge", fingerprint=None)
        semel.purge_cached("k", operation="charge")
        found = [semel.run("k", lambda: 9, operation="charge", fingerprint=None) for _ in range(2)]
        other = semel.run("other", lambda: 9, operation="charge", fingerprint=None)
    assert [(result.value, result.cache) for result in (*found, other)] == [(7, "miss"), (7, "hit"), (8, "hit")]


def test_an_entry_is_purged_by_an_event_loop_too() -> None:
    async def work() -> list[Any]:
        async def handler() -> int:
            return 7

        async with AsyncSemel("memory://", cache=Cache(local=10)) as semel:
            for _ in range(2):
                await semel.run("k", handler, operation="charge", fingerprint=None)
            await semel.purge_cached("k", operation="charge")
            return [(await semel.run("k", handler, operation="charge", fingerprint=None)).cache for _ in range(2)]

    assert asyncio.run(work()) == ["miss", "hit"]


def test_where_there_is_no_cache_nothing_is_purged() -> None:
    with Semel("memory://") as semel, pytest.raises(UsageError, match="no cache in front of the store"):
        semel.purge_cached("k", operation="charge")


def test_as_a_store_it_is_the_one_behind() -> None:
    behind = MemoryStore()
    tiered = TieredStore(behind, Cache(local=1))
    assert (tiered.name, tiered.max_operations) == (behind.name, behind.max_operations)
