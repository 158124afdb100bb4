"""A cluster: commands find their nodes while slots move under load and while a primary is replaced."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta

import pytest
from redis.crc import key_slot

from semel import Policy, Semel
from semel.core.key import Key
from semel.core.operations import Found, Granted, Page, Query, Read, Running, Scan
from semel.errors import TryLater
from semel.stores.admin import DEFAULT_HORIZON
from semel.stores.redis import RedisStore
from tests.effort import FULL
from tests.servers.redis import RedisServer, said
from tests.servers.redis_cluster import RunningCluster, await_copy, is_primary
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import Clock, claim

pytestmark = pytest.mark.slow

Start = Callable[..., AbstractContextManager[RunningCluster]]
KEYS_UNDER_LOAD = 300 if FULL else 60  # a third of them is in the slots that move, of either number
MANY = [Key.of(f"o-{number}", operation="charge") for number in range(60)]


def slot(key: Key) -> int:
    return key_slot(f"semel:{key.operation}:{key.reference}".encode())


def ask(node: RedisServer, *words: object) -> object:
    return said(node.endpoint.url, *words)


def move(cluster: RunningCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move a slot as `redis-cli --cluster reshard` does, key by key."""
    begin_moving(slot, source, target)
    while keys := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
        assert isinstance(keys, list)
        ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
    for node in (target, source, *cluster.nodes):
        ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ask(target, "CLUSTER", "MYID"))


def begin_moving(slot: int, source: RedisServer, target: RedisServer) -> None:
    ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ask(source, "CLUSTER", "MYID"))
    ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ask(target, "CLUSTER", "MYID"))


def holder(cluster: RunningCluster, slot: int) -> RedisServer:
    return cluster.nodes[next(place for place in range(3) if slot < (place + 1) * 16_384 // 3)]


def test_a_list_is_answered_in_its_order_from_all_nodes(start_redis_cluster: Start, colour: type[Asker]) -> None:
    with start_redis_cluster() as cluster:
        asker = colour(RedisStore(cluster.url), Clock())
        try:
            answers = asker.all([claim(key, number=place) for place, key in enumerate(MANY)])
            assert [answer.record.key for answer in answers if isinstance(answer, Granted)] == MANY
            (page,) = asker.all([Scan(Query(), None, 1000)])
            assert isinstance(page, Page)
            assert {record.key for record in page.records} == set(MANY)
            assert all(len(ask(node, "KEYS", "*")) > 0 for node in cluster.nodes)  # type: ignore[arg-type]  # a list
        finally:
            asker.close()
        topics = Counter(
            finding.topic.split()[0] for finding in RedisStore(cluster.url).admin().examine(DEFAULT_HORIZON)
        )
        assert topics["version"] == topics["eviction"] == 3


def test_a_slot_that_has_moved_is_followed(start_redis_cluster: Start, colour: type[Asker]) -> None:
    with start_redis_cluster() as cluster:
        asker = colour(RedisStore(cluster.url), Clock())
        try:
            key = MANY[0]
            asker.one(claim(key), Granted)
            source = holder(cluster, slot(key))
            target = next(node for node in cluster.nodes if node is not source)
            move(cluster, slot(key), source, target)
            assert asker.one(Read(key.digest), Found).record is not None
        finally:
            asker.close()


def test_a_slot_that_is_moving_is_asked_for_on_both_sides(start_redis_cluster: Start, colour: type[Asker]) -> None:
    with start_redis_cluster() as cluster:
        asker = colour(RedisStore(cluster.url), Clock())
        try:
            key = MANY[0]
            source = holder(cluster, slot(key))
            target = next(node for node in cluster.nodes if node is not source)
            begin_moving(slot(key), source, target)
            asker.one(claim(key), Granted)  # absent at the source, so the target decides, and knows no script yet
            assert ask(target, "CLUSTER", "COUNTKEYSINSLOT", slot(key)) == 1
            assert isinstance(asker.all([claim(key, number=2)])[0], Running)
        finally:
            asker.close()


def test_a_reshard_under_load_runs_nothing_twice(start_redis_cluster: Start) -> None:
    ran: Counter[str] = Counter()
    moved = threading.Event()

    def call(semel: Semel, key: str) -> None:
        def handler() -> str:
            ran[key] += 1
            return key

        assert semel.run(key, handler, operation="charge", fingerprint=None).value == key

    def load(cluster: RunningCluster) -> None:
        with Semel(cluster.url) as semel:
            number = 0
            while not moved.is_set() or number < 200:
                call(semel, f"o-{number % KEYS_UNDER_LOAD}")
                number += 1

    with start_redis_cluster() as cluster:
        workers = [threading.Thread(target=load, args=(cluster,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        source, target = cluster.nodes[0], cluster.nodes[1]
        for number in sorted({slot(Key.of(f"o-{number}", operation="charge")) for number in range(KEYS_UNDER_LOAD)}):
            if holder(cluster, number) is source:
                move(cluster, number, source, target)
        moved.set()
        for worker in workers:
            worker.join()
        with Semel(cluster.url) as semel:
            for key in list(ran):
                call(semel, key)
    assert set(ran.values()) == {1}


def test_a_primary_that_is_replaced_is_found(start_redis_cluster: Start) -> None:
    with start_redis_cluster(replicas=1) as cluster, Semel(cluster.url) as semel:
        policy = Policy(lease_for=timedelta(seconds=30))
        key = next(key for key in MANY if holder(cluster, slot(key)) is cluster.nodes[0])
        semel.run(key.value, lambda: "first", operation="charge", fingerprint=None, policy=policy)
        await_copy(cluster.nodes[0], cluster.nodes[3])
        cluster.nodes[0].kill()
        while not is_primary(cluster.nodes[3]):
            with suppress(TryLater):  # refused meanwhile, and nothing ran
                semel.run(key.value, lambda: "second", operation="charge", fingerprint=None, policy=policy)
        value = None
        while value is None:
            with suppress(TryLater):
                value = semel.run(
                    key.value, lambda: "second", operation="charge", fingerprint=None, policy=policy
                ).value
        assert value == "first"
