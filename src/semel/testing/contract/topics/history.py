"""History: what happened to a record, who held it, and when nothing is written for it."""

from __future__ import annotations

import os
import socket

import pytest
from msgspec.structs import replace

from semel.core.operations import (
    Checkpoint,
    Claim,
    Complete,
    Counted,
    CountFailure,
    Erase,
    Fail,
    Granted,
    HistoryFound,
    MarkLapsed,
    Operation,
    Purge,
    PurgeWorkers,
    ReadHistory,
    Recorded,
    RegisterWorker,
    Reopen,
    Resolve,
)
from semel.core.policy import Policy
from semel.core.record import (
    ERASED_FAILURE,
    LEASE_ENDED,
    MOST_INSIDE,
    WORKER_KEPT_US,
    DidNotHappen,
    Ending,
    Entry,
    EntryEnding,
    Failure,
    Happened,
    HistoryEntry,
    Lease,
    Status,
    Step,
    Worker,
)
from semel.errors import RecordNotFound
from semel.testing.contract.suite import Contract
from semel.testing.contract.topics.erasing import VALUE
from semel.testing.contract.world import World

OOPS = Failure("app.Broke", "card of Ann Personal")
RERUN = Policy(in_doubt="rerun")
RETRY = Policy(retry_errors=(ValueError,))
WORKER = Worker(b"worker", "host-1", 4711, "1.2.3")
MOST = 250


async def _history(world: World, key: str = "k") -> HistoryFound:
    claim = world.claim(key)
    (found,) = await world.perform(ReadHistory(claim.key.digest, claim.key.operation))
    assert isinstance(found, HistoryFound)
    return found


async def _entries(world: World, key: str = "k") -> list[Entry]:
    return list((await _history(world, key)).entries)


async def _told(world: World, key: str = "k") -> list[tuple[str, int, str | None]]:
    """Kind, number and ending of each entry."""
    return [(entry.kind, entry.number, entry.ending) for entry in await _entries(world, key)]


def _nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _count(claim: Claim, number: int, most: int | None = None) -> CountFailure:
    return CountFailure(claim.key, claim.fingerprint, _nonce(number), OOPS, claim.terms, claim.about, most)


async def _final(world: World) -> Lease:
    lease = await world.crash()
    await world.perform(Fail(lease, "final", OOPS, doubtful=False))
    return lease


