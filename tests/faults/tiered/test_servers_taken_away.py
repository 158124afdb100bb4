"""Real servers taken away under load: without Redis no request fails, without SQL cached replays go on."""

from __future__ import annotations

import re

import pytest

from semel.engine import background
from semel.errors import StoreUnavailable
from tests.faults.crowd import Crowd, until
from tests.faults.tiered.pressing import OLD, Heard, pressed
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_no_request_fails_without_redis(redis_server: RedisServer, crowd: Crowd, heard: Heard, how: str) -> None:
    with pressed(crowd) as done:
        until(lambda: done["calls"] > 20, "calls with the cache")
        (redis_server.kill if how == "killed" else redis_server.freeze)()
        until(lambda: heard.kinds["cache_open"], "the cache to be left alone")
        before = done["calls"]
        until(lambda: done["calls"] > before + 20, "calls without the cache")
        (redis_server.start if how == "killed" else redis_server.thaw)()
        until(lambda: heard.kinds["cache_closed"], "the cache to be used again")
        hits = heard.kinds["cache_hit"]
        until(lambda: heard.kinds["cache_hit"] > hits + 20, "hits once it is back")


def test_cached_replays_go_on_without_sql(sql_server: PostgresqlServer, crowd: Crowd) -> None:
    sql_server.kill()
    with pytest.raises(StoreUnavailable):
        crowd.run("new without SQL")
    assert all(crowd.run(key).cache == "hit" for key in OLD)
    with pytest.raises(StoreUnavailable):
        crowd.run("another one")
    sql_server.start()
    until(lambda: runs(crowd, "new after all"), "the store to be used again")
    assert crowd.run("new after all").replayed


def test_cached_replays_go_on_while_sql_stands_still(sql_server: PostgresqlServer, crowd: Crowd) -> None:
    sql_server.freeze()
    try:
        waits = crowd._pool.submit(runs, crowd, "waits for SQL")
        assert all(crowd.run(key).cache == "hit" for key in OLD * 5)
        assert not waits.done() or not waits.result()
    finally:
        sql_server.thaw()
    until(lambda: runs(crowd, "new after all"), "the store to be used again")


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No note of which process this is, which is written a while after its first call."""
    monkeypatch.setattr(background, "REGISTER_AFTER", 3600.0)


@pytest.mark.usefixtures("unregistered")
def test_a_replay_from_redis_costs_sql_no_statement(sql_server: PostgresqlServer, crowd: Crowd) -> None:
    before = statements(sql_server)
    assert all(crowd.run(key).cache == "hit" for key in OLD * 10)
    assert statements(sql_server) == before


def test_many_who_miss_one_key_are_one_question_to_sql(
    redis_server: RedisServer, sql_server: PostgresqlServer, crowd: Crowd, heard: Heard
) -> None:
    redis_server.kill()
    until(lambda: crowd.run(OLD[0]).replayed and heard.kinds["cache_open"], "the cache to be left alone")
    before = statements(sql_server)
    calls = [crowd._pool.submit(crowd.run, OLD[1]) for _ in range(64)]
    assert all(call.result().replayed for call in calls)
    assert statements(sql_server) - before <= 32


def runs(crowd: Crowd, key: str) -> bool:
    """Whether a call succeeds."""
    try:
        crowd.run(key)
    except StoreUnavailable:
        return False
    return True


def statements(server: PostgresqlServer) -> int:
    """How many claims the server has executed; counts of replays are written some time later, many at a time."""
    assert server.statement_log is not None
    executed = re.split(r"LOG:  (?:execute [^:]*|statement): ", server.statement_log.read_text())[1:]
    return sum("replayed_us = " not in statement for statement in executed)
