"""Operations: what a store answers to lists of them, and to the same one sent again. No engine is involved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from semel.core import codec
from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    Doubtful,
    Fail,
    Found,
    Granted,
    Held,
    Lapse,
    Purge,
    Query,
    Read,
    Recorded,
    Renew,
    Replay,
    Resolve,
    Resolved,
    Reused,
    Running,
    Scan,
    Swept,
    Tally,
    Terms,
)
from semel.core.policy import Doubt, Policy
from semel.core.record import Failure, Lease, Status, Step
from semel.core.shape import AsIs
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.doubts import PAIRS
from semel.testing.contract.world import World

VALUE = codec.encode("value", AsIs(), 1000)
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
        assert [type(answer) for answer in answers] == [Granted, Replay, Running, Reused, Doubtful]

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
        # The first claim of the list is over at once; whoever looked before it was made saw nothing at all.
        answers = await world.perform(_lapsing(world, "rerun", asked=1), world.claim(asked=2))
        assert [type(answer) for answer in answers] == [Granted, Reused]

    @pytest.mark.parametrize(("owner", "claimer", "outcome"), PAIRS)
    async def test_a_take_over_compares_the_policies_with_the_record_as_it_is_then(
        self, world: World, owner: Doubt, claimer: Doubt, outcome: str
    ) -> None:
        _, answer = await world.perform(_lapsing(world, owner), _lapsing(world, claimer))
        match outcome:
            case "held":
                assert isinstance(answer, Doubtful)
            case _:
                assert isinstance(answer, Granted)
                assert (answer.in_doubt, answer.reconcile) == (True, outcome == "asked")

    async def test_a_failure_that_leaves_a_doubt_is_claimed_by_the_rules_of_doubts(self, world: World) -> None:
        await world.perform(Fail(await world.crash(), "retry", OOPS, doubtful=True))
        (held,) = await world.perform(world.claim(policy=HOLD))
        (granted,) = await world.perform(world.claim())
        assert isinstance(held, Doubtful)
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
        assert answer == Held(world.clock.store_clock() + 30_000_000)
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
        (second,) = await world.perform(Scan(Query(), first.cursor, 3))  # type: ignore[union-attr]  # a scan gives pages
        records = [*first.records, *second.records]  # type: ignore[union-attr]  # as above
        assert len({record.key.value for record in records}) == 5
        assert second.cursor is None  # type: ignore[union-attr]  # as above

    async def test_purge_and_lapse_stop_at_their_limit(self, world: World) -> None:
        await world.perform(*[world.claim(f"k{number}") for number in range(5)])
        world.clock.advance(60)
        assert await world.perform(Lapse(3)) == [Swept(3)]
        assert await world.perform(Lapse(3)) == [Swept(2)]
        assert await world.perform(Purge(3)) == [Swept(0)]

    async def test_a_tally_adds_up(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        await world.perform(Tally(lease.key.digest, 2), Tally(lease.key.digest, 3))
        record = await world.stored()
        assert record is not None
        assert (record.replays, record.replayed_us) == (5, world.clock.store_clock())

    async def test_a_tally_of_a_record_that_is_gone_makes_none(self, world: World) -> None:
        await world.perform(Tally(world.claim().key.digest, 2))
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