class HistoryContract(Contract, calls=False):
    """What each operation leaves in the history of a record."""

    async def test_a_first_attempt_that_completes_writes_no_entry(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Checkpoint(lease, Step(0, "a", VALUE)))
        await world.perform(Complete(lease, VALUE))
        found = await _history(world)
        assert found.entries == ()
        assert found.record == await world.stored()

    async def test_the_history_of_no_record_is_none(self, world: World) -> None:
        found = await _history(world)
        assert (found.record, found.entries, found.workers) == (None, (), ())

    @pytest.mark.parametrize(
        ("ending", "expected"), [("final", "failed"), ("retry", "retryable"), ("doubt", "in_doubt")]
    )
    async def test_a_failed_attempt_is_entered(self, world: World, ending: Ending, expected: EntryEnding) -> None:
        lease = await world.crash()
        started = world.clock.store_clock()
        world.clock.advance(2)
        await world.perform(Fail(lease, ending, OOPS, doubtful=ending == "doubt"))
        (entry,) = await _entries(world)
        ended = started + 2_000_000
        assert entry == Entry(1, "attempt", 1, started, ended, lease.nonce, expected, OOPS)

    async def test_a_list_of_failures_is_entered_one_by_one(self, world: World) -> None:
        leases = [await world.crash(key) for key in ("a", "b", "c")]
        await world.perform(
            Fail(leases[0], "final", OOPS, doubtful=False),
            Fail(leases[1], "retry", OOPS, doubtful=False, started=False),
            Fail(leases[2], "doubt", OOPS, doubtful=True),
        )
        told = [await _told(world, key) for key in ("a", "b", "c")]
        assert told == [[("attempt", 1, "failed")], [], [("attempt", 1, "in_doubt")]]

    async def test_an_attempt_whose_handler_was_never_called_is_not_entered(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Fail(lease, "retry", OOPS, doubtful=False, started=False))
        assert await _entries(world) == []

    async def test_a_failure_sent_again_is_entered_once(self, world: World) -> None:
        lease = await world.crash()
        for _ in range(2):
            world.clock.advance(1)
            await world.perform(Fail(lease, "retry", OOPS, doubtful=False))
        assert await _told(world) == [("attempt", 1, "retryable")]

    async def test_an_attempt_that_is_taken_over_is_entered_by_the_claim(self, world: World) -> None:
        lease = await world.crash(policy=RERUN)
        started = world.clock.store_clock()
        world.clock.advance(31)
        await world.crash(policy=RERUN)
        (entry,) = await _entries(world)
        now = world.clock.store_clock()
        assert entry == Entry(1, "taken_over", 1, started, now, lease.nonce, "in_doubt", None)

    async def test_a_list_of_claims_enters_what_each_takes_over(self, world: World) -> None:
        keys = ("a", "b", "c")
        for key in keys[:2]:
            await world.crash(key, policy=RERUN)
        world.clock.advance(31)
        await world.perform(*[world.claim(key, policy=RERUN) for key in keys])
        told = [await _told(world, key) for key in keys]
        assert told == [[("taken_over", 1, "in_doubt")], [("taken_over", 1, "in_doubt")], []]

    async def test_a_claim_sent_again_enters_the_take_over_once(self, world: World) -> None:
        await world.crash(policy=RERUN)
        world.clock.advance(31)
        claim = world.claim(policy=RERUN)
        for _ in range(2):
            (answer,) = await world.perform(claim)
            assert isinstance(answer, Granted)
        assert await _told(world) == [("taken_over", 1, "in_doubt")]

    async def test_an_attempt_that_failed_is_not_entered_again_by_the_next_claim(self, world: World) -> None:
        endings: tuple[Ending, ...] = ("retry", "doubt")
        for ending in endings:
            lease = await world.crash(policy=RERUN)
            await world.perform(Fail(lease, ending, OOPS, doubtful=ending == "doubt"))
        await world.perform(Complete(await world.crash(policy=RERUN), VALUE))
        assert await _told(world) == [("attempt", 1, "retryable"), ("attempt", 2, "in_doubt")]

    async def test_a_refused_claim_enters_nothing(self, world: World) -> None:
        await world.crash(policy=RERUN)
        await world.perform(world.claim(policy=RERUN))
        await world.perform(world.claim(asked="other"))
        assert await _entries(world) == []

    async def test_a_late_worker_enters_nothing(self, world: World) -> None:
        late = await world.crash(policy=RERUN)
        world.clock.advance(31)
        await world.crash(policy=RERUN)
        await world.perform(Fail(late, "final", OOPS, doubtful=False))
        assert await _told(world) == [("taken_over", 1, "in_doubt")]

    async def test_a_lapsed_lease_is_entered_by_the_sweep(self, world: World) -> None:
        lease = await world.crash()
        started = world.clock.store_clock()
        world.clock.advance(31)
        await world.perform(MarkLapsed(10))
        await world.perform(MarkLapsed(10))
        (entry,) = await _entries(world)
        now = world.clock.store_clock()
        assert entry == Entry(1, "attempt", 1, started, now, lease.nonce, "in_doubt", LEASE_ENDED)

    async def test_a_decision_is_entered_once(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Fail(lease, "doubt", OOPS, doubtful=True))
        world.clock.advance(5)
        resolve = Resolve(lease.key.digest, _nonce(7), Status.FAILED, None, "note")
        for _ in range(2):
            await world.perform(resolve)
        now = world.clock.store_clock()
        assert (await _entries(world))[1:] == [Entry(2, "resolved", 1, now, now, _nonce(7), "retryable", None)]

    async def test_a_stated_failure_is_entered_with_its_text(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Fail(lease, "doubt", OOPS, doubtful=True))
        stated = Failure("semel.Failed", "the bank said no")
        await world.perform(Resolve(lease.key.digest, _nonce(7), Status.FAILED, None, "note", error=stated))
        assert (await _entries(world))[-1].error == stated
        assert await _told(world) == [("attempt", 1, "in_doubt"), ("resolved", 1, "failed")]

    @pytest.mark.parametrize("force", [False, True])
    async def test_a_lease_that_a_decision_ends_is_entered_with_it(self, world: World, force: bool) -> None:
        lease = await world.crash()
        if not force:
            world.clock.advance(31)
        await world.perform(Resolve(lease.key.digest, _nonce(7), Status.CANCELLED, None, "note", force=force))
        assert await _told(world) == [("attempt", 1, "in_doubt"), ("resolved", 1, "cancelled")]
        assert (await _entries(world))[0].nonce == lease.nonce

    async def test_a_correction_keeps_the_attempt_whose_value_it_replaces(self, world: World) -> None:
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        completed = world.clock.store_clock()
        for number, corrects in ((7, lease.nonce), (8, _nonce(7))):
            world.clock.advance(1)
            await world.perform(
                Resolve(lease.key.digest, _nonce(number), Status.COMPLETED, VALUE, "note", corrects=corrects)
            )
        first, *rest = await _entries(world)
        assert first == Entry(1, "attempt", 1, completed, completed, lease.nonce, "completed", None)
        assert [(entry.kind, entry.nonce) for entry in rest] == [("resolved", _nonce(7)), ("resolved", _nonce(8))]

    async def test_a_reopening_is_entered_once_with_the_attempts_before_it(self, world: World) -> None:
        lease = await _final(world)
        reopen = Reopen(lease.key.digest, _nonce(7), lease.nonce, "note")
        for _ in range(2):
            await world.perform(reopen)
        await world.perform(Fail(await world.crash(), "final", OOPS, doubtful=False))
        expected = [("attempt", 1, "failed"), ("reopened", 1, "retryable"), ("attempt", 1, "failed")]
        assert await _told(world) == expected

    async def test_counted_failures_are_entered_once_each(self, world: World) -> None:
        claim = world.claim()
        for number in (1, 1, 2, 2):
            (answer,) = await world.perform(_count(claim, number, 2))
            assert isinstance(answer, Counted)
        entries = await _entries(world)
        assert [(entry.number, entry.nonce, entry.ending, entry.error) for entry in entries] == [
            (1, _nonce(1), "retryable", OOPS),
            (2, _nonce(2), "failed", OOPS),
        ]

    async def test_erasing_takes_the_texts_of_errors_and_is_entered_once(self, world: World) -> None:
        lease = await _final(world)
        world.clock.advance(3)
        erased = world.clock.store_clock()
        for _ in range(2):
            await world.perform(Erase(lease.key.digest, "note"))
            world.clock.advance(1)
        failed, erasure = await _entries(world)
        assert (failed.kind, failed.ending, failed.error) == ("attempt", "failed", ERASED_FAILURE)
        assert erasure == Entry(1, "erased", 1, erased, erased, None, None, None)

    async def test_erasing_a_completed_record_takes_the_texts_of_earlier_attempts(self, world: World) -> None:
        await world.perform(Fail(await world.crash(), "retry", OOPS, doubtful=False))
        lease = await world.crash()
        await world.perform(Complete(lease, VALUE))
        await world.perform(Erase(lease.key.digest, "note"))
        assert OOPS.message not in repr(await _history(world))
        assert await _told(world) == [("attempt", 1, "retryable"), ("erased", 2, None)]

    async def test_a_next_life_begins_without_entries(self, world: World) -> None:
        await _final(world)
        world.clock.advance(Policy().keep_for.total_seconds() + 1)
        await world.perform(Complete(await world.crash(), VALUE))
        assert await _entries(world) == []

    async def test_a_counted_failure_begins_a_next_life_without_entries(self, world: World) -> None:
        await _final(world)
        world.clock.advance(Policy().keep_for.total_seconds() + 1)
        await world.perform(_count(world.claim(), 7))
        assert [entry.nonce for entry in await _entries(world)] == [_nonce(7)]

    async def test_entries_are_deleted_with_their_record(self, world: World) -> None:
        await _final(world)
        world.clock.advance(Policy().keep_for.total_seconds() + 1)
        await world.perform(Purge(10))
        found = await _history(world)
        assert (found.record, found.entries) == (None, ())

    async def test_the_newest_entries_are_kept(self, world: World) -> None:
        claim = world.claim()
        for number in range(1, MOST + 1):
            await world.perform(_count(claim, number))
        numbers = [entry.number for entry in await _entries(world)]
        assert MOST_INSIDE <= len(numbers) <= 100, f"{len(numbers)} entries are kept"
        assert numbers == list(range(MOST + 1 - len(numbers), MOST + 1))

    async def test_a_list_of_histories_is_answered_in_order(self, world: World) -> None:
        await _final(world)
        known, unknown = world.claim("k").key, world.claim("unknown").key
        operations: list[Operation] = [ReadHistory(key.digest, key.operation) for key in (unknown, known)]
        answers = await world.perform(*operations)
        found = [len(answer.entries) for answer in answers if isinstance(answer, HistoryFound)]
        assert found == [0, 1]


