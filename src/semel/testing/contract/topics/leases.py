"""Leases: how long a claim lasts, who renews it, attempts that lost it and change nothing, stalled processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from semel.core import codec
from semel.core.codec import PlainAdapter
from semel.core.observer import Signal
from semel.core.operations import Checkpoint, Claim, Complete, Fail, Lost, Operation, Purge, Renew, Running
from semel.core.policy import Policy
from semel.core.record import Failure, Lease, Status, Step, StoredRecord
from semel.errors import FailedBefore, InProgress, LeaseLost, ResultNotKept, StoreUnavailable
from semel.testing.clock import START, VirtualClock
from semel.testing.contract.api_client import ApiClient
from semel.testing.contract.calls import PATIENCE, Call, Gate, until
from semel.testing.contract.instrumented_store import InstrumentedStore
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

MICROSECOND = 1e-6
LEASE = 30.0
REJECT = Policy(when_running="reject", lease_for=timedelta(seconds=LEASE))
SHORT = Policy(when_running="reject", lease_for=timedelta(seconds=3), max_runtime=timedelta(seconds=60))


class LeaseContract(Contract):
    """A lease ends at its instant, not before and not after."""

    async def test_a_crashed_owner_blocks_its_key_until_the_lease_ends(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE - MICROSECOND)
        assert isinstance(await world.client().error(policy=REJECT), InProgress)
        assert world.ran == []

    async def test_a_lease_is_over_at_its_very_instant(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE)
        assert await world.client().value(policy=REJECT) == "value"

    async def test_a_take_over_is_told_that_it_is_in_doubt(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE)
        client = world.client()
        seen: list[tuple[int, bool, int]] = []

        def handler() -> None:
            attempt = client.current()
            seen.append((attempt.number, attempt.in_doubt, attempt.fence))

        await client.run(handler=handler, policy=REJECT)
        assert seen == [(2, True, 2)]

    async def test_who_is_refused_learns_how_long_the_lease_lasts(self, world: World) -> None:
        await world.crash(policy=REJECT)
        world.clock.advance(10)
        error = await world.client().error(policy=REJECT)
        assert isinstance(error, InProgress)
        assert error.retry_after == timedelta(seconds=20)

    async def test_the_length_of_a_lease_is_the_owners_affair(self, world: World) -> None:
        await world.crash(policy=SHORT)
        (answer,) = await world.perform(world.claim(policy=REJECT))
        assert answer == Running(3_000_000)

    @pytest.mark.parametrize("skew", [-86_400, 86_400], ids=["a day behind", "a day ahead"])
    async def test_the_clock_of_a_worker_decides_nothing(self, world: World, skew: float) -> None:
        skewed = VirtualClock(START + timedelta(seconds=skew))
        skewed.advance(86_400)
        await world.crash(policy=REJECT)
        world.clock.advance(LEASE - MICROSECOND)
        assert isinstance(await world.client(clock=skewed).error(policy=REJECT), InProgress)
        world.clock.advance(MICROSECOND)
        assert await world.client(clock=skewed).value(policy=REJECT) == "value"

    async def test_an_ended_operation_holds_no_lease(self, world: World) -> None:
        client = world.client()
        await client.run(policy=REJECT)
        assert (await client.read()).lease_until <= world.now()


class RenewalContract(Contract):
    """A handler may take its time: somebody renews for it, but not for ever."""

    async def test_a_long_handler_keeps_its_key_over_many_leases(self, world: World) -> None:
        gate = world.gate()
        owner = world.client().start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        other = world.client()
        for _ in range(10):
            await world.pass_time(3)
            assert isinstance(await other.error(policy=SHORT), InProgress)
        gate.open()
        assert (await world.finish(owner)).value == "value"
        assert world.ran == ["value"]

    async def test_a_lease_is_renewed_at_a_third_of_its_length(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        world.client(watched).start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(30)
        await world.settled()
        assert watched.count(Renew) in (29, 30)

    async def test_all_leases_of_a_process_are_renewed_together(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        gate = world.gate()
        for number in range(20):
            client.start(f"k{number}", world.stopping(gate), policy=SHORT)
        await gate.reached(20)
        await world.pass_time(9)
        await world.settled()
        assert {len(renewals) for renewals in watched.lists(Renew)} == {20}

    async def test_a_short_silence_of_the_store_does_not_cost_the_lease(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        watched.refuse(Renew, times=2)
        owner = world.client(watched).start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(9)
        assert isinstance(await world.client().error(policy=SHORT), InProgress)
        gate.open()
        assert (await world.finish(owner)).value == "value"

    async def test_renewal_ends_with_the_handler(self, world: World) -> None:
        watched = world.watched()
        gate = world.gate()
        client = world.client(watched)
        owner = client.start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(5)
        gate.open()
        await world.finish(owner)
        before = watched.count(Renew)
        await world.pass_time(30)
        assert watched.count(Renew) == before, f"the store was sent {watched.count(Renew)} operations of the kind Renew"

    async def test_renewal_stops_at_max_runtime(self, world: World) -> None:
        gate = world.gate()
        world.client().start(handler=world.stopping(gate, "wedged"), policy=SHORT)
        await gate.reached()
        await world.pass_time(63)
        assert await world.client().value(handler=world.returning("successor"), policy=SHORT) == "successor"

    async def test_a_handler_past_max_runtime_is_told(self, world: World) -> None:
        client = world.client()
        gate = world.gate()
        told: list[BaseException] = []

        async def wedged() -> None:
            await gate.passing()
            try:
                client.current()
            except LeaseLost as error:
                told.append(error)
                raise

        owner = client.start(handler=wedged, policy=SHORT)
        await gate.reached()
        await world.pass_time(60)
        await world.settled()
        gate.open()
        await world.ended(owner)
        assert len(told) == 1


STALL_LEASE = 3.0
STALL_SHORT = Policy(
    when_running="reject", lease_for=timedelta(seconds=STALL_LEASE), max_runtime=timedelta(seconds=600)
)
MANY = 4
"""How many leases long something stands still."""


class Listening:
    """An observer that remembers stalls, from whichever thread."""

    def __init__(self) -> None:
        self.stalls: list[Signal] = []

    def observe(self, event: Signal) -> None:
        if event.kind == "stalled":
            self.stalls.append(event)


class StallContract(Contract):
    """Nobody loses a lease because somebody else of the process is busy."""

    async def test_a_handler_that_blocks_its_thread_costs_nobody_else_the_lease(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        gate = world.gate()
        other = client.start("other", world.stopping(gate), policy=STALL_SHORT)
        await gate.reached()

        def blocks() -> str:
            for _ in range(MANY * 3):
                sent = len(watched.lists(Renew))
                world.clock.advance(STALL_LEASE / 3)
                _wait_until(lambda sent=sent: len(watched.lists(Renew)) > sent)  # type: ignore[misc]  # a default
            return "went on"

        assert await client.value("blocks", blocks, policy=STALL_SHORT) == "went on"
        assert isinstance(await world.client().error("other", policy=STALL_SHORT), InProgress)
        gate.open()
        assert (await world.finish(other)).value == "value"

    async def test_a_round_of_the_lane_that_hangs_costs_nobody_the_lease(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        gate = world.gate()
        other = client.start("other", world.stopping(gate), policy=STALL_SHORT)
        await gate.reached()
        hanging = watched.hold(Claim)
        late = client.start("late", policy=STALL_SHORT)
        await hanging.reached()
        await _renewals_go_on(world, watched)
        hanging.release()
        gate.open()
        assert (await world.finish(other)).value == "value"
        await world.ended(late)

    async def test_a_grant_that_is_read_after_its_lease_is_asked_for_anew(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        late = watched.hold(Claim, after=True)
        seen: list[tuple[int, bool]] = []

        def handler() -> str:
            seen.append((client.current().number, client.current().in_doubt))
            return "ran"

        call = client.start(handler=handler, policy=STALL_SHORT)
        await late.reached()
        world.clock.advance(STALL_LEASE)
        late.release()
        assert (await world.finish(call)).value == "ran"
        assert seen == [(1, False)], "the attempt that never began was counted, or taken for one that may have run"

    async def test_a_grant_that_is_read_after_somebody_took_over_does_not_run(self, world: World) -> None:
        watched = world.watched()
        late = watched.hold(Claim, after=True)
        call = world.client(watched).start(handler=world.returning("zombie"), policy=STALL_SHORT)
        await late.reached()
        world.clock.advance(STALL_LEASE)
        await world.client().run(handler=world.returning("successor"), policy=STALL_SHORT)
        late.release()
        assert (await world.finish(call)).value == "successor"
        assert world.ran == ["successor"]

    async def test_a_grant_that_always_comes_too_late_is_given_up(self, world: World) -> None:
        watched = world.watched()
        late = watched.hold(Claim, after=True)
        call = world.client(watched).start(policy=STALL_SHORT)
        for _ in range(3):
            await late.reached()
            world.clock.advance(STALL_LEASE)
            late, before = watched.hold(Claim, after=True), late
            before.release()
        await world.ended(call)
        assert isinstance(call.error, StoreUnavailable)
        assert (call.error.ran, world.ran) == (False, [])

    async def test_a_process_that_stood_still_says_so_once(self, world: World) -> None:
        listening = Listening()
        client = world.client(observer=listening)
        gate = world.gate()
        calls = [client.start(key, world.stopping(gate), policy=STALL_SHORT) for key in ("a", "b")]
        await gate.reached(2)
        await world.settled()
        world.clock.advance(STALL_LEASE * MANY)
        await world.settled()
        gate.open()
        await world.ended(*calls)
        assert [event.detail for event in listening.stalls] == ["stood still for 11.0 s; 2 leases lapsed"]
        assert [event.seconds for event in listening.stalls] == [STALL_LEASE * MANY - STALL_LEASE / 3]

    async def test_a_store_that_does_not_answer_is_no_stall(self, world: World) -> None:
        listening = Listening()
        watched = world.watched()
        gate = world.gate()
        watched.refuse(Renew)
        call = world.client(watched, observer=listening).start(handler=world.stopping(gate), policy=STALL_SHORT)
        await gate.reached()
        await world.pass_time(STALL_LEASE * MANY)
        gate.open()
        await world.ended(call)
        assert listening.stalls == []

    async def test_after_a_stall_no_further_step_begins(self, world: World) -> None:
        client = world.client()
        gate = world.gate()

        async def handler() -> None:
            await gate.passing()
            await client.current().step("charge", world.returning("charged"))

        call = client.start(handler=handler, policy=STALL_SHORT)
        await gate.reached()
        await world.settled()
        world.clock.advance(STALL_LEASE * MANY)
        gate.open()
        await world.ended(call)
        assert isinstance(call.error, LeaseLost)
        assert world.ran == [], "a step ran although the lease was over"

    async def test_a_step_that_stood_still_is_not_recorded(self, world: World) -> None:
        client = world.client()
        gate = world.gate()

        async def handler() -> None:
            await client.current().step("charge", world.stopping(gate, "charged"))

        call = client.start(handler=handler, policy=STALL_SHORT)
        await gate.reached()
        await world.settled()
        world.clock.advance(STALL_LEASE * MANY)
        gate.open()
        await world.ended(call)
        record = await world.stored()
        assert isinstance(call.error, LeaseLost)
        assert record is not None
        assert record.steps == ()


async def _renewals_go_on(world: World, watched: InstrumentedStore) -> None:
    for _ in range(MANY * 3):
        sent = len(watched.lists(Renew))
        world.clock.advance(STALL_LEASE / 3)
        await until(lambda sent=sent: len(watched.lists(Renew)) > sent, "a renewal")  # type: ignore[misc]  # a default


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait in this very thread, so that nothing else of it goes on."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience, "nothing was renewed while a handler blocked its thread"
        threading.Event().wait(0.001)


LEASED = Policy(lease_for=timedelta(seconds=30))
FINAL = Policy(final_errors=(ValueError,))
VALUE = codec.encode("zombie", PlainAdapter(), 1000)
OOPS = Failure("builtins.OSError", "too late")
LATE: dict[str, Callable[[Lease], Operation]] = {
    "renew": lambda lease: Renew(lease, 30_000_000),
    "complete": lambda lease: Complete(lease, VALUE),
    "fail final": lambda lease: Fail(lease, "final", OOPS, doubtful=False),
    "fail retry": lambda lease: Fail(lease, "retry", OOPS, doubtful=False),
    "fail doubt": lambda lease: Fail(lease, "doubt", OOPS, doubtful=True),
    "give back": lambda lease: Fail(lease, "retry", OOPS, doubtful=False, started=False),
    "checkpoint": lambda lease: Checkpoint(lease, Step(0, "reserve", VALUE)),
}
late = pytest.mark.parametrize("attempted", LATE.values(), ids=LATE.keys())


class LateWriteContract(Contract):
    """The store itself refuses every write under an old lease."""

    @late
    async def test_a_late_write_changes_nothing_while_the_successor_runs(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.crash()
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_changes_nothing_after_the_successor_completed(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.client().run()
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_changes_nothing_after_the_successor_failed(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.client().error(handler=world.raising(ConnectionError()))
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_does_not_reach_into_a_new_life_of_the_key(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.client().run(policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        await world.perform(Purge(100))
        # The fence begins at 1 again, so only the nonce tells the two lives apart.
        assert (await world.crash()).fence == zombie.fence
        await _is_refused(world, attempted(zombie))

    @late
    async def test_a_late_write_makes_no_record_where_there_is_none(
        self, world: World, attempted: Callable[[Lease], Operation]
    ) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.client().run(policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        await world.perform(Purge(100))
        await _is_refused(world, attempted(zombie))

    async def test_a_late_renewal_does_not_revive_a_doubt(self, world: World) -> None:
        zombie = await world.crash()
        world.clock.advance(60)
        await world.client().sweep()
        await _is_refused(world, Renew(zombie, 30_000_000))


class ZombieContract(Contract):
    """A handler that outlives its lease: its caller gets what is recorded, never the handler's own value."""

    async def test_the_caller_of_a_zombie_gets_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.client().run(handler=world.returning("successor"))
        gate.open()
        result = await world.finish(zombie)
        assert (result.value, result.replayed) == ("successor", True)

    async def test_a_late_completion_leaves_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.client().run(handler=world.returning("successor"))
        before = await world.stored()
        gate.open()
        await world.ended(zombie)
        assert await world.stored() == before

    async def test_the_caller_of_a_zombie_gets_a_recorded_failure(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.client().error(handler=world.raising(ValueError("no")), policy=FINAL)
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, FailedBefore)

    async def test_the_caller_of_a_zombie_is_told_that_the_recorded_value_was_erased(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        successor = world.client()
        await successor.run(handler=world.returning("successor"))
        await successor.erase()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, ResultNotKept), f"the late worker's caller got {zombie.error!r}"

    async def test_the_caller_of_a_zombie_is_told_when_there_is_no_outcome_yet(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.crash()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)

    @pytest.mark.parametrize("error", [None, OSError("late")], ids=["returned", "raised"])
    async def test_the_caller_of_a_zombie_is_not_given_the_outcome_of_another_request(
        self, world: World, error: Exception | None
    ) -> None:
        zombie, gate, _ = await _cut_off(world, error=error, fingerprint={"amount": 1})
        await world.client().run(fingerprint={"amount": 1}, policy=Policy(keep_for=timedelta(hours=1)))
        world.clock.advance(3600)
        stranger = await world.client().run(handler=world.returning("stranger"), fingerprint={"amount": 2})
        assert (stranger.value, stranger.replayed) == ("stranger", False), "the key was not free for another request"
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost), f"the zombie was given {zombie.result}"

    async def test_the_caller_of_a_zombie_that_raised_gets_the_recorded_value(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world, error=OSError("late"))
        await world.client().run(handler=world.returning("successor"))
        gate.open()
        assert (await world.finish(zombie)).value == "successor"

    async def test_a_late_failure_does_not_disturb_the_successor(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world, error=OSError("late"))
        successor_gate = world.gate()
        successor = world.client().start(handler=world.stopping(successor_gate, "successor"))
        await successor_gate.reached()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)
        successor_gate.open()
        assert (await world.finish(successor)).value == "successor"

    async def test_a_completion_that_nobody_overtook_is_recorded(self, world: World) -> None:
        slow, gate, _ = await _cut_off(world)
        gate.open()
        assert (await world.finish(slow)).value == "zombie"
        assert await world.client().value() == "zombie"

    async def test_a_doubt_that_was_reported_is_not_completed_behind_its_back(self, world: World) -> None:
        zombie, gate, _ = await _cut_off(world)
        await world.client().sweep()
        gate.open()
        await world.ended(zombie)
        assert isinstance(zombie.error, LeaseLost)
        assert (await world.client().read()).status is Status.IN_DOUBT

    @pytest.mark.parametrize("touch", ["current", "fence", "derive", "step"])
    async def test_a_zombie_that_touches_its_attempt_is_stopped(self, world: World, touch: str) -> None:
        watched = world.watched()
        watched.refuse(Renew)
        client, gate = world.client(watched), world.gate()

        async def handler() -> str:
            attempt = client.current()
            await gate.passing()
            match touch:
                case "current":
                    client.current()
                case "fence":
                    world.ran.append(attempt.fence)
                case "derive":
                    world.ran.append(attempt.derive("charge"))
                case "step":
                    await attempt.step("reserve", world.returning("step"))
            world.ran.append("went on")
            return "zombie"

        zombie = client.start(handler=handler, policy=LEASED)
        await gate.reached()
        await world.pass_time(60)
        await world.settled()
        await world.client().run(handler=world.returning("successor"))
        gate.open()
        assert (await world.finish(zombie)).value == "successor"
        assert world.ran == ["successor"]


async def _cut_off(
    world: World, error: Exception | None = None, fingerprint: object = None
) -> tuple[Call, Gate, ApiClient]:
    """A process whose handler runs on while its renewals reach nobody, and whose lease is over by now."""
    watched = world.watched()
    watched.refuse(Renew)
    client, gate = world.client(watched), world.gate()
    call = client.start(handler=world.stopping(gate, "zombie", error), policy=LEASED, fingerprint=fingerprint)
    await gate.reached()
    await world.pass_time(60)
    await world.settled()
    return call, gate, client


async def _is_refused(world: World, operation: Operation) -> None:
    before: StoredRecord | None = await world.stored()
    (answer,) = await world.perform(operation)
    assert answer == Lost()
    assert await world.stored() == before
