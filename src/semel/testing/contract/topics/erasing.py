"""Erasing: what may be personal goes, and what keeps the key shut stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from semel.core import codec
from semel.core.codec import PlainAdapter
from semel.core.fingerprint import fingerprint
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Confirm,
    Erase,
    Erased,
    Fail,
    Granted,
    Invalidate,
    Invalidation,
    Pending,
    PendingInvalidations,
    Purge,
    Recorded,
    Replay,
    Resolve,
    StateMismatch,
    SweepCount,
)
from semel.core.policy import Policy
from semel.core.record import BLANK, About, Failure, Lease, Status, Step, StoredRecord, erase_record
from semel.core.store import Capability
from semel.errors import FailedBefore, NotResolvable, ResultNotKept, UsageError
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

PERSONAL = "Ann Personal"
ASKED = {"pin": 4711}
VALUE = codec.encode(PERSONAL, PlainAdapter(), 1000)
OOPS = Failure("app.Declined", PERSONAL)
ABOUT = About(
    subject=PERSONAL, business_key=PERSONAL, process_instance=PERSONAL, requester=PERSONAL, tags={PERSONAL: PERSONAL}
)
FINAL = Policy(final_errors=(ValueError,))
RETRY = Policy(retry_errors=(ValueError,))
HOUR = Policy(keep_for=timedelta(hours=1))
NOTE = "note"
SETTLED = ("completed", "failed", "retryable", "cancelled", "resolved")


class ErasingContract(Contract):
    """Of one settled record, everything that may be personal."""

    @pytest.mark.parametrize("how", SETTLED)
    async def test_what_is_left_is_what_the_rules_leave(self, world: World, how: str) -> None:
        before = await _settled(world, how)
        world.clock.advance(5)
        (answer,) = await world.perform(Erase(before.key.digest, NOTE))
        assert answer == Erased(erase_record(before, NOTE))
        assert await world.stored(PERSONAL, scope=PERSONAL) == erase_record(before, NOTE)

    @pytest.mark.parametrize("how", SETTLED)
    async def test_nothing_personal_is_left(self, world: World, how: str) -> None:
        record = await _settled(world, how)
        assert PERSONAL in repr(msgspec.structs.asdict(record))
        await world.perform(Erase(record.key.digest, NOTE))
        left = await world.stored(PERSONAL, scope=PERSONAL)
        assert left is not None
        assert PERSONAL not in repr(msgspec.structs.asdict(left))

    @pytest.mark.parametrize("how", SETTLED)
    async def test_erasing_sent_again_answers_as_the_first_time(self, world: World, how: str) -> None:
        record = await _settled(world, how)
        (first,) = await world.perform(Erase(record.key.digest, NOTE))
        world.clock.advance(1)
        assert await world.perform(Erase(record.key.digest, NOTE)) == [first]

    async def test_erasing_is_found_by_the_operation_too(self, world: World) -> None:
        record = await _settled(world, "completed")
        (answer,) = await world.perform(Erase(record.key.digest, NOTE, record.key.operation))
        assert isinstance(answer, Erased)

    async def test_a_list_is_erased_one_by_one(self, world: World) -> None:
        await world.perform(Complete(await world.crash("a"), VALUE))
        await world.crash("b")
        digests = [world.claim(key).key.digest for key in ("a", "b", "c")]
        answers = await world.perform(*[Erase(digest, NOTE) for digest in digests])
        assert [type(answer) for answer in answers] == [Erased, StateMismatch, StateMismatch]

    async def test_a_record_that_runs_is_not_erased(self, world: World) -> None:
        lease = await world.crash()
        before = await world.stored()
        assert await world.perform(Erase(lease.key.digest, NOTE)) == [StateMismatch(before)]
        assert await world.stored() == before

    async def test_a_record_in_doubt_is_not_erased(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Checkpoint(lease, Step(0, "a", VALUE)))
        await world.perform(Fail(lease, "doubt", OOPS, doubtful=True))
        before = await world.stored()
        (answer,) = await world.perform(Erase(lease.key.digest, NOTE))
        assert isinstance(answer, StateMismatch)
        assert await world.stored() == before

    async def test_a_record_that_is_not_there_is_not_made_by_erasing(self, world: World) -> None:
        assert await world.perform(Erase(world.claim().key.digest, NOTE)) == [StateMismatch(None)]
        assert await world.stored() is None

    async def test_a_late_worker_writes_nothing_into_an_erased_record(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        await world.perform(Erase(lease.key.digest, NOTE))
        before = await world.stored()
        await world.perform(Complete(lease, VALUE))
        await world.perform(Fail(lease, "final", OOPS, doubtful=False))
        await world.perform(Checkpoint(lease, Step(0, "a", VALUE)))
        assert await world.stored() == before

    async def test_replays_of_an_erased_record_are_still_counted(self, world: World) -> None:
        record = await _settled(world, "completed")
        await world.perform(Erase(record.key.digest, NOTE))
        await world.perform(AddReplays(record.key.digest, 2))
        left = await world.stored(PERSONAL, scope=PERSONAL)
        assert left is not None
        assert left.replays == 2, f"the record counts {left.replays} replays"

    async def test_an_erased_record_expires_when_it_would_have(self, world: World) -> None:
        lease = await world.crash(policy=HOUR)
        await world.perform(Complete(lease, VALUE))
        await world.perform(Erase(lease.key.digest, NOTE))
        world.clock.advance(3599)
        assert await world.perform(Purge(10)) == [SweepCount(0)]
        world.clock.advance(1)
        assert await world.perform(Purge(10)) == [SweepCount(1)]

    async def test_a_new_life_of_an_erased_key_is_a_whole_record(self, world: World) -> None:
        lease = await world.crash(policy=HOUR, scope="acme")
        await world.perform(Checkpoint(lease, Step(0, "a", VALUE)))
        await world.perform(Complete(lease, VALUE))
        await world.perform(Erase(lease.key.digest, NOTE))
        world.clock.advance(3600)
        claim = world.claim(scope="acme")
        (answer,) = await world.perform(claim)
        assert isinstance(answer, Granted)
        assert answer.record == await world.stored(scope="acme")
        assert (answer.record.key, answer.record.resolution, answer.record.steps) == (claim.key, None, ())

    async def test_the_effect_of_an_erased_record_never_happens_again(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning("value"))
        await client.erase()
        error = await client.error(handler=world.returning("value"))
        assert isinstance(error, ResultNotKept)
        assert "it was erased" in str(error)
        assert world.ran == ["value"]

    async def test_an_erased_failure_is_replayed_without_its_text(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError(PERSONAL)), policy=FINAL)
        await client.erase()
        error = await client.error(policy=FINAL)
        assert isinstance(error, FailedBefore)
        assert PERSONAL not in repr(error)
        assert (error.error_type, error.error_message) == ("semel.Erased", "it was erased")

    async def test_an_erased_failure_that_could_be_tried_again_is_not(self, world: World) -> None:
        # Its finished steps are gone with it: another attempt would do once more what they did.
        client = world.client()
        await client.error(handler=world.raising(ValueError(PERSONAL)), policy=RETRY)
        await client.erase()
        assert isinstance(await client.error(policy=RETRY), FailedBefore)
        assert world.ran == ["ValueError"]

    @pytest.mark.parametrize("how", SETTLED)
    async def test_the_fingerprint_is_erased_too(self, world: World, how: str) -> None:
        # A fingerprint that stays lets anybody who can read the record try out every PIN there is.
        record = await _settled(world, how)
        assert record.fingerprint == fingerprint(ASKED), "the record under test is not the one that was asked for"
        await world.perform(Erase(record.key.digest, NOTE))
        left = await world.stored(PERSONAL, scope=PERSONAL)
        assert left is not None
        assert left.fingerprint == BLANK

    @pytest.mark.parametrize("how", SETTLED)
    @pytest.mark.parametrize("asked", [ASKED, {"pin": 1}], ids=["the same request", "another request"])
    async def test_an_erased_record_answers_every_claim_of_its_key(self, world: World, how: str, asked: Any) -> None:
        record = await _settled(world, how)
        await world.perform(Erase(record.key.digest, NOTE))
        left = await world.stored(PERSONAL, scope=PERSONAL)
        claims = [world.claim(PERSONAL, scope=PERSONAL, asked=asked) for _ in range(3)]
        alone = await world.perform(claims[0])
        several = await world.perform(*claims[1:])
        for answer in [*alone, *several]:
            assert isinstance(answer, Replay)
            assert answer.record == left
        assert await world.stored(PERSONAL, scope=PERSONAL) == left

    @pytest.mark.parametrize("asked", [{"amount": 1}, {"amount": 2}], ids=["the same request", "another request"])
    async def test_another_request_is_told_that_the_record_was_erased(self, world: World, asked: Any) -> None:
        client = world.client()
        await client.run(fingerprint={"amount": 1})
        await client.erase()
        for _ in range(3):  # a cache may answer from the second time on
            assert isinstance(await client.error(fingerprint=asked), ResultNotKept)
        assert isinstance(await world.client().error(fingerprint=asked), ResultNotKept)

    async def test_the_reason_and_who_gave_it_are_kept(self, world: World) -> None:
        client = world.client()
        await client.run()
        record = await client.erase(reason="request 17", by="dpo")
        assert record == await client.read()
        assert record.note is not None
        assert (record.note.resolution, record.note.reason, record.note.by) == ("Erased", "request 17", "dpo")

    @pytest.mark.parametrize("reason", ["", "  ", None])
    async def test_erasing_needs_a_reason(self, world: World, reason: Any) -> None:
        client = world.client()
        await client.run()
        with pytest.raises(UsageError, match="needs a reason"):
            await client.erase(reason=reason)
        assert (await client.read()).note is None

    async def test_erasing_what_runs_is_refused_with_its_status(self, world: World) -> None:
        await world.crash()
        with pytest.raises(NotResolvable, match=r"is running.*nothing was erased"):
            await world.client().erase()

    async def test_erasing_what_is_in_doubt_names_the_way_out(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=Policy(in_doubt="hold"))
        with pytest.raises(NotResolvable, match=r"in_doubt.*semel resolve"):
            await client.erase()

    async def test_erasing_what_is_not_there_is_refused(self, world: World) -> None:
        with pytest.raises(NotResolvable, match="There is no record"):
            await world.client().erase()


class CachePurgeContract(Contract):
    """One record is taken out of the caches in front of a store, at once; the record itself stays."""

    async def test_purging_is_refused_where_there_is_no_cache(self, world: World) -> None:
        client = world.client()
        await client.run()
        if _has_copies(world):
            await client.purge_cached()
            return
        with pytest.raises(UsageError, match="There is no cache"):
            await client.purge_cached()

    async def test_what_was_purged_is_answered_by_the_store(self, world: World) -> None:
        client = world.client()
        first = await client.run()
        if not _has_copies(world):
            assert (await client.run()).cache is None
            return
        assert [(await client.run()).cache for _ in range(3)][-1] == "hit"
        await client.purge_cached()
        again = await client.run()
        assert (again.value, again.cache) == (first.value, "miss")

    async def test_purging_leaves_the_record(self, world: World) -> None:
        client = world.client()
        await client.run()
        before = await client.read()
        if _has_copies(world):
            await client.purge_cached()
        assert await client.read() == before

    async def test_purging_does_not_wait_for_what_other_processes_keep(self, world: World) -> None:
        client, other = world.client(), world.client()
        await client.run()
        for _ in range(3):
            await other.run()
        began = world.clock.monotonic()
        if _has_copies(world):
            await client.purge_cached()
        assert world.clock.monotonic() == began

    @pytest.mark.parametrize("at_once", [True, False], ids=["at once", "everywhere"])
    async def test_an_invalidation_is_recorded_where_nothing_is_cached(self, world: World, at_once: bool) -> None:
        digest = world.claim("never used").key.digest
        if _has_copies(world) and not at_once:
            return  # other processes may hold what this one cannot see: told by raising, see the tests of tiers
        (answer,) = await world.perform(Invalidate(digest, "charge", at_once=at_once))
        assert isinstance(answer, Recorded)


def _has_copies(world: World) -> bool:
    return Capability.LANE_WRAPPER in world.store().capabilities


class InvalidationContract(Contract, calls=False):
    """What a store does that can stand behind caches: it notes what they have to forget until they have confirmed."""

    async def test_nothing_is_noted_without_tiers(self, world: World) -> None:
        await _erased(world, "k", invalidates=False)
        assert await _pending(world) == []

    async def test_erasing_notes_an_invalidation(self, world: World) -> None:
        lease = await _erased(world, "k")
        now = world.clock.store_clock()
        assert await _pending(world) == [Invalidation(lease.key.digest, lease.key.operation, now)]

    async def test_what_was_not_erased_is_not_noted(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Erase(lease.key.digest, NOTE, invalidates=True))
        await world.perform(Erase(world.claim("absent").key.digest, NOTE, invalidates=True))
        assert await _pending(world) == []

    async def test_the_oldest_come_first(self, world: World) -> None:
        digests = []
        for key in ("b", "a", "c"):
            digests.append((await _erased(world, key)).key.digest)
            world.clock.advance(1)
        assert [noted.digest for noted in await _pending(world)] == digests
        assert [noted.digest for noted in await _pending(world, 2)] == digests[:2]

    async def test_a_limit_of_nothing_gives_nothing(self, world: World) -> None:
        await _erased(world, "k")
        assert await _pending(world, 0) == []

    async def test_erasing_again_notes_it_anew(self, world: World) -> None:
        lease = await _erased(world, "k")
        world.clock.advance(1)
        await world.perform(Erase(lease.key.digest, NOTE, invalidates=True))
        assert [noted.noted_us for noted in await _pending(world)] == [world.clock.store_clock()]

    async def test_what_is_confirmed_is_forgotten(self, world: World) -> None:
        lease = await _erased(world, "k")
        await _erased(world, "other")
        (noted, _) = sorted(await _pending(world), key=lambda noted: noted.digest != lease.key.digest)
        (answer,) = await world.perform(Confirm(noted.digest, noted.noted_us))
        assert isinstance(answer, Recorded)
        assert lease.key.digest not in [left.digest for left in await _pending(world)]
        assert len(await _pending(world)) == 1

    async def test_a_confirmation_does_not_reach_what_was_noted_after_it(self, world: World) -> None:
        lease = await _erased(world, "k")
        (noted,) = await _pending(world)
        world.clock.advance(1)
        await world.perform(Erase(lease.key.digest, NOTE, invalidates=True))
        await world.perform(Confirm(noted.digest, noted.noted_us))
        assert len(await _pending(world)) == 1

    async def test_a_later_note_is_later_although_the_clock_was_set_back(self, world: World) -> None:
        lease = await _erased(world, "k")
        (first,) = await _pending(world)
        world.clock.set_back(60)
        await world.perform(Erase(lease.key.digest, NOTE, invalidates=True))
        (second,) = await _pending(world)
        assert second.noted_us > first.noted_us, "who confirms the first note would take the second one away"
        await world.perform(Confirm(first.digest, first.noted_us))
        assert await _pending(world) == [second]

    async def test_confirming_again_changes_nothing(self, world: World) -> None:
        await _erased(world, "k")
        (noted,) = await _pending(world)
        for _ in range(2):
            (answer,) = await world.perform(Confirm(noted.digest, noted.noted_us))
            assert isinstance(answer, Recorded)
        assert await _pending(world) == []

    async def test_a_note_outlives_its_record(self, world: World) -> None:
        lease = await _erased(world, "k")
        world.clock.advance(30 * 24 * 3600)
        assert await world.perform(Purge(10)) == [SweepCount(1)]
        assert [noted.digest for noted in await _pending(world)] == [lease.key.digest]


async def _settled(world: World, how: str) -> StoredRecord:
    """A record full of what may be personal."""
    lease = await world.crash(PERSONAL, scope=PERSONAL, about=ABOUT, asked=ASKED)
    await world.perform(Checkpoint(lease, Step(0, PERSONAL, VALUE)))
    match how:
        case "completed":
            await world.perform(Complete(lease, VALUE))
        case "failed" | "retryable":
            await world.perform(Fail(lease, "final" if how == "failed" else "retry", OOPS, doubtful=how == "retryable"))
        case _:
            status = Status.CANCELLED if how == "cancelled" else Status.COMPLETED
            await world.perform(Fail(lease, "doubt", OOPS, doubtful=True))
            outcome = None if how == "cancelled" else VALUE
            await world.perform(Resolve(lease.key.digest, b"n" * 16, status, outcome, PERSONAL))  # type: ignore[arg-type]  # one of the two
    record = await world.stored(PERSONAL, scope=PERSONAL)
    assert record is not None
    return record


async def _erased(world: World, key: str, *, invalidates: bool = True) -> Lease:
    lease = await world.crash(key)
    await world.perform(Complete(lease, VALUE))
    await world.perform(Erase(lease.key.digest, NOTE, invalidates=invalidates))
    return lease


async def _pending(world: World, limit: int = 10) -> list[Invalidation]:
    (answer,) = await world.perform(Pending(limit))
    assert isinstance(answer, PendingInvalidations)
    return list(answer.invalidations)