class HolderContract(Contract, calls=False):
    """Who a nonce belongs to."""

    async def test_a_worker_is_found_by_the_nonces_of_a_history(self, world: World) -> None:
        (noted,) = await world.perform(RegisterWorker(WORKER))
        assert isinstance(noted, Recorded)
        claim = replace(world.claim(), nonce=WORKER.process + bytes(10))
        (granted,) = await world.perform(claim)
        assert isinstance(granted, Granted)
        found = await _history(world)
        assert found.workers == (replace(WORKER, started_us=world.clock.store_clock()),)

    async def test_an_unknown_worker_is_left_out(self, world: World) -> None:
        await world.perform(RegisterWorker(WORKER))
        await world.crash()
        assert (await _history(world)).workers == ()

    async def test_a_worker_noted_again_has_the_start_of_the_first_time(self, world: World) -> None:
        started = world.clock.store_clock()
        await world.perform(RegisterWorker(WORKER))
        world.clock.advance(3600)
        await world.perform(RegisterWorker(replace(WORKER, host="host-2")))
        await world.perform(replace(world.claim(), nonce=WORKER.process + bytes(10)))
        assert (await _history(world)).workers == (replace(WORKER, host="host-2", started_us=started),)

    async def test_workers_are_no_records(self, world: World) -> None:
        await world.perform(RegisterWorker(WORKER))
        await world.crash("k")
        client = world.client()
        assert await client.keys() == ["k"]

    async def test_purging_workers_keeps_those_that_gave_a_sign(self, world: World) -> None:
        await world.perform(RegisterWorker(WORKER))
        world.clock.advance(WORKER_KEPT_US / 1_000_000 - 1)
        await world.perform(PurgeWorkers(WORKER_KEPT_US))
        await world.perform(replace(world.claim(), nonce=WORKER.process + bytes(10)))
        assert [worker.host for worker in (await _history(world)).workers] == [WORKER.host]


