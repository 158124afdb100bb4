"""How records are kept in Redis: names, expiry, and what else may be found under a key."""

from typing import Any

import pytest

from semel import Semel
from semel.core.key import Key
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Fail,
    Found,
    Granted,
    LapsedRecords,
    MarkLapsed,
    Page,
    Query,
    Read,
    Scan,
)
from semel.core.record import Failure, Step
from semel.errors import RecordUnreadable, UsageError
from semel.events import Consumer, Event
from semel.stores.redis import RedisStore
from tests.servers.redis import Keys
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import KEYS, Clock, claim, terms

pytestmark = pytest.mark.slow

OOPS = Failure("app.Oops", "oops")


def name(keys: Keys, key: Key = KEYS[0]) -> str:
    return f"{keys.prefix}:{key.operation}:{key.reference}"


@pytest.fixture
def real(keys: Keys, colour: type[Asker]) -> Any:
    """A store on the server's own clock."""
    asker = colour(RedisStore(keys.url), Clock())
    yield asker
    asker.close()


def test_a_record_is_one_key_steps_included(asker: Asker, keys: Keys) -> None:
    lease = asker.granted().lease
    asker.all([Checkpoint(lease, Step(0, "reserve", b"x"))])
    assert keys.names() == [name(keys).encode()]


def test_a_running_record_is_never_removed_by_the_server(real: Asker, keys: Keys) -> None:
    real.granted()
    assert keys.said("PTTL", name(keys)) == -1


@pytest.mark.parametrize(
    ("end", "expires"),
    [
        (lambda lease: Complete(lease, b"x"), True),
        (lambda lease: Fail(lease, "final", OOPS, doubtful=False), True),
        (lambda lease: Fail(lease, "retry", OOPS, doubtful=False), True),
        (lambda lease: Fail(lease, "doubt", OOPS, doubtful=True), False),
    ],
    ids=["complete", "final", "retry", "doubt"],
)
def test_only_what_is_settled_is_removed_by_the_server(real: Asker, keys: Keys, end: Any, expires: bool) -> None:
    real.all([end(real.granted().lease)])
    rest = keys.said("PTTL", name(keys))
    assert (3590_000 < rest <= 3600_000) if expires else rest == -1


def test_a_record_that_is_claimed_again_is_kept_again(real: Asker, keys: Keys) -> None:
    real.all([Fail(real.granted().lease, "retry", OOPS, doubtful=False)])
    real.one(claim(number=2), Granted)
    assert keys.said("PTTL", name(keys)) == -1


def test_expiry_is_compared_to_the_microsecond_and_not_left_to_the_server(real: Asker) -> None:
    lease = real.one(claim(of=terms(keep=0.000001)), Granted).lease
    real.all([Complete(lease, b"x")])
    again = real.one(claim(number=2), Granted)
    assert (again.record.attempts, again.record.outcome) == (1, None)


def test_scripts_that_the_server_has_forgotten_are_sent_in_full(asker: Asker, keys: Keys) -> None:
    asker.granted()
    keys.said("SCRIPT", "FLUSH")
    assert asker.record() is not None


def test_a_record_is_found_by_its_digest_alone(asker: Asker, keys: Keys, colour: type[Asker]) -> None:
    asker.granted()
    other = colour(RedisStore(keys.url, clock=asker.clock), asker.clock)
    try:
        assert other.record() == asker.record()
        other.all([AddReplays(KEYS[0].digest, 2)])
    finally:
        other.close()
    record = asker.record()
    assert record is not None
    assert record.replays == 2


def test_a_pattern_without_the_operation_works_too(keys: Keys, clock: Clock, colour: type[Asker]) -> None:
    asker = colour(RedisStore(f"{keys.plain_url}?pattern={keys.prefix}:{{digest}}", clock=clock), clock)
    try:
        asker.granted()
        assert keys.names() == [f"{keys.prefix}:{KEYS[0].reference}".encode()]
        assert len(asker.one(Scan(Query(operation="charge"), None, 10), Page).records) == 1
        assert asker.one(Scan(Query(operation="refund"), None, 10), Page).records == ()
    finally:
        asker.close()


