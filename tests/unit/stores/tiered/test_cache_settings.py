"""What `cache=` may be, and what is refused before anything is opened."""

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
        (7, False, False),
        (7, True, False),
        (7, True, True),
    ]


def test_as_a_store_it_is_the_one_behind() -> None:
    behind = MemoryStore()
    tiered = TieredStore(behind, Cache(local=1))
    assert (tiered.name, tiered.max_operations) == (behind.name, behind.max_operations)
