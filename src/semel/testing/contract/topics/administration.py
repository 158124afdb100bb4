"""Administration: listing by what people search by, sweeping, reconciling in a sweep, and declared capabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, cast

import pytest

from semel.core.key import SHARED
from semel.core.observer import Signal
from semel.core.operations import Found, Pending, PendingInvalidations, Read
from semel.core.policy import Policy
from semel.core.record import Cancelled, DidNotHappen, Happened, Status, Unknown, instant
from semel.core.store import (
    ADMINISTRATION,
    CacheableStore,
    Capability,
    Store,
    lane_wrapper_of,
    listener_of,
    maker_of_separate_drivers,
)
from semel.engine.admin import PAGE, SweepReport
from semel.errors import InProgress, UsageError
from semel.stores.admin import Admin, admin_of
from semel.stores.cache import Cache, TieredStore
from semel.testing.contract.api_client import OPERATION, ApiClient
from semel.testing.contract.suite import Contract, only_async
from semel.testing.contract.world import World

HOUR = 3600.0
KEPT = Policy(keep_for=timedelta(hours=1), final_errors=(ValueError,), retry_errors=(ConnectionError,))
HOLD = Policy(in_doubt="hold")


class RecordsContract(Contract):
    """Reading and listing."""

    async def test_an_unknown_key_has_no_record(self, world: World) -> None:
        assert await world.client().find("nobody") is None

    async def test_a_record_is_read_by_its_own_key(self, world: World) -> None:
        client = world.client()
        record = (await client.run("o-1", scope="acme")).record
        assert record is not None
        assert (await client.find(record.key, operation=None)) == await client.read("o-1", scope="acme")

    async def test_a_running_record_can_be_read(self, world: World) -> None:
        await world.crash()
        assert (await world.client().read()).status is Status.RUNNING

    async def test_an_expired_record_can_be_read_until_it_is_swept(self, world: World) -> None:
        client = world.client()
        await client.run(policy=KEPT)
        world.clock.advance(2 * HOUR)
        assert (await client.read()).status is Status.COMPLETED
        await client.sweep()
        assert await client.find() is None

    async def test_what_it_is_about_is_kept(self, world: World) -> None:
        about = {
            "subject": "order",
            "business_key": "o-1",
            "process_instance": "p-7",
            "requester": "ada",
            "tags": {"till": "7", "ünïcode": "✓"},
        }
        client = world.client()
        await client.run(about=about)
        record = await client.read()
        assert {name: getattr(record.about, name) for name in about} == about

    @pytest.mark.parametrize("status", list(Status))
    async def test_records_are_found_by_status(self, world: World, status: Status) -> None:
        client = await _one_of_each(world)
        assert [record.status for record in await client.records(status=str(status))] == [status]

    async def test_without_a_restriction_every_record_is_listed_oldest_first(self, world: World) -> None:
        client = world.client()
        for key in ("c", "a", "b"):
            await client.run(key)
            world.clock.advance(1)
        assert await client.keys() == ["c", "a", "b"]

    async def test_records_are_found_by_operation(self, world: World) -> None:
        client = world.client()
        await client.run("a", operation="pay")
        await client.run("b", operation="refund")
        assert await client.keys(operation="refund") == ["b"]

    @pytest.mark.parametrize(
        ("scope", "found"),
        [("acme", ["a"]), (("acme", 1), ["b"]), (SHARED, ["c"]), ("nobody", []), (None, ["a", "b", "c"])],
    )
    async def test_records_are_found_by_scope(self, world: World, scope: Any, found: list[str]) -> None:
        client = world.client()
        await client.run("a", scope="acme")
        world.clock.advance(1)
        await client.run("b", scope=("acme", 1))
        world.clock.advance(1)
        await client.run("c")
        assert await client.keys(scope=scope) == found

    async def test_records_are_found_by_the_beginning_of_their_reference(self, world: World) -> None:
        client = world.client()
        await client.run("a")
        await client.run("b")
        reference = (await client.read("b")).reference
        assert await client.keys(reference=reference[:12]) == ["b"]

    async def test_before_and_after_are_half_open(self, world: World) -> None:
        client = world.client()
        moments: list[datetime] = []
        for key in ("a", "b", "c"):
            moments.append(instant(world.clock.store_clock()))
            await client.run(key)
            world.clock.advance(1)
        assert await client.keys(before=moments[1]) == ["a"]
        assert await client.keys(after=moments[1]) == ["b", "c"]
        assert await client.keys(after=moments[1], before=moments[2]) == ["b"]

    async def test_restrictions_add_up(self, world: World) -> None:
        client = world.client()
        await client.run("a", scope="acme", operation="pay", about={"process_instance": "p-1"})
        await client.run("b", scope="acme", operation="refund", about={"process_instance": "p-1"})
        await client.run("c", scope="zenith", operation="pay", about={"process_instance": "p-1"})
        assert await client.keys(
            scope="acme", operation="pay", process_instance="p-1", status="completed", scan=True
        ) == ["a"]

    async def test_more_than_a_page_is_listed_completely_and_in_order(self, world: World) -> None:
        # Two hundred and more at one instant: the cursor has to tell them apart by more than time.
        count = 2 * PAGE + 7
        for start in range(0, count, 50):
            await world.perform(*[world.claim(f"k{number:04}") for number in range(start, min(start + 50, count))])
        keys = await world.client().keys()
        assert sorted(keys) == [f"k{number:04}" for number in range(count)]

    async def test_a_full_last_page_ends_the_list(self, world: World) -> None:
        for start in range(0, PAGE, 50):
            await world.perform(*[world.claim(f"k{number}") for number in range(start, start + 50)])
        assert len(await world.client().keys()) == PAGE

    async def test_a_status_that_does_not_exist_is_refused(self, world: World) -> None:
        with pytest.raises(UsageError):
            await world.client().records(status="done")

    async def test_a_naive_time_is_refused(self, world: World) -> None:
        with pytest.raises(UsageError):
            await world.client().records(before=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake this is about


class SweepContract(Contract):
    """One sweep: delete, mark, ask, report."""

    async def test_settled_and_expired_records_are_deleted(self, world: World) -> None:
        client = world.client()
        await client.run("completed", policy=KEPT)
        await client.error("failed", world.raising(ValueError()), policy=KEPT)
        await client.error("retryable", world.raising(ConnectionError()), policy=KEPT)
        world.clock.advance(HOUR)
        assert (await client.sweep()).deleted == 3
        assert await client.keys() == []

    async def test_a_record_is_not_deleted_before_it_expires(self, world: World) -> None:
        client = world.client()
        await client.run(policy=KEPT)
        world.clock.advance(HOUR - 1e-6)
        assert (await client.sweep()).deleted == 0
        assert (await client.run(policy=KEPT)).replayed

    async def test_a_doubt_is_never_deleted(self, world: World) -> None:
        client = world.client()
        await client.error("raised", world.raising(OSError()), policy=KEPT)
        await world.crash("crashed", policy=KEPT)
        world.clock.advance(1000 * HOUR)
        assert (await client.sweep()).deleted == 0
        assert len(await client.keys(status="in_doubt")) == 2

    async def test_a_running_record_is_never_deleted(self, world: World) -> None:
        gate, client = world.gate(), world.client()
        client.start(handler=world.stopping(gate), policy=KEPT)
        await gate.reached()
        await world.pass_time(600)
        assert await client.sweep() == SweepReport(0, 0, 0, 0)

    async def test_a_lapsed_lease_is_marked_in_doubt(self, world: World) -> None:
        await world.crash()
        world.clock.advance(30)
        assert (await world.client().sweep()).lapsed == 1
        record = await world.stored()
        assert record is not None
        assert (record.status, record.error is not None, record.attempts) == (Status.IN_DOUBT, True, 1)

    async def test_a_live_lease_is_not_marked(self, world: World) -> None:
        await world.crash()
        world.clock.advance(30 - 1e-6)
        assert (await world.client().sweep()).lapsed == 0

    async def test_what_was_marked_is_rerun_like_any_doubt(self, world: World) -> None:
        await world.crash()
        world.clock.advance(30)
        client = world.client()
        await client.sweep()
        seen: list[tuple[int, bool]] = []
        await client.run(handler=lambda: seen.append((client.current().number, client.current().in_doubt)))
        assert seen == [(2, True)]

    async def test_what_is_held_is_counted(self, world: World) -> None:
        client = world.client()
        await client.error("raised", world.raising(OSError()), policy=HOLD)
        await world.crash("crashed", policy=HOLD)
        world.clock.advance(60)
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=2)

    async def test_a_second_sweep_finds_nothing_new(self, world: World) -> None:
        await world.crash(policy=HOLD)
        world.clock.advance(60)
        client = world.client()
        await client.sweep()
        assert await client.sweep() == SweepReport(deleted=0, lapsed=0, reconciled=0, held=1)

    async def test_more_than_a_batch_is_swept(self, world: World) -> None:
        count = 520
        for start in range(0, count, 52):
            await world.perform(*[world.claim(f"k{number}") for number in range(start, start + 52)])
        world.clock.advance(60)
        assert (await world.client().sweep()).lapsed == count


async def _one_of_each(world: World) -> ApiClient:
    """A world with one record of each status."""
    client = world.client()
    await client.run("completed")
    await client.error("failed", world.raising(ValueError()), policy=KEPT)
    await client.error("doubtful", world.raising(OSError()), policy=HOLD)
    await client.error("gone", world.raising(OSError()), policy=HOLD)
    await client.resolve(Cancelled(), "gone")
    await world.crash("running")
    return client


LEASE, QUIET = 30, 30


class SweepingReconcileContract(Contract):
    """A sweep asks on behalf of callers who never came back."""

    async def test_a_sweep_records_what_happened(self, world: World) -> None:
        client = await _ready(world, Happened("found"))
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=1, held=0)
        record = await world.stored()
        assert record is not None
        assert (record.status, world.ran) == (Status.COMPLETED, ["asked"])

    async def test_what_a_sweep_found_is_replayed(self, world: World) -> None:
        client = await _ready(world, Happened("found"))
        await client.sweep()
        assert await world.client().value(policy=Policy()) == "found"

    async def test_a_sweep_frees_what_did_not_happen(self, world: World) -> None:
        client = await _ready(world, DidNotHappen())
        assert (await client.sweep()).reconciled == 1
        seen: list[tuple[int, bool]] = []
        other = world.client()
        await other.run(handler=lambda: seen.append((other.current().number, other.current().in_doubt)))
        assert (world.ran, seen) == (["asked"], [(2, False)])

    async def test_a_sweep_never_runs_the_handler(self, world: World) -> None:
        client = await _ready(world, DidNotHappen())
        await client.sweep()
        await client.sweep()
        assert world.ran == ["asked"]

    async def test_a_sweep_leaves_what_nobody_knows(self, world: World) -> None:
        client = await _ready(world, Unknown())
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert (await client.read()).status is Status.IN_DOUBT

    async def test_a_sweep_survives_a_hook_that_raises(self, world: World) -> None:
        client = await _ready(world, OSError("bank is closed"))
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert (await client.read()).status is Status.IN_DOUBT

    async def test_a_hook_that_raises_does_not_keep_the_others_from_being_asked(self, world: World) -> None:
        client = await _ready(world, OSError(), Happened("found"), keys=("a", "b"))
        report = await client.sweep()
        assert (report.reconciled, report.held) == (1, 1)

    async def test_a_sweep_does_not_ask_before_the_quiet_time_is_over(self, world: World) -> None:
        client = await _ready(world, Happened("found"), elapsed=LEASE + QUIET - 1e-6)
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert world.ran == []

    async def test_a_sweep_does_not_ask_about_what_its_owner_holds(self, world: World) -> None:
        await world.crash(policy=Policy(in_doubt="hold"))
        world.clock.advance(600)
        client = _client(world, Happened("found"))
        assert await client.sweep() == SweepReport(deleted=0, lapsed=1, reconciled=0, held=1)
        assert world.ran == []

    async def test_a_sweep_does_not_ask_about_operations_it_does_not_know(self, world: World) -> None:
        await world.crash(operation="refund", policy=_policy(world, [Happened("found")]))
        world.clock.advance(600)
        assert (await _client(world, Happened("found")).sweep()).held == 1
        assert world.ran == []

    async def test_a_sweep_tells_the_observer_of_each_record_that_it_marks(self, world: World) -> None:
        leases = [await world.crash(key) for key in ("a", "b")]
        world.clock.advance(600)
        signals: list[Signal] = []
        client = world.client(observer=Listener(signals))
        await client.sweep()
        await client.sweep()
        told = sorted(
            (signal.operation, signal.reference, signal.seconds) for signal in signals if signal.kind == "lapsed"
        )
        assert told == sorted((lease.key.operation, lease.key.reference, 600.0) for lease in leases)

    async def test_a_limited_sweep_leaves_the_rest_for_the_next_one(self, world: World) -> None:
        for key in ("a", "b", "c"):
            await world.crash(key)
        world.clock.advance(600)
        client = world.client()
        assert [(await client.sweep(limit=2)).lapsed for _ in range(3)] == [2, 1, 0]

    async def test_a_sweep_of_nothing_is_refused(self, world: World) -> None:
        with pytest.raises(UsageError, match="nothing was swept"):
            await world.client().sweep(limit=0)

    async def test_two_sweeps_at_once_ask_once(self, world: World) -> None:
        clients = [await _ready(world, Happened("found")), _client(world, Happened("found"))]
        calls = [world.start(client.engine.sweep) for client in clients]
        await world.ended(*calls)
        assert [call.error for call in calls] == [None, None]
        assert world.ran == ["asked"]

    async def test_a_sweep_knows_operations_that_were_only_run(self, world: World) -> None:
        policy = _policy(world, [Happened("found")])
        await world.crash("k", policy=policy)
        client = world.client()
        await client.run("another", policy=policy)
        world.ran.clear()
        world.clock.advance(600)
        assert (await client.sweep()).reconciled == 1
        assert world.ran == ["asked"]

    @only_async
    async def test_a_cancelled_sweep_leaves_no_ownerless_claim(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate))
        await world.crash(policy=policy)
        world.clock.advance(600)
        client = world.client()
        _declare(client, policy)
        call = world.start(client.engine.sweep)
        await gate.reached()
        await call.cancel()
        await world.ended(call)
        await client.close()
        assert (await client.read()).status is Status.IN_DOUBT

    @only_async
    async def test_a_slow_hook_of_a_sweep_keeps_its_lease(self, world: World) -> None:
        gate = world.gate()
        policy = Policy(in_doubt="reconcile", reconcile=world.finding(gate), when_running="reject")
        await world.crash(policy=policy)
        world.clock.advance(600)
        client = world.client()
        _declare(client, policy)
        call = world.start(client.engine.sweep)
        await gate.reached()
        await world.pass_time(300)
        assert isinstance(await world.client().error(policy=policy), InProgress)
        gate.open()
        assert (await world.finish(call)).reconciled == 1


def _policy(world: World, verdicts: list[Any]) -> Policy:
    def hook(_attempt: Any) -> Any:
        world.ran.append("asked")
        verdict = verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    return Policy(in_doubt="reconcile", reconcile=hook, reconcile_after=timedelta(seconds=QUIET))


class Listener:
    """An observer that remembers signals."""

    def __init__(self, signals: list[Signal]) -> None:
        self._signals = signals

    def observe(self, signal: Signal) -> None:
        """Remember it."""
        self._signals.append(signal)


def _client(world: World, *verdicts: Any) -> ApiClient:
    """A process that knows the operation, as a service does that declares it and then sweeps."""
    client = world.client()
    _declare(client, _policy(world, list(verdicts)))
    return client


def _declare(client: ApiClient, policy: Policy) -> None:
    def pay(order: str) -> Any:
        client.world.ran.append(order)

    client.once(key="order", operation=OPERATION, policy=policy)(pay)


async def _ready(
    world: World, *verdicts: Any, keys: tuple[str, ...] = ("k",), elapsed: float = LEASE + QUIET
) -> ApiClient:
    """A world in which processes crashed so long ago, and a client that can ask about them."""
    for key in keys:
        await world.crash(key, policy=_policy(world, [Unknown()]))
    world.clock.advance(elapsed)
    return _client(world, *verdicts)


def _count_records(admin: Admin) -> object:
    with admin.sealed_rows() as rows:
        return rows.execute(rows.fill("SELECT count(*) FROM {record_table}"))


_ADMIN_CALLS: Final[dict[Capability, Callable[[Admin], object]]] = {
    Capability.EXAMINE: lambda admin: admin.examine(timedelta(hours=24)),
    Capability.MIGRATE: lambda admin: admin.migrate(),
    Capability.MIGRATION_SQL: lambda admin: admin.pending_sql(),
    Capability.ONLINE_MIGRATION: lambda admin: admin.migrate("pre"),
    Capability.SEARCH_INDEXES: lambda admin: admin.migrate(search=True),
    Capability.RESEAL: _count_records,
    Capability.RESTORE_HOLD: lambda admin: admin.end_restored(),
}
"""One call for each capability of the second port."""
_WAYS_OF_MIGRATING: Final = frozenset({Capability.ONLINE_MIGRATION, Capability.SEARCH_INDEXES})
"""No calls of their own."""


class CapabilityContract(Contract):
    """What a store declares beside operations."""

    async def test_capabilities_are_declared(self, world: World) -> None:
        declared = world.store().capabilities
        assert isinstance(declared, frozenset)
        assert all(isinstance(capability, Capability) for capability in declared), declared

    @pytest.mark.parametrize("capability", sorted(ADMINISTRATION, key=str))
    async def test_administration_works_where_it_is_declared_and_is_refused_elsewhere(
        self, world: World, capability: Capability
    ) -> None:
        store = world.store()
        await world.client().run()  # there is something to administer
        if capability in store.capabilities:
            await asyncio.to_thread(_ADMIN_CALLS[capability], admin_of(store, capability))
            return
        with pytest.raises(UsageError, match="nothing was done"):
            admin_of(store, capability)
        if ADMINISTRATION & store.capabilities:
            other = admin_of(store, next(iter(ADMINISTRATION & store.capabilities)))
            if capability not in _WAYS_OF_MIGRATING:
                with pytest.raises(UsageError, match="nothing was done"):
                    _ADMIN_CALLS[capability](other)

    async def test_a_cache_may_stand_in_front_where_invalidations_are_noted(self, world: World) -> None:
        store = world.store()
        if Capability.INVALIDATIONS not in store.capabilities:
            with pytest.raises(UsageError, match="cannot stand behind a cache"):
                TieredStore(store, Cache(local=10))
            if (
                Capability.LANE_WRAPPER not in store.capabilities
            ):  # such a store passes it on to the one behind its cache
                with pytest.raises(UsageError, match=r"cannot stand behind a cache: .* Nothing was changed\."):
                    await world.perform(Pending(10))
            return
        assert Capability.LANE_WRAPPER in TieredStore(store, Cache(local=10)).capabilities
        assert await world.perform(Pending(10)) == [PendingInvalidations(())]
        await world.client(store).run()
        assert cast("CacheableStore", store).install_id

    async def test_drivers_tell_of_ends_where_that_is_declared(self, world: World) -> None:
        store = world.store()
        driver, async_driver = store.driver(), store.async_driver()
        try:
            for made in (driver, async_driver):
                listener = listener_of(store, made)
                assert (listener is not None) == (Capability.NOTIFY in store.capabilities)
                if listener is not None:
                    listener.listen(lambda digest: None)
        finally:
            driver.close()
            await async_driver.close()

    async def test_drivers_serve_an_event_loop_of_semels_own_where_that_is_declared(self, world: World) -> None:
        store = world.store()
        assert (maker_of_separate_drivers(store) is None) == (Capability.SEPARATE_LOOP not in store.capabilities)
        if Capability.SEPARATE_LOOP in store.capabilities:
            assert isinstance(await asyncio.to_thread(asyncio.run, _read_in_this_loop(store)), Found)

    async def test_a_lane_is_put_around_the_engines_where_that_is_declared(self, world: World) -> None:
        store = world.store()
        wrapper = lane_wrapper_of(store)
        assert (wrapper is not None) == (Capability.LANE_WRAPPER in store.capabilities)
        if wrapper is None:
            return
        asked: list[Any] = []
        lane = wrapper.wrap_lane(_RecordingLane(asked), lambda _target, _driver: _RecordingLane(asked))
        try:
            assert lane.perform(Read(bytes(32))) is asked
        finally:
            lane.close()
        assert asked == [Read(bytes(32))], "a read goes to the engine's lane, once"

    async def test_what_is_no_connection_is_refused_by_both_joins(self, world: World) -> None:
        store = world.store()
        for join in (store.join, store.async_join):
            with pytest.raises(UsageError, match="nothing ran"):
                join(object())


class _RecordingLane:
    """A lane that notes what it is asked, and answers with the list of it."""

    def __init__(self, asked: list[Any]) -> None:
        self._asked = asked

    def perform(self, operation: Any) -> Any:
        self._asked.append(operation)
        return self._asked

    def close(self) -> None:
        pass


async def _read_in_this_loop(store: Store) -> object:
    make_driver = maker_of_separate_drivers(store)
    assert make_driver is not None
    driver = make_driver()
    try:
        (reply,) = await driver.perform([store.plan([Read(bytes(32))], joined=False)])
    finally:
        await driver.close()
    return reply[0] if isinstance(reply, list) else reply