@pytest.mark.parametrize("operation", ["{a}", "a*", "a:b", "ü", "%7B"])
def test_an_operation_of_any_spelling_is_claimed_read_and_listed(asker: Asker, operation: str) -> None:
    key = Key.of("k", operation=operation)
    asker.one(claim(key), Granted)
    asker.one(claim(Key.of("k", operation="another"), number=2), Granted)
    record = asker.one(Read(key.digest), Found).record
    assert record is not None
    assert asker.one(Scan(Query(operation=operation), None, 10), Page).records == (record,)


@pytest.mark.parametrize("words", [("SET", "x"), ("HSET", "field", "x"), ("HSET", "status", "asleep")])
def test_something_else_under_a_key_is_unreadable_and_stays(asker: Asker, keys: Keys, words: tuple[str, ...]) -> None:
    keys.said(words[0], name(keys), *words[1:])
    for operation in (claim(), Read(KEYS[0].digest, operation="charge")):
        (answer,) = asker.all([operation])
        assert isinstance(answer, RecordUnreadable), answer
    assert keys.said("TYPE", name(keys)) == (b"string" if words[0] == "SET" else b"hash")
    assert keys.said("HLEN", name(keys)) == 1 if words[0] == "HSET" else True


def test_what_is_unreadable_fails_no_neighbour(asker: Asker, keys: Keys) -> None:
    keys.said("SET", name(keys, KEYS[1]), "x")
    answers = asker.all([claim(KEYS[0]), claim(KEYS[1], number=2), claim(KEYS[2], number=3)])
    assert [type(answer) for answer in answers] == [Granted, RecordUnreadable, Granted]


def test_what_is_unreadable_keeps_nobody_from_a_listing(asker: Asker, keys: Keys) -> None:
    asker.granted()
    keys.said("SET", name(keys, KEYS[1]), "x")
    keys.said("HSET", name(keys, KEYS[2]), "status", "asleep", "created_us", "1")
    assert [record.key for record in asker.one(Scan(Query(), None, 10), Page).records] == [KEYS[0]]
    assert asker.one(Scan(Query(scope="tenant-1"), None, 10), Page).records == ()
    asker.one(MarkLapsed(10), LapsedRecords)


def test_a_store_whose_pattern_begins_alike_is_another(asker: Asker, keys: Keys, colour: type[Asker]) -> None:
    pattern = f"{keys.prefix}:inner:{{operation}}:{{digest}}"
    other = colour(RedisStore(f"{keys.plain_url}?pattern={pattern}", clock=asker.clock), asker.clock)
    try:
        other.granted()
    finally:
        other.close()
    assert asker.one(Scan(Query(), None, 10), Page).records == ()


def test_plans_of_several_kinds_go_in_one_round(asker: Asker) -> None:
    lease = asker.granted().lease
    store = asker.store
    plans = [
        store.plan([Complete(lease, b"x")], joined=False),
        store.plan([claim(KEYS[1], number=2)], joined=False),
        store.plan([Read(KEYS[2].digest)], joined=False),
    ]
    replies = asker.perform(*plans)
    assert [len(reply) for reply in replies if not isinstance(reply, Exception)] == [1, 1, 1]


def test_a_transaction_cannot_be_joined() -> None:
    store = RedisStore("redis://localhost")
    with pytest.raises(UsageError, match="cannot join a transaction"):
        store.join(object())
    with pytest.raises(UsageError, match="cannot join a transaction"):
        store.async_join(object())


def test_a_letter_that_is_unreadable_keeps_no_other_from_a_listing(keys: Keys) -> None:
    with Semel(keys.url) as semel:
        consumer = Consumer(semel, "billing", final_errors=(ValueError,))

        @consumer.on("t")
        def refuse(event: Event) -> None:
            raise ValueError(event.id)

        for id_ in ("e-1", "e-2", "e-3"):
            consumer.handle(Event(type="t", source="/s", id=id_, data=None))
        place = next(name for name in keys.names() if keys.said("TYPE", name) == b"hash" and b"letters" in name)
        (letter, *_) = keys.said("HKEYS", place)
        keys.said("HSET", place, letter, "of a newer release")
        assert len(list(consumer.dead_letters())) == 2
