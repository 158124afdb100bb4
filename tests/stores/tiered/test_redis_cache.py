"""The scripts of the cache: they answer as the model does, and what they cannot read is a miss."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest
from msgspec.structs import replace

from semel.core.record import Step
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheMiss,
    CacheOperation,
    CachePut,
    CachePutResult,
)
from semel_lab.simulate.models.cache import CacheTable
from tests.servers.redis import Keys, RedisServer
from tests.stores.tiered.kit import INSTALL_ID, Asked
from tests.unit.stores.operations import KEYS, SECOND, START
from tests.unit.stores.tiered.records import completed

pytestmark = pytest.mark.slow
SEEDS = range(400 if os.environ.get("SEMEL_EFFORT") == "full" else 30)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_are_answered_as_by_the_model(asked: Asked, keys: Keys, seed: int) -> None:
    keys.empty()
    random, table = Random(seed), CacheTable()
    for number in range(60):
        asked.now += random.choice([0, 1, 3 * SECOND, 20 * SECOND])
        operation = random_operation(random, asked.now, number)
        assert asked(operation) == asked.by_table(table, operation), f"operation {number}: {operation}"


def random_operation(random: Random, now: int, number: int) -> CacheOperation:
    place = random.randrange(2)
    match random.randrange(5):
        case 0 | 1:
            return CacheGet(KEYS[place], b"epoch %d" % (number % 4))
        case 2 | 3:
            until = now + random.choice([-1, 0, 5 * SECOND, 60 * SECOND])
            return CachePut(completed(KEYS[place]), b"epoch %d" % random.randrange(4), until, START)
        case _:
            return CacheInvalidate(KEYS[place].digest, KEYS[place].operation, random.choice([SECOND, 30 * SECOND]))


def test_a_record_comes_back_whole_but_for_its_steps(asked: Asked) -> None:
    record = replace(completed(KEYS[0]), steps=(Step(0, "reserve", b"x"),))
    asked(CacheGet(KEYS[0], b"e"))
    assert asked(CachePut(record, b"e", START + SECOND, START + 7)) == [CachePutResult(done=True)]
    assert asked(CacheGet(KEYS[0], b"f")) == [CacheHit(replace(record, steps=()), START + 7, SECOND)]


def test_a_list_is_one_round_trip(start_redis: Callable[..., AbstractContextManager[RedisServer]]) -> None:
    with start_redis() as server:  # its own: others would be counted too
        keys = server.keys()
        asked = Asked(keys)
        asked(*(CacheGet(key, b"e") for key in KEYS))  # the script is known from here on
        before = _commands(keys)
        assert len(asked(*(CacheGet(key, b"e") for key in KEYS))) == len(KEYS)
        assert _commands(keys) - before == len(KEYS)
        asked.close()


def _commands(keys: Keys) -> int:
    stats = keys.said("INFO", "commandstats").decode()
    line = next((line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x92\x01\x80"])
def test_an_entry_that_cannot_be_read_is_a_miss(asked: Asked, keys: Keys, body: bytes) -> None:
    keys.said("SET", _name(keys), b"1%016d" % (START + SECOND) + body)
    assert asked(CacheGet(KEYS[0], b"e")) == [CacheMiss()]


def test_an_entry_of_another_release_is_a_miss_and_is_left_alone(asked: Asked, keys: Keys) -> None:
    kept = b"2%016dsomething newer" % (START + SECOND)
    keys.said("SET", _name(keys), kept)
    assert asked(CacheGet(KEYS[0], b"e")) == [CacheMiss(b"", START)]
    assert keys.said("GET", _name(keys)) == kept


def test_a_key_that_is_no_entry_is_a_miss(asked: Asked, keys: Keys) -> None:
    keys.said("RPUSH", _name(keys), "a list")
    assert asked(CacheGet(KEYS[0], b"e")) == [CacheMiss()]
    assert not asked.gate.shut


def _name(keys: Keys) -> str:
    return f"{keys.prefix}:{KEYS[0].operation}:{(INSTALL_ID + KEYS[0].digest).hex()}"
