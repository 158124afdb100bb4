"""Erasing through every tier: what was cached is shown to nobody once the erase is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from semel import Happened, Policy, Semel
from semel.errors import ResultNotKept
from semel.stores.cache import Cache, TieredStore
from semel.stores.sqlite import SqliteStore
from semel.testing.clock import VirtualClock
from tests.servers.redis import Keys, RedisServer

pytestmark = pytest.mark.slow


class Processes:
    """Two processes on one file and one cache, in virtual time."""

    def __init__(self, path: Path, url: str, *, local: int) -> None:
        self.clock = VirtualClock()
        self._path, self._cache = path, Cache(url, timeout=5, local=local)
        self.first, self.second = self._process(), self._process()

    def _process(self) -> Semel:
        store = SqliteStore(self._path, clock=self.clock.store_clock)
        tiered = TieredStore(store, self._cache, clock=self.clock.store_clock, monotonic=self.clock.monotonic)
        return Semel(tiered, clock=self.clock)

    def cached(self) -> None:
        """A record that both processes have in reach."""
        for semel in (self.first, self.first, self.second):
            semel.run("k", lambda: "personal", operation="pay", fingerprint=None)
        assert self.second.run("k", lambda: "personal", operation="pay", fingerprint=None).cache

    def close(self) -> None:
        self.first.close()
        self.second.close()


@pytest.fixture(params=[0, 10], ids=["redis", "redis and process"])
def local(request: pytest.FixtureRequest) -> int:
    chosen: int = request.param
    return chosen


def test_a_replay_after_an_erase_shows_nothing(tmp_path: Path, keys: Keys, local: int) -> None:
    processes = Processes(tmp_path / "semel.db", keys.url, local=local)
    processes.cached()
    processes.first.erase("k", operation="pay", reason="asked to")
    with pytest.raises(ResultNotKept):
        processes.first.run("k", lambda: "again", operation="pay", fingerprint=None)
    processes.clock.advance(5)
    with pytest.raises(ResultNotKept):
        processes.second.run("k", lambda: "again", operation="pay", fingerprint=None)
    processes.close()


def test_with_redis_alone_it_is_confirmed_at_once(tmp_path: Path, keys: Keys) -> None:
    processes = Processes(tmp_path / "semel.db", keys.url, local=0)
    processes.cached()
    processes.first.erase("k", operation="pay", reason="asked to")
    assert processes.first.sweep().invalidated == 0
    processes.close()


def test_with_records_in_processes_a_sweep_confirms_it_once_they_are_forgotten(tmp_path: Path, keys: Keys) -> None:
    processes = Processes(tmp_path / "semel.db", keys.url, local=10)
    processes.cached()
    processes.first.erase("k", operation="pay", reason="asked to")
    assert processes.second.sweep().invalidated == 0
    processes.clock.advance(5)
    assert processes.second.sweep().invalidated == 1
    assert processes.second.sweep().invalidated == 0
    processes.close()


def test_while_redis_is_away_the_note_stays_and_a_sweep_repeats_it(
    tmp_path: Path, start_redis: Callable[..., AbstractContextManager[RedisServer]]
) -> None:
    with start_redis() as server:
        processes = Processes(tmp_path / "semel.db", server.keys().plain_url, local=0)
        processes.cached()
        server.kill()
        processes.first.erase("k", operation="pay", reason="asked to")
        assert processes.first.sweep().invalidated == 0
        server.start()
        assert processes.first.sweep().invalidated == 1
        with pytest.raises(ResultNotKept):
            processes.second.run("k", lambda: "again", operation="pay", fingerprint=None)
        processes.close()


def test_what_a_process_read_after_an_earlier_drop_is_waited_for_as_well(tmp_path: Path, keys: Keys) -> None:
    processes = Processes(tmp_path / "semel.db", keys.url, local=10)
    with pytest.raises(OSError, match="lost"):
        processes.first.run("k", _lost, operation="pay", fingerprint=None, policy=Policy(in_doubt="hold"))
    processes.first.resolve("k", Happened("personal"), operation="pay", reason="it did")
    processes.clock.advance(6)
    assert processes.second.run("k", _lost, operation="pay", fingerprint=None).value == "personal"
    processes.first.erase("k", operation="pay", reason="asked to")
    assert processes.second.run("k", _lost, operation="pay", fingerprint=None).cache
    for seconds in (0, 5, 59):
        processes.clock.advance(seconds)
        assert processes.first.sweep().invalidated == 0
    processes.clock.advance(1)
    assert processes.first.sweep().invalidated == 1
    processes.close()


def test_a_sweep_a_day_is_enough(tmp_path: Path, keys: Keys) -> None:
    processes = Processes(tmp_path / "semel.db", keys.url, local=10)
    processes.first.run(
        "k", lambda: "personal", operation="pay", fingerprint=None, policy=Policy(keep_for=timedelta(days=30))
    )
    processes.first.erase("k", operation="pay", reason="asked to")
    processes.clock.advance(2)
    assert processes.first.sweep().invalidated == 0
    processes.clock.advance(86_400)
    assert processes.first.sweep().invalidated == 1
    processes.close()


def test_a_full_redis_forgets_all_the_same(
    tmp_path: Path, start_redis: Callable[..., AbstractContextManager[RedisServer]]
) -> None:
    with start_redis() as server:
        processes = Processes(tmp_path / "semel.db", server.keys().plain_url, local=0)
        processes.cached()
        server.keys().said("CONFIG", "SET", "maxmemory", "1")
        processes.first.erase("k", operation="pay", reason="asked to")
        with pytest.raises(ResultNotKept):
            processes.second.run("k", lambda: "again", operation="pay", fingerprint=None)
        processes.close()


def _lost() -> str:
    message = "lost"
    raise OSError(message)
