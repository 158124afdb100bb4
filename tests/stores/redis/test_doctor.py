"""Looking at a Redis server, and what settings mean."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest

from semel.stores.admin import DEFAULT_HORIZON, Finding, promises
from semel.stores.redis import RedisStore
from semel.stores.redis.admin import findings_of
from semel.stores.redis.settings import Settings
from tests.servers.redis import Keys, RedisServer
from tests.unit.stores.operations import claim

FINE = {
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "appendfsync": "always",
    "role": "master",
    "connected_slaves": "0",
}
ONE = Settings.of("redis://db")
LIMITED = {"maxmemory": "1000", "maxmemory_human": "1K"}


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.topic: finding.verdict for finding in findings if finding.verdict != "ok"}


def test_a_server_that_keeps_everything_is_fine() -> None:
    findings = findings_of(FINE, ONE)
    assert verdicts(findings) == {}
    held = {row.boundary: row.holds for row in promises(findings, best_effort=True)}
    assert held["outcome per key"]
    assert held["Redis as the only store"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({**LIMITED, "maxmemory_policy": "allkeys-lru"}, {"eviction": "fix"}),
        ({"maxmemory_policy": "allkeys-lru"}, {"eviction": "note"}),
        ({"aof_enabled": "0"}, {"appendonly": "note"}),
        ({"appendfsync": "everysec"}, {"appendfsync": "note"}),
        ({"connected_slaves": "2"}, {"role": "note"}),
        ({"role": "slave"}, {"role": "fix"}),
    ],
    ids=["evicts", "would evict", "not appended", "synced late", "replicas", "replica"],
)
def test_what_forgets_is_told(found: dict[str, str], expected: dict[str, str]) -> None:
    assert verdicts(findings_of({**FINE, **found}, ONE)) == expected


@pytest.mark.parametrize(
    "found", [{"aof_enabled": "0"}, {"appendfsync": "everysec"}, {"connected_slaves": "1"}], ids=str
)
def test_what_forgets_leaves_the_best_effort_alone(found: dict[str, str]) -> None:
    held = {row.boundary: row.holds for row in promises(findings_of({**FINE, **found}, ONE), best_effort=True)}
    assert held["outcome per key"] is False
    assert held["Redis as the only store"] is True


def test_eviction_that_is_allowed_is_still_told() -> None:
    allowed = Settings.of("redis://db?evicting=allowed")
    evicting = {**FINE, **LIMITED, "maxmemory_policy": "allkeys-lru"}
    assert verdicts(findings_of(evicting, allowed)) == {"eviction": "note"}


def test_servers_behind_sentinels_fail_over() -> None:
    assert verdicts(findings_of(FINE, Settings.of("redis+sentinel://s/main"))) == {"role": "note"}


def test_a_store_that_is_not_redis_has_no_row_for_it() -> None:
    assert [row.holds for row in promises([])][-1] is None


@pytest.mark.slow
def test_a_real_server_answers_every_question(redis_keys: Keys) -> None:
    redis_keys.empty()
    store = RedisStore(redis_keys.url)
    driver = store.driver()
    driver.perform([store.plan([claim()], joined=False)])
    driver.close()
    findings = {finding.topic: finding for finding in store.admin().examine(timedelta(minutes=30))}
    assert {"version", "eviction", "appendonly", "appendfsync", "role", "clock", "within", "keep_for"} <= set(findings)
    assert findings["in doubt"].found == "0"
    assert "1 h (the shortest there is)" in findings["keep_for"].found


@pytest.mark.slow
def test_a_server_that_semel_refuses_can_still_be_looked_at(
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
) -> None:
    with start_redis(settings={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        findings = RedisStore(server.endpoint.url).admin().examine(DEFAULT_HORIZON)
    assert verdicts(findings)["eviction"] == "fix"
