"""Replays: what comes back equals what was returned, type included; what could not be kept is never run again."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from semel.core import codec
from semel.core.codec import same
from semel.core.operations import Complete
from semel.core.policy import Policy
from semel.core.record import Status, pack_outcome
from semel.errors import FailedBefore, InDoubt, InProgress, RecordNotFound, RecordUnreadable, ResultNotKept
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Receipt(msgspec.Struct):
    number: str
    amount: Decimal
    lines: tuple[int, ...] = ()


class Card(msgspec.Struct, tag="card"):
    digits: str


class Cash(msgspec.Struct, tag="cash"):
    till: int


@dataclass(frozen=True)
class Booking:
    room: int
    night: date
    guest: Receipt | None = None


class Address(TypedDict):
    street: str
    number: int


class Point(NamedTuple):
    x: int
    y: float


NOON = datetime(2030, 5, 17, 12, 0, 0, 123456, tzinfo=UTC)
FALSY: list[Any] = [None, 0, 0.0, "", b"", False, [], {}, (), set(), Decimal(0), timedelta(0)]
DECLARED: list[tuple[Any, Any]] = [
    (str, "text"),
    (str, "\u2603 snow and \U0001f600"),
    (int, -(2**63)),
    (int, 2**200),
    (float, 0.1),
    (float, float("inf")),
    (bool, True),
    (bytes, b"\x00\xff"),
    (Decimal, Decimal("10.00")),
    (datetime, NOON),
    (datetime, NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))),
    (datetime, NOON.astimezone(ZoneInfo("Europe/Vienna"))),
    (date, date(2030, 5, 17)),
    (time, time(23, 59, 59)),
    (timedelta, timedelta(days=-1, microseconds=7)),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Receipt, Receipt("r-1", Decimal("9.90"), (1, 2))),
    (Card | Cash, Cash(7)),
    (Booking, Booking(12, date(2030, 5, 17), Receipt("r-2", Decimal(1)))),
    (Address, {"street": "Ring", "number": 1}),
    (Point, Point(1, 2.0)),
    (tuple[int, str], (1, "a")),
    (list[Receipt], [Receipt("r-3", Decimal(3))]),
    (dict[str, Booking], {"b": Booking(1, date(2030, 1, 1))}),
    (dict[int, str], {1: "one"}),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (Receipt | None, None),
    (Literal["yes", "no"], "yes"),
    (Any, [1, "a", None, {"b": (True, 2.5)}]),
    (None, None),
]
SMALL = Policy(max_result=200)


class ReplayContract(Contract):
    """Equal in value and in type, from any process."""

    @pytest.mark.parametrize("value", FALSY, ids=repr)
    async def test_a_falsy_value_is_replayed_as_itself(self, world: World, value: Any) -> None:
        await world.client().run(handler=world.returning(value, note="ran"))
        replay = await world.client().run(handler=world.returning("other"))
        assert replay.replayed
        assert same(replay.value, value)
        assert world.ran == ["ran"]

    @pytest.mark.parametrize(("annotation", "value"), DECLARED, ids=lambda part: str(part)[:30])
    async def test_a_declared_value_is_replayed_in_value_and_type(
        self, world: World, annotation: Any, value: Any
    ) -> None:
        handler = world.returning(value, note="ran")
        first = await world.client().run(handler=handler, returns=annotation)
        replay = await world.client().run(handler=handler, returns=annotation)
        assert (first.replayed, replay.replayed, world.ran) == (False, True, ["ran"])
        assert same(first.value, value)
        assert same(replay.value, value)

    async def test_a_value_other_than_declared_is_replayed_as_what_it_was(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning(1), returns=float)
        assert same(await client.value(returns=float), 1)

    async def test_a_decorated_function_replays_its_declared_result(self, world: World) -> None:
        def charge(order: str, amount: Decimal) -> Receipt:
            world.ran.append(order)
            return Receipt(order, amount)

        clients = [world.client().once(key="order")(charge) for _ in range(2)]
        values = [await client("o-1", Decimal("9.90")) for client in clients]
        assert values == [Receipt("o-1", Decimal("9.90"))] * 2
        assert world.ran == ["o-1"]

    async def test_the_first_caller_gets_the_very_object(self, world: World) -> None:
        value = ["the object"]
        assert await world.client().value(handler=world.returning(value)) is value

    async def test_a_large_value_is_replayed(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning("x" * 900_000, note="ran"))
        assert await client.value() == "x" * 900_000

    async def test_replays_are_counted_in_the_end(self, world: World) -> None:
        client = world.client()
        for _ in range(4):
            await client.run()
        world.clock.advance(5)
        await client.close()
        record = await client.read()
        assert record.replays == 3, f"the record counts {record.replays} replays"


class TombstoneContract(Contract):
    """It ran and its value is gone: that is an answer, and never a reason to run again."""

    @pytest.mark.parametrize(
        ("value", "policy"),
        [(object(), Policy()), ([object()], Policy()), (lambda: None, Policy()), (bytes(range(256)), SMALL)],
        ids=["object", "object inside", "function", "too large"],
    )
    async def test_the_first_caller_gets_a_value_that_cannot_be_kept(
        self, world: World, value: Any, policy: Policy
    ) -> None:
        result = await world.client().run(handler=world.returning(value), policy=policy)
        assert (result.value, result.replayed) == (value, False)

    async def test_a_value_that_cannot_be_encoded_is_not_run_for_twice(self, world: World) -> None:
        await world.client().run(handler=world.returning(object(), note="ran"))
        assert isinstance(await world.client().error(), ResultNotKept)
        assert world.ran == ["ran"]

    async def test_a_value_over_max_result_is_not_run_for_twice(self, world: World) -> None:
        await world.client().run(handler=world.returning(bytes(range(256)), note="ran"), policy=SMALL)
        assert isinstance(await world.client().error(policy=SMALL), ResultNotKept)
        assert world.ran == ["ran"]

    async def test_a_value_of_another_class_than_declared_is_not_run_for_twice(self, world: World) -> None:
        await world.client().run(handler=world.returning(Receipt("r", Decimal(1)), note="ran"), returns=Booking)
        assert isinstance(await world.client().error(returns=Booking), ResultNotKept)
        assert world.ran == ["ran"]

    async def test_a_tombstone_is_a_completed_record(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning(object()))
        assert (await client.read()).status is Status.COMPLETED

    async def test_a_tombstone_says_why(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning(bytes(range(256))), policy=SMALL)
        error = await client.error(policy=SMALL)
        assert isinstance(error, ResultNotKept)
        assert "max_result=200" in error.message

    async def test_a_waiter_is_told_of_a_tombstone(self, world: World) -> None:
        gate = world.gate()
        owner = world.client().start(handler=world.stopping(gate, object()))
        await gate.reached()
        other = world.client()
        waiter = other.start()
        await world.waiting((other, 1))
        gate.open()
        await world.ended(owner, waiter)
        assert isinstance(waiter.error, ResultNotKept)


class VersionContract(Contract):
    """What a newer release wrote is not for this one to judge."""

    @pytest.mark.parametrize(
        "envelope",
        [
            msgspec.msgpack.encode([2, "plain", "", "", b"\xc0"]),
            msgspec.msgpack.encode([1, "protobuf", "", "", b"\xc0"]),
            msgspec.msgpack.encode([1, "plain", "zstd", "", b"\xc0"]),
            msgspec.msgpack.encode([1, "plain", "", "key-7", b"\xc0"]),
            b"\xc1 no envelope at all",
            pack_outcome(codec.PLAIN, b"\xd4\x63\x00"),
        ],
        ids=["version", "codec", "compression", "seal", "damaged", "extension"],
    )
    async def test_an_outcome_of_a_newer_release_is_not_run_again(self, world: World, envelope: bytes) -> None:
        await world.perform(Complete(await world.crash(), envelope))
        assert isinstance(await world.client().error(), RecordUnreadable)
        assert world.ran == []

    async def test_an_outcome_that_no_longer_fits_is_not_run_again(self, world: World) -> None:
        await world.client().run(handler=world.returning("text"))
        assert isinstance(await world.client().error(returns=Receipt), RecordUnreadable)
        assert world.ran == ["text"]

    @pytest.mark.parametrize("elapsed", [0, 3600], ids=["running", "lapsed"])
    async def test_a_fingerprint_of_a_newer_release_is_not_compared(self, world: World, elapsed: float) -> None:
        claim = world.claim()
        await world.perform(msgspec.structs.replace(claim, fingerprint=b"\x7f" + claim.fingerprint[1:]))
        world.clock.advance(elapsed)
        assert isinstance(await world.client().error(), RecordUnreadable)
        assert world.ran == []


class ValueContract(Contract):
    """What an operation gave can be read without a call; nothing runs for that."""

    async def test_the_value_comes_back_as_the_type_that_is_asked_for(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning(Booking(7, date(2026, 3, 1))), returns=Booking)
        assert await client.stored_value(returns=Booking) == Booking(7, date(2026, 3, 1))

    async def test_a_key_without_a_record_has_no_value(self, world: World) -> None:
        with pytest.raises(RecordNotFound):
            await world.client().stored_value()
        assert world.ran == []

    @pytest.mark.parametrize("default", [None, "nothing"])
    async def test_a_default_stands_for_no_record(self, world: World, default: Any) -> None:
        assert await world.client().stored_value(default=default) == default

    async def test_an_expired_record_has_no_value(self, world: World) -> None:
        client = world.client()
        await client.run()
        world.clock.advance(timedelta(days=2).total_seconds())
        with pytest.raises(RecordNotFound):
            await client.stored_value()

    async def test_what_runs_has_no_value_yet_and_is_in_doubt_once_its_lease_is_over(self, world: World) -> None:
        await world.crash()
        client = world.client()
        with pytest.raises(InProgress):
            await client.stored_value(default="nothing")
        world.clock.advance(60)
        with pytest.raises(InDoubt):
            await client.stored_value(default="nothing")

    async def test_a_failure_is_told_in_place_of_a_value(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError()), policy=Policy(final_errors=(ValueError,)))
        with pytest.raises(FailedBefore):
            await client.stored_value(default="nothing")

    async def test_an_erased_value_is_not_kept(self, world: World) -> None:
        client = world.client()
        await client.run()
        await client.erase()
        with pytest.raises(ResultNotKept):
            await client.stored_value(default="nothing")
