"""Stalls: something in a process stands still. Leases of the others are kept, and what cannot be kept is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from semel.core.observer import Event
from semel.core.operations import Claim, Renew
from semel.core.policy import Policy
from semel.errors import InProgress, LeaseLost, StoreUnavailable
from semel.testing.contract.calls import PATIENCE, until
from semel.testing.contract.suite import Contract
from semel.testing.contract.watched import WatchedStore
from semel.testing.contract.world import World

LEASE = 3.0
SHORT = Policy(when_running="reject", lease_for=timedelta(seconds=LEASE), max_runtime=timedelta(seconds=600))
MANY = 4
"""How many leases long something stands still."""


class Listening:
    """An observer that remembers stalls, from whichever thread."""

    def __init__(self) -> None:
        self.stalls: list[Event] = []

    def observe(self, event: Event) -> None:
        if event.kind == "stalled":
            self.stalls.append(event)


class StallContract(Contract):
    """Nobody loses a lease because somebody else of the process is busy."""

    async def test_a_handler_that_blocks_its_thread_costs_nobody_else_the_lease(self, world: World) -> None:
        watched = world.watched()
        door = world.door(watched)
        gate = world.gate()
        other = door.start("other", world.stopping(gate), policy=SHORT)
        await gate.reached()

        def blocks() -> str:
            for _ in range(MANY * 3):
                sent = len(watched.lists(Renew))
                world.clock.advance(LEASE / 3)
                _wait_until(lambda sent=sent: len(watched.lists(Renew)) > sent)  # type: ignore[misc]  # a default
            return "went on"

        assert await door.value("blocks", blocks, policy=SHORT) == "went on"
        assert isinstance(await world.door().error("other", policy=SHORT), InProgress)
        gate.open()
        assert (await world.finish(other)).value == "value"

    async def test_a_round_of_the_lane_that_hangs_costs_nobody_the_lease(self, world: World) -> None:
        watched = world.watched()
        door = world.door(watched)
        gate = world.gate()
        other = door.start("other", world.stopping(gate), policy=SHORT)
        await gate.reached()
        hanging = watched.hold(Claim)
        late = door.start("late", policy=SHORT)
        await hanging.reached()
        await _renewals_go_on(world, watched)
        hanging.release()
        gate.open()
        assert (await world.finish(other)).value == "value"
        await world.ended(late)

    async def test_a_grant_that_is_read_after_its_lease_is_asked_for_anew(self, world: World) -> None:
        watched = world.watched()
        door = world.door(watched)
        late = watched.hold(Claim, after=True)
        seen: list[tuple[int, bool]] = []

        def handler() -> str:
            seen.append((door.current().number, door.current().in_doubt))
            return "ran"

        call = door.start(handler=handler, policy=SHORT)
        await late.reached()
        world.clock.advance(LEASE)
        late.release()
        assert (await world.finish(call)).value == "ran"
        assert seen == [(1, False)], "the attempt that never began was counted, or taken for one that may have run"

    async def test_a_grant_that_is_read_after_somebody_took_over_does_not_run(self, world: World) -> None:
        watched = world.watched()
        late = watched.hold(Claim, after=True)
        call = world.door(watched).start(handler=world.returning("zombie"), policy=SHORT)
        await late.reached()
        world.clock.advance(LEASE)
        await world.door().run(handler=world.returning("successor"), policy=SHORT)
        late.release()
        assert (await world.finish(call)).value == "successor"
        assert world.ran == ["successor"]

    async def test_a_grant_that_always_comes_too_late_is_given_up(self, world: World) -> None:
        watched = world.watched()
        late = watched.hold(Claim, after=True)
        call = world.door(watched).start(policy=SHORT)
        for _ in range(3):
            await late.reached()
            world.clock.advance(LEASE)
            late, before = watched.hold(Claim, after=True), late
            before.release()
        await world.ended(call)
        assert isinstance(call.error, StoreUnavailable)
        assert (call.error.ran, world.ran) == (False, [])

    async def test_a_process_that_stood_still_says_so_once(self, world: World) -> None:
        listening = Listening()
        door = world.door(observer=listening)
        gate = world.gate()
        calls = [door.start(key, world.stopping(gate), policy=SHORT) for key in ("a", "b")]
        await gate.reached(2)
        await world.settled()
        world.clock.advance(LEASE * MANY)
        await world.settled()
        gate.open()
        await world.ended(*calls)
        assert [event.detail for event in listening.stalls] == ["stood still for 11.0 s; 2 leases lapsed"]
        assert [event.seconds for event in listening.stalls] == [LEASE * MANY - LEASE / 3]

    async def test_a_store_that_does_not_answer_is_no_stall(self, world: World) -> None:
        listening = Listening()
        watched = world.watched()
        gate = world.gate()
        watched.refuse(Renew)
        call = world.door(watched, observer=listening).start(handler=world.stopping(gate), policy=SHORT)
        await gate.reached()
        await world.pass_time(LEASE * MANY)
        gate.open()
        await world.ended(call)
        assert listening.stalls == []

    async def test_after_a_stall_no_further_step_begins(self, world: World) -> None:
        door = world.door()
        gate = world.gate()

        async def handler() -> None:
            await gate.passing()
            await door.current().step("charge", world.returning("charged"))

        call = door.start(handler=handler, policy=SHORT)
        await gate.reached()
        await world.settled()
        world.clock.advance(LEASE * MANY)
        gate.open()
        await world.ended(call)
        assert isinstance(call.error, LeaseLost)
        assert world.ran == [], "a step ran although the lease was over"

    async def test_a_step_that_stood_still_is_not_recorded(self, world: World) -> None:
        door = world.door()
        gate = world.gate()

        async def handler() -> None:
            await door.current().step("charge", world.stopping(gate, "charged"))

        call = door.start(handler=handler, policy=SHORT)
        await gate.reached()
        await world.settled()
        world.clock.advance(LEASE * MANY)
        gate.open()
        await world.ended(call)
        record = await world.stored()
        assert isinstance(call.error, LeaseLost)
        assert record is not None
        assert record.steps == ()


async def _renewals_go_on(world: World, watched: WatchedStore) -> None:
    for _ in range(MANY * 3):
        sent = len(watched.lists(Renew))
        world.clock.advance(LEASE / 3)
        await until(lambda sent=sent: len(watched.lists(Renew)) > sent, "a renewal")  # type: ignore[misc]  # a default


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait in this very thread, so that nothing else of it goes on."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience, "nothing was renewed while a handler blocked its thread"
        threading.Event().wait(0.001)
