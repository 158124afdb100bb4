"""A value that a person stated can be replaced by another; nothing else that is settled can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from semel.core.operations import Resolve, Resolved, Unresolvable
from semel.core.outcome import Cancelled, DidNotHappen, Happened
from semel.core.record import Lease, Status
from semel.errors import NotResolvable, UsageError
from semel.testing.contract.door import Door
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.doubts import HOLD
from semel.testing.contract.world import World

_AFTER_LEASE = 60
_FIRST, _SECOND, _THIRD = b"1" * 16, b"2" * 16, b"3" * 16


async def _stated(world: World, value: Any = "wrong") -> Door:
    await world.crash(policy=HOLD)
    world.clock.advance(_AFTER_LEASE)
    door = world.door()
    await door.resolve(Happened(value))
    return door


def _stating(lease: Lease, nonce: bytes, outcome: bytes, corrects: bytes | None = None) -> Resolve:
    return Resolve(lease.key.digest, nonce, Status.COMPLETED, outcome, "note", corrects=corrects)


async def _stated_lease(world: World) -> Lease:
    lease = await world.crash(policy=HOLD)
    world.clock.advance(_AFTER_LEASE)
    (answer,) = await world.perform(_stating(lease, _FIRST, b"wrong"))
    assert isinstance(answer, Resolved)
    return lease


class CorrectingContract(Contract):
    """Corrections replace what was stated about the very record that was seen."""

    async def test_a_stated_value_can_be_corrected(self, world: World) -> None:
        door = await _stated(world)
        assert await door.value(policy=HOLD) == "wrong"
        await door.resolve(Happened("right"), correct=True, reason="mistyped", by="ada")
        result = await door.run(policy=HOLD)
        assert (result.value, result.replayed, world.ran) == ("right", True, [])

    async def test_a_correction_says_who_and_why(self, world: World) -> None:
        door = await _stated(world)
        record = await door.resolve(Happened("right"), correct=True, reason="mistyped", by="ada")
        assert record.note is not None
        assert (record.note.resolution, record.note.reason, record.note.by) == ("Happened", "mistyped", "ada")

    async def test_a_correction_can_be_corrected(self, world: World) -> None:
        door = await _stated(world)
        await door.resolve(Happened("better"), correct=True)
        await door.resolve(Happened("best"), correct=True)
        assert await door.value(policy=HOLD) == "best"

    async def test_what_a_handler_returned_is_not_corrected(self, world: World) -> None:
        door = world.door()
        await door.run()
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await door.resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    @pytest.mark.parametrize("resolution", [DidNotHappen(), Cancelled()])
    async def test_a_correction_never_says_that_it_did_not_happen(self, world: World, resolution: Any) -> None:
        door = await _stated(world)
        before = await world.stored()
        with pytest.raises(UsageError):
            await door.resolve(resolution, correct=True)
        assert await world.stored() == before

    @pytest.mark.parametrize("resolution", [DidNotHappen(), Cancelled()])
    async def test_what_was_not_stated_to_have_happened_is_not_corrected(self, world: World, resolution: Any) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        door = world.door()
        await door.resolve(resolution)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await door.resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    async def test_what_is_in_doubt_is_resolved_and_not_corrected(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        with pytest.raises(NotResolvable):
            await world.door().resolve(Happened("other"), correct=True)
        assert await world.stored() == before

    async def test_a_store_corrects_only_what_is_completed(self, world: World) -> None:
        lease = await world.crash(policy=HOLD)
        world.clock.advance(_AFTER_LEASE)
        before = await world.stored()
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=lease.nonce))
        assert isinstance(answer, Unresolvable)
        assert await world.stored() == before

    async def test_what_was_erased_is_not_filled_in_again(self, world: World) -> None:
        lease = await _stated_lease(world)
        door = world.door()
        erased = await door.erase()
        with pytest.raises(NotResolvable):
            await door.resolve(Happened("other"), correct=True)
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        assert isinstance(answer, Unresolvable)
        assert (await world.stored()) == erased

    async def test_a_correction_sent_again_answers_as_the_first_time(self, world: World) -> None:
        lease = await _stated_lease(world)
        correction = _stating(lease, _SECOND, b"right", corrects=_FIRST)
        (first,) = await world.perform(correction)
        world.clock.advance(1)
        (second,) = await world.perform(correction)
        assert isinstance(first, Resolved)
        assert first.record.outcome == b"right"
        assert second == first

    async def test_of_two_corrections_of_one_record_the_second_changes_nothing(self, world: World) -> None:
        lease = await _stated_lease(world)
        (first,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        (second,) = await world.perform(_stating(lease, _THIRD, b"other", corrects=_FIRST))
        assert isinstance(first, Resolved)
        assert isinstance(second, Unresolvable)
        assert await world.stored() == first.record

    async def test_a_correction_raises_the_fence(self, world: World) -> None:
        lease = await _stated_lease(world)
        before = await world.stored()
        (answer,) = await world.perform(_stating(lease, _SECOND, b"right", corrects=_FIRST))
        assert isinstance(answer, Resolved)
        assert before is not None
        assert answer.record.fence == before.fence + 1

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    async def test_a_correction_that_reopens_the_key_is_refused_by_the_store(self, world: World, status: Any) -> None:
        lease = await _stated_lease(world)
        before = await world.stored()
        reopening = msgspec.structs.replace(_stating(lease, _SECOND, b"", corrects=_FIRST), status=status, outcome=None)
        (answer,) = await world.perform(reopening)
        assert isinstance(answer, Unresolvable)
        assert await world.stored() == before