class HistoryOfCallsContract(Contract):
    """What `history` shows of calls."""

    async def test_a_call_that_returned_is_one_attempt_of_this_process(self, world: World) -> None:
        client = world.client()
        started = world.now()
        await client.run("k")
        await client.close()
        (entry,) = await client.history("k")
        assert entry.holder is not None, "the process is not known"
        assert (entry.holder.host, entry.holder.pid) == (socket.gethostname(), os.getpid())
        assert replace(entry, holder=None) == HistoryEntry("attempt", 1, started, started, None, "completed", None)

    async def test_who_holds_a_running_call_is_known_while_it_runs(self, world: World) -> None:
        client, gate = world.client(), world.gate()
        call = client.start("k", world.stopping(gate))
        await gate.reached()
        await world.pass_time(2)
        (entry,) = await world.client().history("k")
        assert (entry.kind, entry.number, entry.ended, entry.ending) == ("attempt", 1, None, None)
        assert entry.holder is not None, "the holder is not known two seconds after the claim"
        assert entry.holder.pid == os.getpid()
        gate.open()
        await world.finish(call)

    async def test_attempts_and_decisions_are_told_in_their_order(self, world: World) -> None:
        client = world.client()
        await client.error("k", world.raising(OSError("broke")), policy=Policy(in_doubt="hold"))
        await client.resolve(DidNotHappen(), "k")
        await client.run("k")
        told = [(entry.kind, entry.number, entry.ending) for entry in await client.history("k")]
        assert told == [("attempt", 1, "in_doubt"), ("resolved", 1, "retryable"), ("attempt", 2, "completed")]

    async def test_the_error_of_an_attempt_is_told_although_the_next_one_completed(self, world: World) -> None:
        client = world.client()
        await client.error("k", world.raising(ValueError("declined")), policy=RETRY)
        await client.run("k", policy=RETRY)
        assert (await client.read("k")).error is None
        first, second = await client.history("k")
        assert first.error == Failure("builtins.ValueError", "declined")
        assert second.error is None

    async def test_a_resolved_value_is_no_attempt(self, world: World) -> None:
        client = world.client()
        await world.crash("k", policy=Policy(in_doubt="hold"))
        world.clock.advance(31)
        await client.resolve(Happened("value"), "k")
        told = [(entry.kind, entry.ending) for entry in await client.history("k")]
        assert told == [("attempt", "in_doubt"), ("resolved", "completed")]

    async def test_an_erased_record_tells_its_attempt_before_the_erasure(self, world: World) -> None:
        client = world.client()
        await client.run("k")
        await client.erase("k")
        told = [(entry.kind, entry.ending) for entry in await client.history("k")]
        assert told == [("attempt", "completed"), ("erased", None)]

    async def test_there_is_no_history_without_a_record(self, world: World) -> None:
        with pytest.raises(RecordNotFound):
            await world.client().history("k")

    async def test_an_expired_record_has_no_history(self, world: World) -> None:
        client = world.client()
        await client.run("k")
        world.clock.advance(Policy().keep_for.total_seconds() + 1)
        with pytest.raises(RecordNotFound):
            await client.history("k")
