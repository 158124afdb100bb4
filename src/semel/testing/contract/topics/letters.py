"""Dead letters: written with the end of their record, gone with its completion, and kept no longer than it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from semel.core.events.letters import (
    DropLetter,
    Letter,
    LetterFound,
    LetterPage,
    LetterQuery,
    PutLetter,
    ScanLetters,
    StoredLetter,
    TouchLetter,
    letter_id,
    operation_of,
)
from semel.core.operations import (
    Claim,
    Complete,
    Counted,
    CountFailure,
    Erase,
    Fail,
    Lost,
    Operation,
    Purge,
    PurgeLetters,
    Recorded,
    Reopen,
    Resolve,
    StateMismatch,
    SweepCount,
)
from semel.core.policy import Policy
from semel.core.record import Ending, Failure, Lease, Status, StoredRecord
from semel.core.store import Capability
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.erasing import VALUE
from semel.testing.contract.world import World

DAY = 86_400
DAY_US = DAY * 1_000_000
KEEP_US = 30 * DAY_US
OOPS = Failure("app.Broke", "broke")
OPERATION = operation_of("billing")
BODY = b'{"type":"asset.registered"}'
RERUN = Policy(in_doubt="rerun")


def _letter(record: bytes | None, **changes: Any) -> Letter:
    fields: dict[str, Any] = {
        "consumer": "billing",
        "scope": "",
        "record": record,
        "reason": "exhausted",
        "type": "asset.registered",
        "subject": "asset-1",
        "content": BODY,
        "readable": True,
        "attempts": 5,
        "error": OOPS,
        "keep_us": KEEP_US,
        **changes,
    }
    told = (fields["type"].encode(), fields["content"])
    return Letter(id=letter_id(fields["consumer"], record, *told), **fields)


def _claim(world: World) -> Claim:
    return world.claim(operation=OPERATION)


async def _crash(world: World, key: str = "k", **claim: Any) -> Lease:
    return await world.crash(key, operation=OPERATION, **claim)


async def _stored(world: World, key: str = "k") -> StoredRecord | None:
    return await world.stored(key, operation=OPERATION)


def _of(lease: Lease, **changes: Any) -> Letter:
    return _letter(lease.key.digest, **changes)


async def _found(world: World, operation: PutLetter | TouchLetter | DropLetter) -> StoredLetter | None:
    (answer,) = await world.perform(operation)
    assert isinstance(answer, LetterFound), f"not the answer to {type(operation).__name__}: {answer}"
    return answer.letter


async def _page(
    world: World, cursor: tuple[int, bytes] | None = None, limit: int = 100, **query: Any
) -> tuple[tuple[StoredLetter, ...], tuple[int, bytes] | None]:
    asked = LetterQuery(**{"consumer": "billing", **query})
    (answer,) = await world.perform(ScanLetters(asked, cursor, limit))
    assert isinstance(answer, LetterPage), f"not the answer to ScanLetters: {answer}"
    return answer.letters, answer.cursor


async def _letters(world: World, **query: Any) -> tuple[StoredLetter, ...]:
    letters, cursor = await _page(world, **query)
    assert cursor is None, "there were more than fit on a page"
    return letters


async def _fail(world: World, lease: Lease, letter: Letter | None = None, ending: Ending = "final") -> Operation:
    failing = Fail(lease, ending, OOPS, doubtful=ending == "doubt", letter=letter or _of(lease))
    (answer,) = await world.perform(failing)
    assert isinstance(answer, Recorded), f"the failure was not recorded: {answer}"
    return failing


def _count(claim: Claim, number: int, most: int | None, letter: Letter | None = None) -> CountFailure:
    nonce = number.to_bytes(16, "big")
    kept = letter or _letter(claim.key.digest)
    return CountFailure(claim.key, claim.fingerprint, nonce, OOPS, claim.terms, claim.about, most, kept)


async def _counted(world: World, operation: CountFailure) -> Counted:
    (answer,) = await world.perform(operation)
    assert isinstance(answer, Counted), f"the failure was not counted: {answer}"
    return answer


async def _nonce_of(world: World) -> bytes:
    record = await _stored(world)
    assert record is not None, "there is no record"
    return record.nonce


async def _expires(world: World) -> int:
    record = await _stored(world)
    assert record is not None, "there is no record"
    return record.expires_us


class LetterContract(Contract, calls=False):
    """What a store with `Capability.LETTERS` keeps of events that nobody tries again by itself."""

    async def test_a_store_that_keeps_letters_says_so(self, world: World) -> None:
        assert Capability.LETTERS in world.store().capabilities

    async def test_a_letter_is_kept_as_it_was_given(self, world: World) -> None:
        letter = _letter(b"d" * 32, scope="acme", subject="größe", content=b"\x00\xff" * 100)
        kept = await _found(world, PutLetter(letter))
        now = world.clock.store_clock()
        told = {name: getattr(letter, name) for name in Letter.__struct_fields__}
        assert kept == StoredLetter(**told, first_us=now, last_us=now, seen=1, expires_us=now + KEEP_US)
        assert await _letters(world) == (kept,)

    async def test_what_has_no_identity_is_kept_without_a_record(self, world: World) -> None:
        letter = _letter(None, type="", subject=None, readable=False, error=None, attempts=0, reason="invalid")
        kept = await _found(world, PutLetter(letter))
        assert kept is not None
        assert (kept.record, kept.subject, kept.error, kept.readable) == (None, None, None, False)

    async def test_a_letter_put_again_is_one_letter_that_was_seen_twice(self, world: World) -> None:
        first = await _found(world, PutLetter(_letter(b"d" * 32)))
        world.clock.advance(60)
        again = _letter(b"d" * 32, reason="rejected", attempts=6, error=Failure("app.Other", "other"))
        second = await _found(world, PutLetter(again))
        assert first is not None
        now = world.clock.store_clock()
        expected = replace(first, reason="rejected", attempts=6, error=again.error, last_us=now, seen=2)
        assert second == replace(expected, expires_us=now + KEEP_US)
        assert await _letters(world) == (second,)

    async def test_another_body_under_a_record_is_another_letter(self, world: World) -> None:
        await _found(world, PutLetter(_letter(b"d" * 32)))
        await _found(world, PutLetter(_letter(b"d" * 32, content=b"other")))
        assert len(await _letters(world)) == 2

    async def test_a_list_of_letters_is_kept_one_by_one(self, world: World) -> None:
        answers = await world.perform(*(PutLetter(_letter(bytes([n]) * 32)) for n in range(5)))
        assert [type(answer) for answer in answers] == [LetterFound] * 5
        assert len(await _letters(world)) == 5

    async def test_letters_of_every_consumer_are_listed_where_none_is_named(self, world: World) -> None:
        for place, consumer in enumerate(("billing", "shipping")):
            await _found(world, PutLetter(_letter(bytes([place]) * 32, consumer=consumer, scope="acme")))
            world.clock.advance(1)
        found = await _letters(world, consumer=None)
        assert [letter.consumer for letter in found] == ["billing", "shipping"]
        assert await _letters(world, consumer=None, scope="") == ()

    async def test_letters_are_listed_oldest_first_and_page_by_page(self, world: World) -> None:
        for number in range(5):
            await _found(world, PutLetter(_letter(bytes([number]) * 32)))
            if number != 2:  # two of the same instant
                world.clock.advance(1)
        whole = await _letters(world)
        assert [one.first_us for one in whole] == sorted(one.first_us for one in whole)
        pages, cursor = [], None
        for _ in range(3):
            page, cursor = await _page(world, cursor, 2)
            pages.append(page)
        assert [len(page) for page in pages] == [2, 2, 1]
        assert sum(pages, ()) == whole
        assert cursor is None

    async def test_a_page_that_holds_all_has_no_cursor(self, world: World) -> None:
        for number in range(2):
            await _found(world, PutLetter(_letter(bytes([number]) * 32)))
        letters, cursor = await _page(world, limit=2)
        assert (len(letters), cursor) == (2, None)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ({}, "abcd"),
            ({"consumer": "shipping"}, "e"),
            ({"reason": "rejected"}, "b"),
            ({"type": "asset.moved"}, "c"),
            ({"subject": "asset-2"}, "d"),
            ({"scope": "acme"}, "d"),
            ({"reason": "rejected", "type": "asset.moved"}, ""),
            ({"consumer": "nobody"}, ""),
            ({"consumer": None}, "abcde"),
            ({"consumer": None, "subject": "asset-2", "scope": "acme"}, "d"),
        ],
    )
    async def test_letters_are_found_by(self, world: World, query: dict[str, str], expected: str) -> None:
        changes: dict[str, dict[str, str]] = {
            "a": {},
            "b": {"reason": "rejected"},
            "c": {"type": "asset.moved"},
            "d": {"subject": "asset-2", "scope": "acme"},
            "e": {"consumer": "shipping"},
        }
        for name, changed in changes.items():
            await _found(world, PutLetter(_letter(name.encode() * 32, **changed)))
            world.clock.advance(1)
        found = [(one.record or b"").decode()[0] for one in await _letters(world, **query)]
        assert found == list(expected)

    async def test_letters_are_found_by_id_and_by_when_they_became_such(self, world: World) -> None:
        old = await _found(world, PutLetter(_letter(b"a" * 32)))
        world.clock.advance(10)
        new = await _found(world, PutLetter(_letter(b"b" * 32)))
        assert old is not None
        assert new is not None
        assert await _letters(world, id=new.id) == (new,)
        assert await _letters(world, before_us=new.first_us) == (old,)

    async def test_a_letter_is_dropped_by_its_consumer_alone(self, world: World) -> None:
        kept = await _found(world, PutLetter(_letter(b"d" * 32)))
        assert kept is not None
        assert await _found(world, DropLetter("shipping", kept.id)) is None
        assert await _found(world, DropLetter("billing", kept.id)) == kept
        assert await _found(world, DropLetter("billing", kept.id)) is None
        assert await _letters(world) == ()

    async def test_a_delivery_again_touches_the_letter_of_its_record(self, world: World) -> None:
        kept = await _found(world, PutLetter(_letter(b"d" * 32)))
        assert kept is not None
        world.clock.advance(5)
        touched = await _found(world, TouchLetter("billing", b"d" * 32))
        assert touched == replace(kept, last_us=world.clock.store_clock(), seen=2)
        assert await _letters(world) == (touched,)

    async def test_only_a_letter_of_the_event_itself_is_touched(self, world: World) -> None:
        kept = await _found(world, PutLetter(_letter(b"d" * 32, reason="reused")))
        world.clock.advance(5)
        assert await _found(world, TouchLetter("billing", b"d" * 32)) is None
        assert await _found(world, TouchLetter("shipping", b"d" * 32)) is None
        assert await _found(world, TouchLetter("billing", b"e" * 32)) is None
        assert await _letters(world) == (kept,)

    async def test_a_letter_of_another_event_under_the_id_is_not_touched_beside_that_of_the_event(
        self, world: World
    ) -> None:
        kept = await _found(world, PutLetter(_letter(b"d" * 32, reason="reused", type="asset.moved")))
        mine = await _found(world, PutLetter(_letter(b"d" * 32)))
        assert mine is not None
        world.clock.advance(5)
        touched = await _found(world, TouchLetter("billing", b"d" * 32))
        assert touched == replace(mine, last_us=world.clock.store_clock(), seen=2)
        assert set(await _letters(world)) == {kept, touched}

    async def test_letters_are_deleted_when_they_are_expired_and_not_before(self, world: World) -> None:
        if not await self._purges(world):
            pytest.skip("this store deletes them by itself")
        await _found(world, PutLetter(_letter(b"a" * 32, keep_us=DAY_US)))
        await _found(world, PutLetter(_letter(b"b" * 32, keep_us=DAY_US)))
        await _found(world, PutLetter(_letter(b"c" * 32)))
        world.clock.advance(DAY - 1)
        assert await world.perform(PurgeLetters(10)) == [SweepCount(0)]
        world.clock.advance(1)
        assert await world.perform(PurgeLetters(1)) == [SweepCount(1)]
        assert await world.perform(PurgeLetters(10)) == [SweepCount(1)]
        assert [one.record for one in await _letters(world)] == [b"c" * 32]

    async def _purges(self, world: World) -> bool:
        await _found(world, PutLetter(_letter(b"z" * 32, keep_us=1)))
        world.clock.advance(1)
        (answer,) = await world.perform(PurgeLetters(10))
        assert isinstance(answer, SweepCount)
        return answer.count == 1

    @pytest.mark.parametrize("ending", ["final", "doubt"])
    async def test_a_failure_writes_its_letter(self, world: World, ending: Ending) -> None:
        lease = await _crash(world)
        world.clock.advance(2)
        await _fail(world, lease, ending=ending)
        (kept,) = await _letters(world)
        now = world.clock.store_clock()
        assert (kept.record, kept.first_us, kept.seen) == (lease.key.digest, now, 1)
        assert kept.expires_us == now + KEEP_US

    async def test_a_failure_that_may_be_tried_again_writes_none(self, world: World) -> None:
        lease = await _crash(world)
        await _fail(world, lease, ending="retry")
        assert await _letters(world) == ()

    async def test_a_failure_sent_again_writes_one_letter_seen_once(self, world: World) -> None:
        lease = await _crash(world)
        failing = await _fail(world, lease)
        world.clock.advance(3)
        assert [type(one) for one in await world.perform(failing)] == [Recorded]
        (kept,) = await _letters(world)
        assert kept.seen == 1

    async def test_a_late_failure_writes_no_letter(self, world: World) -> None:
        late = await _crash(world, policy=RERUN)
        world.clock.advance(31)
        await _crash(world, policy=RERUN)
        assert await world.perform(Fail(late, "final", OOPS, doubtful=False, letter=_of(late))) == [Lost()]
        assert await _letters(world) == ()

    async def test_a_failure_after_a_completion_writes_no_letter(self, world: World) -> None:
        lease = await _crash(world)
        await world.perform(Complete(lease, VALUE))
        assert await world.perform(Fail(lease, "final", OOPS, doubtful=False, letter=_of(lease))) == [Lost()]
        assert await _letters(world) == ()

    async def test_a_list_of_failures_writes_the_letters_of_those_that_have_one(self, world: World) -> None:
        leases = [await _crash(world, key) for key in ("a", "b", "c")]
        answers = await world.perform(
            Fail(leases[0], "final", OOPS, doubtful=False, letter=_of(leases[0])),
            Fail(leases[1], "retry", OOPS, doubtful=False),
            Fail(leases[2], "final", OOPS, doubtful=False, letter=_of(leases[2])),
        )
        assert [type(answer) for answer in answers] == [Recorded] * 3
        records = {one.record for one in await _letters(world)}
        assert records == {leases[0].key.digest, leases[2].key.digest}
        told = [await _stored(world, key) for key in ("a", "b", "c")]
        assert [record is not None and record.retryable for record in told] == [False, True, False]

    @pytest.mark.parametrize("ending", ["final", "doubt"])
    async def test_a_record_is_kept_for_as_long_as_its_letter(self, world: World, ending: Ending) -> None:
        lease = await _crash(world)
        await _fail(world, lease, ending=ending)
        (kept,) = await _letters(world)
        assert await _expires(world) == kept.expires_us
        world.clock.advance(29 * DAY)
        await world.perform(Purge(10))
        assert await _stored(world) is not None, "forgotten before its letter, the event would be processed anew"

    async def test_a_letter_does_not_shorten_the_life_of_its_record(self, world: World) -> None:
        lease = await _crash(world)
        before = await _expires(world)
        await _fail(world, lease, _of(lease, keep_us=1_000_000))
        assert await _expires(world) == before

    async def test_a_completion_takes_its_letter_along(self, world: World) -> None:
        claim = _claim(world)
        letter = await _found(world, PutLetter(_letter(claim.key.digest)))
        other = await _found(world, PutLetter(_letter(b"o" * 32)))
        assert letter is not None
        lease = await _crash(world)
        assert [type(one) for one in await world.perform(Complete(lease, VALUE, letter.id))] == [Recorded]
        assert await _letters(world) == (other,)
        record = await _stored(world)
        assert record is not None
        assert (record.status, record.outcome) == (Status.COMPLETED, VALUE)

    async def test_a_completion_leaves_the_letter_of_another_event_under_the_id(self, world: World) -> None:
        lease = await _crash(world)
        mine = await _found(world, PutLetter(_of(lease)))
        other = await _found(world, PutLetter(_of(lease, reason="reused", type="asset.moved")))
        assert mine is not None
        assert [type(one) for one in await world.perform(Complete(lease, VALUE, mine.id))] == [Recorded]
        assert await _letters(world) == (other,)

    async def test_a_completion_whose_letter_is_gone_completes(self, world: World) -> None:
        lease = await _crash(world)
        assert [type(one) for one in await world.perform(Complete(lease, VALUE, b"n" * 32))] == [Recorded]

    async def test_a_late_completion_leaves_the_letter(self, world: World) -> None:
        claim = _claim(world)
        letter = await _found(world, PutLetter(_letter(claim.key.digest)))
        assert letter is not None
        late = await _crash(world, policy=RERUN)
        world.clock.advance(31)
        await _crash(world, policy=RERUN)
        assert await world.perform(Complete(late, VALUE, letter.id)) == [Lost()]
        assert await _letters(world) == (letter,)

    async def test_a_list_of_completions_takes_along_the_letters_that_are_named(self, world: World) -> None:
        leases = [await _crash(world, key) for key in ("a", "b", "c")]
        letters = [await _found(world, PutLetter(_of(lease))) for lease in leases]
        ids = [letter.id for letter in letters if letter is not None]
        answers = await world.perform(
            Complete(leases[0], VALUE, ids[0]), Complete(leases[1], VALUE), Complete(leases[2], VALUE, ids[2])
        )
        assert [type(answer) for answer in answers] == [Recorded] * 3
        assert await _letters(world) == (letters[1],)

    async def test_a_counted_failure_that_is_final_writes_its_letter(self, world: World) -> None:
        claim = _claim(world)
        answer = await _counted(world, _count(claim, 1, most=1))
        (kept,) = await _letters(world)
        assert (kept.record, kept.seen) == (claim.key.digest, 1)
        assert answer.record.expires_us == kept.expires_us == world.clock.store_clock() + KEEP_US

    async def test_only_the_last_of_counted_failures_writes_the_letter(self, world: World) -> None:
        claim = _claim(world)
        for number in (1, 2):
            await _counted(world, _count(claim, number, most=3))
            assert await _letters(world) == ()
            assert await _expires(world) < world.clock.store_clock() + KEEP_US
        world.clock.advance(1)
        answer = await _counted(world, _count(claim, 3, most=3))
        (kept,) = await _letters(world)
        assert kept.first_us == world.clock.store_clock()
        assert answer.record.expires_us == kept.expires_us

    @pytest.mark.parametrize("before", [0, 1])
    async def test_a_counted_failure_sent_again_writes_one_letter_seen_once(self, world: World, before: int) -> None:
        claim = _claim(world)
        for number in range(before):
            await _counted(world, _count(claim, number + 10, most=before + 1))
        for _ in range(2):
            world.clock.advance(1)
            await _counted(world, _count(claim, 1, most=before + 1))
        (kept,) = await _letters(world)
        assert kept.seen == 1

    async def test_a_failure_that_is_not_counted_writes_no_letter(self, world: World) -> None:
        lease = await _crash(world)
        await world.perform(Complete(lease, VALUE))
        (answer,) = await world.perform(_count(_claim(world), 1, most=1))
        assert isinstance(answer, StateMismatch)
        assert await _letters(world) == ()

    async def test_a_letter_whose_event_fails_once_more_is_the_same_letter(self, world: World) -> None:
        await _fail(world, await _crash(world))
        nonce = await _nonce_of(world)
        world.clock.advance(60)
        await world.perform(Reopen(_claim(world).key.digest, b"r" * 16, nonce, "again"))
        await _fail(world, await _crash(world))
        (kept,) = await _letters(world)
        now = world.clock.store_clock()
        assert (kept.first_us, kept.last_us, kept.seen) == (now - 60_000_000, now, 2)
        assert kept.expires_us == await _expires(world) == now + KEEP_US

    async def test_a_decision_closes_the_letters_of_the_event(self, world: World) -> None:
        lease = await _crash(world)
        await _fail(world, lease, _of(lease, reason="in_doubt"), ending="doubt")
        reused = await _found(world, PutLetter(_of(lease, reason="reused", content=b"another")))
        other = await _found(world, PutLetter(_letter(b"o" * 32)))
        await world.perform(Resolve(lease.key.digest, b"r" * 16, Status.COMPLETED, VALUE, "seen"))
        assert set(await _letters(world)) == {reused, other}

    async def test_a_decision_that_it_did_not_happen_leaves_the_letter_to_be_redriven(self, world: World) -> None:
        lease = await _crash(world)
        await _fail(world, lease, _of(lease, reason="in_doubt"), ending="doubt")
        before = await _letters(world)
        await world.perform(Resolve(lease.key.digest, b"r" * 16, Status.FAILED, None, "not seen"))
        assert await _letters(world) == before, "the broker was released: nobody else has the event"

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    async def test_a_decision_that_it_shall_not_run_closes_the_letters(self, world: World, status: Any) -> None:
        lease = await _crash(world)
        await _fail(world, lease, _of(lease, reason="in_doubt"), ending="doubt")
        error = OOPS if status is Status.FAILED else None
        await world.perform(Resolve(lease.key.digest, b"r" * 16, status, None, "no", error=error))
        assert await _letters(world) == ()

    async def test_a_decision_that_is_refused_leaves_the_letters(self, world: World) -> None:
        lease = await _crash(world)
        await _fail(world, lease)
        (answer,) = await world.perform(Resolve(lease.key.digest, b"r" * 16, Status.COMPLETED, VALUE, "seen"))
        assert isinstance(answer, StateMismatch)
        assert len(await _letters(world)) == 1

    async def test_erasing_a_record_deletes_all_of_its_letters(self, world: World) -> None:
        lease = await _crash(world)
        await _fail(world, lease)
        await _found(world, PutLetter(_of(lease, reason="reused", content=b"another")))
        other = await _found(world, PutLetter(_letter(b"o" * 32)))
        await world.perform(Erase(lease.key.digest, "asked for", lease.key.operation))
        assert await _letters(world) == (other,)

    async def test_an_erasure_that_is_refused_leaves_the_letters(self, world: World) -> None:
        lease = await _crash(world)
        await _found(world, PutLetter(_of(lease)))
        (answer,) = await world.perform(Erase(lease.key.digest, "asked for", lease.key.operation))
        assert isinstance(answer, StateMismatch)
        assert len(await _letters(world)) == 1

    async def test_a_sweep_deletes_letters_that_are_expired(self, world: World) -> None:
        if not await self._purges(world):
            pytest.skip("this store deletes them by itself")
        await _found(world, PutLetter(_letter(b"a" * 32, keep_us=DAY_US)))
        kept = await _found(world, PutLetter(_letter(b"b" * 32)))
        world.clock.advance(DAY)
        await world.client().sweep()
        assert await _letters(world) == (kept,)
