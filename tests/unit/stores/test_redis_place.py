"""What a place remembers of the keys it was asked for."""

from __future__ import annotations

from semel.core.key import Key
from semel.stores.redis.key_names import _MOST, RedisContext
from semel.stores.redis.settings import DEFAULT, Pattern, Settings


def place() -> RedisContext:
    return RedisContext(Settings.of("redis://localhost"), Pattern(DEFAULT))


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_the_way_to_a_record_is_known_by_its_digest_once_its_key_was_asked_for() -> None:
    here = place()
    key = Key.of("o-1", operation="pay")
    assert here.known_key(key.digest) is None
    assert here.known_key(key.digest, "pay") == here.key(key)
    assert here.known_key(key.digest) == here.key(key)


def test_the_ways_learnt_last_are_remembered_and_the_first_are_forgotten() -> None:
    here = place()
    for number in range(3 * _MOST):
        here.remember(digest(number), f"key-{number}")
    remembered = [number for number in range(3 * _MOST) if here.known_key(digest(number)) is not None]
    assert remembered == list(range(_MOST, 3 * _MOST))
    assert here.known_key(digest(3 * _MOST - 1)) == f"key-{3 * _MOST - 1}"
