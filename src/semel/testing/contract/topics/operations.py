"""Operations without an engine: what a store answers to single ones, lists and repetitions; bad input is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from semel.core import codec
from semel.core.codec import PlainAdapter
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Claim,
    Complete,
    CountFailure,
    Erase,
    Fail,
    Found,
    Granted,
    InDoubtAnswer,
    LapsedRecord,
    LapsedRecords,
    MarkLapsed,
    Operation,
    Page,
    Purge,
    Query,
    Read,
    Recorded,
    Renew,
    Renewed,
    Reopen,
    Replay,
    Resolve,
    Resolved,
    Reused,
    Running,
    Scan,
    SweepCount,
    Terms,
)
from semel.core.policy import Doubt, Policy
from semel.core.record import Failure, Lease, Status, Step, StoredRecord
from semel.errors import KeyInvalid, KeyMissing, PolicyInvalid, UsageError
from semel.stores.memory import Table
from semel.testing.contract.suite import Contract, only_by_run
from semel.testing.contract.topics.doubts import PAIRS
from semel.testing.contract.world import World

SECOND = 1_000_000
BAD_KEYS: list[tuple[Any, type[UsageError]]] = [
    (None, KeyMissing),
    ("", KeyInvalid),
    ((), KeyInvalid),
    (["a"], KeyInvalid),
    (object(), KeyInvalid),
    ("x" * 256, KeyInvalid),
    ("é" * 128, KeyInvalid),
    ("line\nbreak", KeyInvalid),
    ("nul\x00", KeyInvalid),
    ("\ud800", KeyInvalid),
    (("a", ["b"]), KeyInvalid),
    (("a", object()), KeyInvalid),
    ((float("nan"),), KeyInvalid),
]
# A decorated function takes such an argument as a key, or scope, of one part; and it has a name of its own.
BAD_KEYS_OF_RUN: list[Any] = [1, 1.5, b"bytes"]
BAD_SETTINGS_OF_RUN: dict[str, dict[str, Any]] = {
    "no operation": {"operation": None},
    "scope of another type": {"scope": 7},
}
BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "empty operation": {"operation": ""},
    "operation of another type": {"operation": 7},
    "long operation": {"operation": "x" * 256},
    "no scope": {"scope": None},
    "empty scope": {"scope": ""},
    "about something unknown": {"about": {"colour": "red"}},
    "about of another type": {"about": {"subject": 7}},
    "tag of another type": {"about": {"tags": {"till": 7}}},
    "policy as a dictionary": {"policy": {"keep_for": 1}},
    "policy as a word": {"policy": "hold"},
    "fingerprint of an object": {"fingerprint": object()},
    "fingerprint of no number": {"fingerprint": {"x": float("nan")}},
    "result that cannot be replayed": {"returns": Callable[[], int]},
}
BAD_POLICIES: list[dict[str, Any]] = [
    {"keep_for": timedelta(0)},
    {"keep_for": timedelta(seconds=-1)},
    {"keep_for": "an hour"},
    {"keep_for": timedelta(days=365 * 101)},
    {"lease_for": timedelta(0)},
    {"lease_for": timedelta(seconds=-30)},
    {"max_runtime": timedelta(0)},
    {"wait_for": timedelta(seconds=-1)},
    {"reconcile_after": timedelta(seconds=-1)},
    {"when_running": "queue"},
    {"in_doubt": "ignore"},
    {"in_doubt": "reconcile"},
    {"in_doubt": "reconcile", "reconcile": "hook"},
    {"reconcile": print},
    {"store_down": "retry"},
    {"max_attempts": 0},
    {"max_attempts": True},
    {"max_attempts": 1.5},
    {"max_result": 0},
    {"redact": "card.number"},
    {"redact": ("card..number",)},
    {"final_errors": ("ValueError",)},
    {"retry_errors": (int,)},
    {"final_errors": (UsageError,)},
]


class InputContract(Contract):
    """Nothing runs and nothing is stored."""

    @pytest.mark.parametrize(("key", "kind"), BAD_KEYS, ids=lambda part: repr(part).split(" object at")[0][:20])
    async def test_a_bad_key_is_refused(self, world: World, key: Any, kind: type[UsageError]) -> None:
        client = world.client()
        error = await client.error(key)
        assert type(error) is kind
        assert world.ran == await client.keys() == []

    @only_by_run
    @pytest.mark.parametrize("key", BAD_KEYS_OF_RUN, ids=repr)
    async def test_a_bare_value_is_no_key_of_run(self, world: World, key: Any) -> None:
        client = world.client()
        error = await client.error(key)
        assert type(error) is KeyInvalid
        assert "othing ran" in str(error)
        assert world.ran == await client.keys() == []

    @only_by_run
    @pytest.mark.parametrize("settings", BAD_SETTINGS_OF_RUN.values(), ids=BAD_SETTINGS_OF_RUN.keys())
    async def test_a_bad_setting_of_run_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        client = world.client()
        error = await client.error(**settings)
        assert isinstance(error, UsageError)
        assert world.ran == await client.keys() == []

    @pytest.mark.parametrize("settings", BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
    async def test_a_bad_setting_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        client = world.client()
        error = await client.error(**settings)
        assert isinstance(error, UsageError)
        assert world.ran == await client.keys() == []

    @pytest.mark.parametrize("settings", BAD_POLICIES, ids=str)
    async def test_a_bad_policy_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        client = world.client()
        with pytest.raises(PolicyInvalid) as caught:
            client.once(key="order", **settings)(world.returning("value"))
        assert "nothing ran" in caught.value.message

    async def test_a_key_of_the_longest_length_is_accepted(self, world: World) -> None:
        assert await world.client().value("x" * 255) == "value"

    async def test_every_refusal_says_that_nothing_ran(self, world: World) -> None:
        client = world.client()
        errors = [await client.error(key) for key, _ in BAD_KEYS]
        assert [error for error in errors if "othing ran" not in str(error)] == []

    @only_by_run
    async def test_a_handler_that_cannot_be_called_is_refused(self, world: World) -> None:
        engine = world.client().engine
        call = world.start(lambda: engine.run("k", "handler", operation="pay", fingerprint=None))
        await world.ended(call)
        assert isinstance(call.error, UsageError)

    async def test_reading_a_key_needs_its_operation(self, world: World) -> None:
        with pytest.raises(UsageError):
            await world.client().find("k", operation=None)


VALUE = codec.encode("value", PlainAdapter(), 1000)
OOPS = Failure("builtins.OSError", "oops")
HOLD = Policy(in_doubt="hold")


class OperationContract(Contract, calls=False):
    """Answers of claims, lists, and resending."""

    async def test_a_fresh_claim_is_granted_with_its_own_nonce(self, world: World) -> None:
        claim = world.claim()
        (answer,) = await world.perform(claim)
        assert isinstance(answer, Granted)
        assert (answer.in_doubt, answer.reconcile) == (False, False)
        assert (answer.lease.nonce, answer.lease.fence) == (claim.nonce, 1)
        assert answer.lease.until == world.clock.store_clock() + claim.terms.lease_us

    async def test_the_record_granted_is_the_record_stored(self, world: World) -> None:
        (answer,) = await world.perform(world.claim())
        assert isinstance(answer, Granted)
        assert answer.record == await world.stored()

    async def test_a_claim_sent_again_answers_as_the_first_time(self, world: World) -> None:
        claim = world.claim()
        (first,) = await world.perform(claim)
        world.clock.advance(1)
        (second,) = await world.perform(claim)
        assert second == first

    async def test_a_take_over_sent_again_answers_as_the_first_time(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        claim = world.claim()
        (first,) = await world.perform(claim)
        (second,) = await world.perform(claim)
        assert isinstance(first, Granted)
        assert first.in_doubt
        assert second == first

    async def test_each_answer_of_a_claim(self, world: World) -> None:
        await world.perform(Complete(await world.crash("completed"), VALUE))
        await world.crash("running")
        await world.perform(Fail(await world.crash("held", policy=HOLD), "doubt", OOPS, doubtful=True))
        claims = [
            world.claim("fresh"),
            world.claim("completed"),
            world.claim("running"),
            world.claim("completed", asked="other"),
            world.claim("held"),
        ]
        answers = await world.perform(*claims)
        assert [type(answer) for answer in answers] == [Granted, Replay, Running, Reused, InDoubtAnswer]

    async def test_answers_come_in_the_order_of_the_list(self, world: World) -> None:
        keys = [f"k{number:02}" for number in range(40)]
        answers = await world.perform(*[world.claim(key) for key in reversed(keys)])
        assert [_granted_key(answer) for answer in answers] == keys[::-1]

    async def test_one_of_two_claims_for_a_key_in_one_list_is_granted(self, world: World) -> None:
        answers = await world.perform(*[world.claim() for _ in range(5)])
        assert sorted(type(answer).__name__ for answer in answers) == ["Granted"] + ["Running"] * 4

    async def test_two_requests_for_a_key_in_one_list_are_told_apart(self, world: World) -> None:
        answers = await world.perform(world.claim(asked=1), world.claim(asked=2))
        assert [type(answer) for answer in answers] == [Granted, Reused]

    async def test_the_same_claim_twice_in_one_list_is_granted_twice(self, world: World) -> None:
        claim = world.claim()
        first, second = await world.perform(claim, claim)
        assert isinstance(first, Granted)
        assert second == first

    async def test_one_of_two_take_overs_in_one_list_is_granted(self, world: World) -> None:
        await world.crash()
        world.clock.advance(60)
        answers = await world.perform(world.claim(), world.claim())
        assert [type(answer) for answer in answers] == [Granted, Running]

    async def test_a_take_over_compares_the_fingerprint_with_the_record_as_it_is_then(self, world: World) -> None:
        # The first claim of the list is over at once; a look before it was made saw nothing at all.
        answers = await world.perform(_lapsing(world, "rerun", asked=1), world.claim(asked=2))
        assert [type(answer) for answer in answers] == [Granted, Reused]

    @pytest.mark.parametrize(("owner", "claimer", "outcome"), PAIRS)
    async def test_a_take_over_compares_the_policies_with_the_record_as_it_is_then(
        self, world: World, owner: Doubt, claimer: Doubt, outcome: str
    ) -> None:
        _, answer = await world.perform(_lapsing(world, owner), _lapsing(world, claimer))
        match outcome:
            case "held":
                assert isinstance(answer, InDoubtAnswer)
            case _:
                assert isinstance(answer, Granted)
                assert (answer.in_doubt, answer.reconcile) == (True, outcome == "asked")

    async def test_a_failure_that_leaves_a_doubt_is_claimed_by_the_rules_of_doubts(self, world: World) -> None:
        await world.perform(Fail(await world.crash(), "retry", OOPS, doubtful=True))
        (held,) = await world.perform(world.claim(policy=HOLD))
        (granted,) = await world.perform(world.claim())
        assert isinstance(held, InDoubtAnswer)
        assert isinstance(granted, Granted)
        assert granted.in_doubt

    async def test_a_failure_that_leaves_no_doubt_is_claimed_by_anybody(self, world: World) -> None:
        await world.perform(Fail(await world.crash(policy=HOLD), "retry", OOPS, doubtful=False))
        (granted,) = await world.perform(world.claim())
        assert isinstance(granted, Granted)
        assert not granted.in_doubt

    async def test_a_renewal_counts_from_now(self, world: World) -> None:
        lease = await world.crash()
        world.clock.advance(20)
        (answer,) = await world.perform(Renew(lease, 30_000_000))
        assert answer == Renewed(world.clock.store_clock() + 30_000_000)
        record = await world.stored()
        assert record is not None
        assert record.lease_us == world.clock.store_clock() + 30_000_000

    @pytest.mark.parametrize(
        "write",
        [
            lambda lease: Complete(lease, VALUE),
            lambda lease: Fail(lease, "final", OOPS, doubtful=False),
            lambda lease: Fail(lease, "retry", OOPS, doubtful=False),
            lambda lease: Fail(lease, "doubt", OOPS, doubtful=True),
            lambda lease: Checkpoint(lease, Step(0, "a", VALUE)),
        ],
        ids=["complete", "final", "retry", "doubt", "checkpoint"],
    )
    async def test_a_write_sent_again_changes_nothing_more(self, world: World, write: Any) -> None:
        operation = write(await world.crash())
        assert isinstance((await world.perform(operation))[0], Recorded)
        before = await world.stored()
        world.clock.advance(1)
        assert isinstance((await world.perform(operation))[0], Recorded)
        assert await world.stored() == before

    async def test_a_write_sent_twice_in_one_list_is_one(self, world: World) -> None:
        lease = await world.crash()
        answers = await world.perform(*[Checkpoint(lease, Step(0, "a", VALUE))] * 2)
        assert [type(answer) for answer in answers] == [Recorded, Recorded]
        record = await world.stored()
        assert record is not None
        assert len(record.steps) == 1

    async def test_a_settled_attempt_cannot_be_settled_otherwise(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        before = await world.stored()
        await world.perform(Fail(lease, "final", OOPS, doubtful=False))
        assert await world.stored() == before

    @pytest.mark.parametrize("change", [{"fence": 2}, {"nonce": b"\x00" * 16}], ids=["fence", "nonce"])
    async def test_fence_and_nonce_both_have_to_fit(self, world: World, change: dict[str, Any]) -> None:
        lease: Lease = msgspec.structs.replace(await world.crash(), **change)
        before = await world.stored()
        await world.perform(Complete(lease, VALUE))
        assert await world.stored() == before

    async def test_a_resolution_sent_again_answers_as_the_first_time(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(60)
        resolve = Resolve(lease.key.digest, b"n" * 16, Status.CANCELLED, None, "note")
        (first,) = await world.perform(resolve)
        world.clock.advance(1)
        (second,) = await world.perform(resolve)
        assert isinstance(first, Resolved)
        assert second == first

    async def test_a_resolution_raises_the_fence(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(60)
        (answer,) = await world.perform(Resolve(lease.key.digest, b"n" * 16, Status.FAILED, None, "note"))
        assert isinstance(answer, Resolved)
        assert answer.record.fence > lease.fence

    async def test_a_read_tells_the_time_of_the_store(self, world: World) -> None:
        claim = world.claim()
        (answer,) = await world.perform(Read(claim.key.digest))
        assert answer == Found(None, world.clock.store_clock())

    async def test_a_list_of_reads_answers_each(self, world: World) -> None:
        await world.crash("a")
        await world.crash("c")
        digests = [world.claim(key).key.digest for key in ("a", "b", "c", "a")]
        answers = await world.perform(*[Read(digest) for digest in digests])
        assert [_found_key(answer) for answer in answers] == ["a", None, "c", "a"]

    async def test_a_scan_stops_at_its_limit_and_says_where(self, world: World) -> None:
        await world.perform(*[world.claim(f"k{number}") for number in range(5)])
        (first,) = await world.perform(Scan(Query(), None, 3))
        assert isinstance(first, Page)
        (second,) = await world.perform(Scan(Query(), first.cursor, 3))
        assert isinstance(second, Page)
        assert len({record.key.value for record in (*first.records, *second.records)}) == 5
        assert second.cursor is None

    async def test_purge_and_lapse_stop_at_their_limit(self, world: World) -> None:
        await world.perform(*[world.claim(f"k{number}") for number in range(5)])
        world.clock.advance(60)
        marked = [answer.count for _ in range(3) for answer in await world.perform(MarkLapsed(3))]  # type: ignore[union-attr]  # it gives records
        assert marked == [3, 2, 0]
        assert await world.perform(Purge(3)) == [SweepCount(0)]

    async def test_marking_lapsed_leases_tells_which_and_how_old_they_are(self, world: World) -> None:
        first = await world.crash("a")
        world.clock.advance(5)
        second = await world.crash("b")
        world.clock.advance(60)
        expected = sorted(
            LapsedRecord(lease.key.digest, lease.key.operation, age * SECOND)
            for lease, age in ((first, 65), (second, 60))
        )
        assert await world.perform(MarkLapsed(10)) == [LapsedRecords(tuple(expected))]
        assert await world.perform(MarkLapsed(10)) == [LapsedRecords(())]

    async def test_a_lease_that_was_renewed_for_long_is_marked_when_it_lapses(self, world: World) -> None:
        lease = await world.crash("long")
        for number in range(6):
            world.clock.advance(10)
            await world.perform(Renew(lease, 30 * SECOND))
            await world.crash(f"short-{number}")
            world.clock.advance(10 * 60)
            await world.perform(Renew(lease, 3600 * SECOND))
            (answer,) = await world.perform(MarkLapsed(10))
            assert [record.digest for record in answer.records] == [world.claim(f"short-{number}").key.digest]  # type: ignore[union-attr]  # as above
        world.clock.advance(2 * 3600)
        (answer,) = await world.perform(MarkLapsed(10))
        assert [record.digest for record in answer.records] == [lease.key.digest]  # type: ignore[union-attr]  # as above

    async def test_an_old_record_that_was_claimed_again_is_marked_when_it_lapses(self, world: World) -> None:
        lease = await world.crash("old")
        await world.perform(Fail(lease, "retry", Failure("E", "nothing happened"), doubtful=False))
        world.clock.advance(3600)
        assert await world.perform(MarkLapsed(10)) == [LapsedRecords(())]
        await world.crash("old")
        world.clock.advance(60)
        expected = LapsedRecord(lease.key.digest, lease.key.operation, 60 * SECOND)
        assert await world.perform(MarkLapsed(10)) == [LapsedRecords((expected,))]

    async def test_a_tally_adds_up(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        await world.perform(AddReplays(lease.key.digest, 2), AddReplays(lease.key.digest, 3))
        record = await world.stored()
        assert record is not None
        assert (record.replays, record.replayed_us) == (5, world.clock.store_clock())

    async def test_a_tally_of_a_record_that_is_gone_makes_none(self, world: World) -> None:
        await world.perform(AddReplays(world.claim().key.digest, 2))
        assert await world.stored() is None


def _lapsing(world: World, word: Doubt, asked: Any = None) -> Claim:
    """A claim whose lease is over in the instant it is granted, and that may be asked about at once."""
    claim = world.claim(asked=asked)
    terms = Terms(lease_us=0, keep_us=claim.terms.keep_us, in_doubt=word, reconcile_after_us=0)
    return msgspec.structs.replace(claim, terms=terms)


def _granted_key(answer: Any) -> str:
    assert isinstance(answer, Granted)
    return answer.record.key.value


def _found_key(answer: Any) -> str | None:
    assert isinstance(answer, Found)
    return None if answer.record is None else answer.record.key.value


KEEP = 20
POLICY = Policy(keep_for=timedelta(seconds=KEEP))
STEP = Step(0, "reserve", VALUE)


class Case(NamedTuple):
    """An operation on a claimed key, what is done to the key before it, and whether it settles the record."""

    operation: Callable[[World, Lease], Operation]
    before: Callable[[Lease], Operation] | None = None
    settles: bool = False


def _claim(world: World, lease: Lease) -> Claim:
    return replace(world.claim(policy=POLICY), key=lease.key)


def _final(lease: Lease) -> Fail:
    return Fail(lease, "final", OOPS, doubtful=False)


def _retry(lease: Lease) -> Fail:
    return Fail(lease, "retry", OOPS, doubtful=False)


def _doubt(lease: Lease) -> Fail:
    return Fail(lease, "doubt", OOPS, doubtful=True)


def _complete(lease: Lease) -> Complete:
    return Complete(lease, VALUE)


def _resolve(status: Status, outcome: bytes | None) -> Callable[[World, Lease], Resolve]:
    # One of the three statuses that a decision can have.
    return lambda _world, lease: Resolve(lease.key.digest, b"n" * 16, status, outcome, "looked")  # type: ignore[arg-type]


def _reopen(_world: World, lease: Lease) -> Reopen:
    return Reopen(lease.key.digest, b"n" * 16, lease.nonce, "look again")


def _count(world: World, lease: Lease) -> CountFailure:
    claim = _claim(world, lease)
    return CountFailure(lease.key, claim.fingerprint, b"n" * 16, OOPS, claim.terms, claim.about, max_attempts=3)


CASES: dict[str, Case] = {
    "renew": Case(lambda _world, lease: Renew(lease, 30_000_000)),
    "complete": Case(lambda _world, lease: _complete(lease), settles=True),
    "complete after a step": Case(
        lambda _world, lease: _complete(lease), before=lambda lease: Checkpoint(lease, STEP), settles=True
    ),
    "fail for good": Case(lambda _world, lease: _final(lease), settles=True),
    "fail and retry": Case(lambda _world, lease: _retry(lease), settles=True),
    "fail in doubt": Case(lambda _world, lease: _doubt(lease)),
    "give back": Case(lambda _world, lease: replace(_retry(lease), started=False), settles=True),
    "checkpoint": Case(lambda _world, lease: Checkpoint(lease, STEP)),
    "claim what runs": Case(_claim, before=lambda lease: Renew(lease, 100_000_000)),
    "claim what lapsed": Case(_claim),
    "claim what failed": Case(_claim, before=_retry),
    "claim what is in doubt": Case(_claim, before=_doubt),
    "claim what is completed": Case(_claim, before=_complete),
    "resolve as happened": Case(_resolve(Status.COMPLETED, VALUE), before=_doubt, settles=True),
    "resolve as not happened": Case(_resolve(Status.FAILED, None), before=_doubt, settles=True),
    "resolve as cancelled": Case(_resolve(Status.CANCELLED, None), before=_doubt, settles=True),
    "resolve as failed": Case(
        lambda world, lease: replace(_resolve(Status.FAILED, None)(world, lease), error=OOPS),
        before=_doubt,
        settles=True,
    ),
    "resolve what runs by force": Case(
        lambda world, lease: replace(_resolve(Status.CANCELLED, None)(world, lease), force=True),
        before=lambda lease: Renew(lease, 100_000_000),
        settles=True,
    ),
    "reopen what failed": Case(_reopen, before=_final, settles=True),
    "reopen what is completed": Case(_reopen, before=_complete),
    "count a failure of what may be tried again": Case(_count, before=_retry, settles=True),
    "count a failure of what runs": Case(_count, before=lambda lease: Renew(lease, 100_000_000)),
    "count a failure of what is completed": Case(_count, before=_complete),
    "erase": Case(lambda _world, lease: Erase(lease.key.digest, "note"), before=_complete),
    "tally": Case(lambda _world, lease: AddReplays(lease.key.digest, 3), before=_complete),
    "read": Case(lambda _world, lease: Read(lease.key.digest, with_steps=True), before=_complete),
}
SETTLING = {name: case for name, case in CASES.items() if case.settles}

of_each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
of_each_settling = pytest.mark.parametrize("case", SETTLING.values(), ids=SETTLING.keys())
alone_and_several = pytest.mark.parametrize("count", [1, 3], ids=["alone", "in a list"])


class ListContract(Contract, calls=False):
    """What an operation does to its record does not depend on how many travel with it."""

    @of_each_case
    @alone_and_several
    async def test_a_list_does_to_each_record_what_the_rules_say(self, world: World, case: Case, count: int) -> None:
        leases = await _claimed(world, case, count, 3 * KEEP)
        before = await _records(world, leases)
        operations = [case.operation(world, lease) for lease in leases]
        now = world.clock.store_clock()
        answers = await world.perform(*operations)
        after = await _records(world, leases)
        for place, operation in enumerate(operations):
            expected, left = _by_the_rules(before[place], operation, now)
            assert type(answers[place]) is type(expected), f"{place + 1} of {count}: {answers[place]!r}"
            assert after[place] == left, f"{place + 1} of {count}"

    @of_each_settling
    @alone_and_several
    async def test_an_outcome_after_a_run_longer_than_keep_for_is_kept_for_its_full_time(
        self, world: World, case: Case, count: int
    ) -> None:
        leases = await _claimed(world, case, count, 3 * KEEP)
        await world.perform(*[case.operation(world, lease) for lease in leases])
        full = world.clock.store_clock() + KEEP * 1_000_000
        kept = [record.expires_us for record in await _records(world, leases)]
        assert kept == [full] * count

    @of_each_settling
    @alone_and_several
    async def test_an_outcome_after_a_short_run_expires_as_the_claim_said(
        self, world: World, case: Case, count: int
    ) -> None:
        said = world.clock.store_clock() + KEEP * 1_000_000
        leases = await _claimed(world, case, count, 1)
        await world.perform(*[case.operation(world, lease) for lease in leases])
        kept = [record.expires_us for record in await _records(world, leases)]
        assert kept == [said] * count

    @alone_and_several
    async def test_renewed_leases_last_their_full_time_after_a_run_longer_than_keep_for(
        self, world: World, count: int
    ) -> None:
        leases = await _claimed(world, CASES["renew"], count, 3 * KEEP)
        await world.perform(*[Renew(lease, 30_000_000) for lease in leases])
        full = world.clock.store_clock() + 30_000_000
        assert [record.lease_us for record in await _records(world, leases)] == [full] * count


async def _claimed(world: World, case: Case, count: int, seconds: int) -> list[Lease]:
    """Keys that were claimed so many seconds ago, and are as the case wants them."""
    leases = [await world.crash(f"k{number}", policy=POLICY) for number in range(count)]
    if case.before is not None:
        await world.perform(*[case.before(lease) for lease in leases])
    world.clock.advance(seconds)
    return leases


async def _records(world: World, leases: list[Lease]) -> list[StoredRecord]:
    found: list[Any] = await world.perform(*[Read(lease.key.digest, with_steps=True) for lease in leases])
    return [answer.record for answer in found]


def _by_the_rules(record: StoredRecord, operation: Operation, now: int) -> tuple[Any, StoredRecord | None]:
    """The answer of the decision table to one operation, and the record that it leaves."""
    table = Table()
    table.records[record.key.digest] = record
    return table.apply(operation, now), table.records.get(record.key.digest)
