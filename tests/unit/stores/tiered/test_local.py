"""The tier in the process: bounded in number, bytes and time, and closed to what was on its way when it was dropped."""

from msgspec.structs import replace

from semel.core.key import Key
from semel.core.record import About, StoredRecord
from semel.stores.cache.logic import LruCache, LruEntry
from tests.unit.stores.tiered.records import completed

KEYS = [Key.of(f"k-{number}", operation="charge") for number in range(5)]


def kept(number: int, *, until: float = 10.0, outcome: bytes = b"x") -> LruEntry:
    record: StoredRecord = replace(completed(KEYS[number]), outcome=outcome)
    return LruEntry(record, 0, until)


def test_what_is_kept_is_given_until_its_end() -> None:
    local = LruCache(3, 10_000)
    local.keep(kept(0), 0)
    assert local.get(KEYS[0].digest, 9.999) is not None
    assert local.get(KEYS[0].digest, 10.0) is None
    assert len(local) == 0


def test_the_least_recently_used_goes_first() -> None:
    local = LruCache(2, 10_000)
    local.keep(kept(0), 0)
    local.keep(kept(1), 0)
    local.get(KEYS[0].digest, 0)
    local.keep(kept(2), 0)
    assert [local.get(key.digest, 0) is not None for key in KEYS[:3]] == [True, False, True]


def test_bytes_are_bounded() -> None:
    local = LruCache(100, 5_000)
    for number in range(5):
        local.keep(kept(number, outcome=b"x" * 1_000), 0)
    assert len(local) == 2


def test_what_a_record_is_about_takes_bytes_too() -> None:
    local = LruCache(100, 5_000)
    large = replace(completed(KEYS[0]), about=About(tags={"note": "x" * 6_000}))
    local.keep(LruEntry(large, 0, 10.0), 0)
    assert len(local) == 0


def test_one_that_is_too_large_pushes_nobody_out() -> None:
    local = LruCache(100, 5_000)
    local.keep(kept(0), 0)
    local.keep(kept(1, outcome=b"x" * 6_000), 0)
    assert [local.get(key.digest, 0) is not None for key in KEYS[:2]] == [True, False]


def test_what_was_on_its_way_when_something_was_dropped_is_not_kept() -> None:
    local = LruCache(3, 10_000)
    before = local.generation
    local.drop(KEYS[0].digest)
    local.keep(kept(0), before)
    assert local.get(KEYS[0].digest, 0) is None


def test_what_is_dropped_is_gone() -> None:
    local = LruCache(3, 10_000)
    local.keep(kept(0), 0)
    local.drop(KEYS[0].digest)
    assert local.get(KEYS[0].digest, 0) is None
