"""Inside the caller's transaction no cache is asked, and none is filled."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from semel import Semel
from tests.faults.tiered.pressing import Heard
from tests.servers.redis import Keys

pytestmark = pytest.mark.slow


class World:
    """An engine with a cache, and the caller's own connection to the same file."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.heard = Heard()
        self.path = path
        self.semel = Semel(path, cache=f"{keys.url}&timeout=5&local=10", observer=self.heard)
        self.semel.run("warm", lambda: "up", operation="pay", fingerprint=None)
        self.heard.kinds.clear()

    def asked(self) -> int:
        """How often a cache was asked."""
        return self.heard.kinds["cache_hit"] + self.heard.kinds["cache_miss"]


@pytest.fixture
def world(tmp_path: Path, keys: Keys) -> Iterator[World]:
    world = World(tmp_path / "semel.db", keys)
    yield world
    world.semel.close()


def test_what_is_rolled_back_is_replayed_to_nobody(world: World) -> None:
    with closing(sqlite3.connect(world.path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with world.semel.within(connection):
            for _ in range(2):
                assert world.semel.run("k", lambda: "in vain", operation="pay", fingerprint=None).value == "in vain"
        connection.execute("ROLLBACK")
    assert world.asked() == 0
    assert [world.semel.run("k", lambda: "for good", operation="pay", fingerprint=None).value for _ in range(4)] == [
        "for good"
    ] * 4


def test_a_replay_inside_asks_the_database_although_it_is_cached(world: World) -> None:
    for _ in range(3):
        world.semel.run("k", lambda: "kept", operation="pay", fingerprint=None)
    before = world.asked()
    with closing(sqlite3.connect(world.path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with world.semel.within(connection):
            result = world.semel.run("k", lambda: "again", operation="pay", fingerprint=None)
        connection.execute("COMMIT")
    assert (result.replayed, result.cache, world.asked()) == (True, "miss", before)
