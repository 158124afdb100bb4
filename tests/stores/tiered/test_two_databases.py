"""Two databases may share one Redis: what is cached for one never answers for the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import ResultNotKept, StoreUnavailable
from semel.stores.cache.operations import CacheGet, CacheInvalidate, CacheMiss, CachePut, CachePutResult
from tests.servers.databases import Databases
from tests.servers.redis import Keys
from tests.stores.tiered.kit import Asked
from tests.unit.stores.operations import KEYS, SECOND, START
from tests.unit.stores.tiered.records import completed

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """Two databases of one kind."""
    if request.param == "sqlite":
        return tmp_path / "a.db", tmp_path / "b.db"
    databases: Databases = request.getfixturevalue(request.param)
    return databases.new_database(), databases.new_database()


@pytest.fixture
def both(places: tuple[Any, Any], keys: Keys) -> Iterator[tuple[Semel, Semel]]:
    """A process on each, with one Redis for both, and a record of the same key that it is given by the cache."""
    with ExitStack() as stack:
        one, other = (stack.enter_context(Semel(place, cache=f"{keys.url}&timeout=5")) for place in places)
        for semel, value in ((one, "of one"), (other, "of the other")):
            for _ in range(3):
                semel.run("k", partial(str, value), operation="pay", fingerprint=None, scope="tenant")
        yield one, other


def cached(semel: Semel) -> Any:
    """What the cache answers."""
    result = semel.run("k", lambda: "again", operation="pay", fingerprint=None, scope="tenant")
    assert result.cache
    return result.value


def test_neither_is_shown_the_others_answer(both: tuple[Semel, Semel]) -> None:
    assert [cached(semel) for semel in both] == ["of one", "of the other"]


def test_an_erase_in_one_leaves_what_is_cached_for_the_other(both: tuple[Semel, Semel]) -> None:
    one, other = both
    one.erase("k", operation="pay", scope="tenant", reason="asked to")
    assert cached(other) == "of the other"
    with pytest.raises(ResultNotKept):
        one.run("k", lambda: "again", operation="pay", fingerprint=None, scope="tenant")


@pytest.mark.anyio
async def test_neither_is_shown_the_others_answer_where_it_is_awaited(places: tuple[Any, Any], keys: Keys) -> None:
    cache = f"{keys.url}&timeout=5"
    async with AsyncSemel(places[0], cache=cache) as one, AsyncSemel(places[1], cache=cache) as other:
        for semel, value in ((one, "of one"), (other, "of the other")):
            results = [
                await semel.run("k", partial(_later, value), operation="pay", fingerprint=None) for _ in range(4)
            ]
            assert [result.value for result in results] == [value] * 4
            assert results[-1].cache


async def _later(value: str) -> str:
    return value


def test_a_copy_is_another_database_once_it_has_a_pattern_of_its_own(tmp_path: Path, keys: Keys) -> None:
    first, copy = tmp_path / "a.db", tmp_path / "b.db"
    with Semel(first, cache=f"{keys.url}&timeout=5") as semel:
        semel.run("warm", lambda: "up", operation="pay", fingerprint=None)
    shutil.copyfile(first, copy)
    with (
        Semel(first, cache=f"{keys.url}&timeout=5") as semel,
        Semel(copy, cache=f"{keys.plain_url}?pattern={keys.prefix}:copy:{{digest}}&timeout=5") as other,
    ):
        for _ in range(3):
            semel.run("k", lambda: "of the first", operation="pay", fingerprint=None)
        assert [other.run("k", lambda: "of the copy", operation="pay", fingerprint=None).value for _ in range(3)] == [
            "of the copy"
        ] * 3


def test_before_it_is_known_which_database_it_is_the_cache_is_passed_by(asked: Asked, keys: Keys) -> None:
    asked.install_id = None
    assert asked(CacheGet(KEYS[0], b"e")) == [CacheMiss()]
    assert asked(CachePut(completed(KEYS[0]), b"e", START + SECOND, START)) == [CachePutResult(done=False)]
    (refusal,) = asked(CacheInvalidate(KEYS[0].digest, KEYS[0].operation, SECOND))
    assert isinstance(refusal, StoreUnavailable)
    assert (keys.names(), asked.gate.shut) == ([], False)


def test_what_another_database_answered_is_not_filled_in_for_the_one_that_was_looked_up(asked: Asked) -> None:
    looked_up = asked.install_id
    asked(CacheGet(KEYS[0], b"e"))
    asked.install_id = b"another database"
    assert asked(CachePut(completed(KEYS[0]), b"e", START + SECOND, START)) == [CachePutResult(done=False)]
    asked.install_id = looked_up
    assert asked(CacheGet(KEYS[0], b"f")) == [CacheMiss(b"e", START)]
