"""What comes of a delivery: every row of the table of dispositions, on every store, with functions of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from semel import Cancelled, DidNotHappen, Happened, Unknown
from semel.core.operations import Operation
from semel.core.store import Plan
from semel.errors import StoreUnavailable
from semel.events import Consumer, Disposition, Event
from semel.stores.dynamodb import DynamoStore, request_builders
from semel.stores.memory import MemoryStore
from semel.stores.mysql import MysqlStore
from semel.stores.postgresql import PostgresStore
from semel.stores.redis import RedisStore
from semel.stores.redis import plan as redis_plan
from semel.stores.sqlite import SqliteStore
from semel.testing import Crash, VirtualClock
from tests.events.desk import Declined, Desk, Registered, an_event, fail
from tests.servers.records import emptied

pytestmark = [pytest.mark.slow, pytest.mark.covering(shared=("kind",))]
STORES = ("memory", "sqlite", "postgresql", "mariadb", "redis", "dynamodb")
SECONDS = timedelta(seconds=1)
AFTER = timedelta(seconds=30)


def make_store(request: pytest.FixtureRequest, name: str, clock: VirtualClock, path: Path) -> Any:
    """A store of this name, empty."""
    now: Any = clock.store_clock
    match name:
        case "memory":
            return MemoryStore(clock=now)
        case "sqlite":
            return SqliteStore(path / "semel.db", clock=now, synchronous="NORMAL")
        case "redis":
            keys = request.getfixturevalue("redis_keys")
            keys.empty()
            return RedisStore(keys.url, clock=now)
        case "dynamodb":
            tables = request.getfixturevalue("dynamodb")
            tables.empty(tables.url)
            return DynamoStore(tables.url, clock=now)
    databases = request.getfixturevalue(name)
    return (PostgresStore if name == "postgresql" else MysqlStore)(emptied(databases, databases.url), clock=now)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STORES)
def desk(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[Desk]:
    clock = VirtualClock()
    with asyncio.Runner() as runner:
        made = Desk(kind == "async", clock, make_store(request, request.param, clock, tmp_path), runner)
        yield made
        made.close()


def nothing() -> None:
    """A handler that does nothing."""


def asks(answer: Any, **settings: Any) -> dict[str, Any]:
    """Settings of a consumer with a reconcile hook that answers, or raises, this."""

    def hook(_attempt: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return {"in_doubt": "reconcile", "reconcile": hook, "reconcile_after": AFTER, **settings}


def deliver(
    handler: Callable[..., Any],
    *,
    types: tuple[str, ...] = (),
    times: int = 1,
    pause: timedelta = timedelta(0),
    event: Event | None = None,
    **given: Any,
) -> Callable[[Desk], Disposition]:
    """Deliver an event so often to a consumer; what came of the last delivery is the answer."""

    def act(desk: Desk) -> Disposition:
        consumer = desk.consumer(handler, *types, **given)
        return deliver_to(desk, consumer, times, pause, event or an_event())

    return act


def deliver_to(desk: Desk, consumer: Consumer[Any], times: int, pause: timedelta, event: Event) -> Disposition:
    for _ in range(times - 1):
        desk.handle(consumer, event)
        desk.clock.advance(pause.total_seconds())
    return desk.handle(consumer, event)


def deliver_after_crash(
    handler: Callable[..., Any], pause: timedelta, *, crashes: int = 1, **settings: Any
) -> Callable[[Desk], Disposition]:
    """Deliver an event whose worker was killed, so often, to a consumer with another handler."""

    def act(desk: Desk) -> Disposition:
        killed = desk.consumer(fail(Crash("killed")), **settings)
        for _ in range(crashes):
            with pytest.raises(Crash):
                desk.handle(killed, an_event())
            desk.clock.advance(pause.total_seconds())
        return desk.handle(desk.consumer(handler, **settings), an_event())

    return act


def deliver_resolved(resolution: Any) -> Callable[[Desk], Disposition]:
    """Deliver an event about which a person has decided."""

    def act(desk: Desk) -> Disposition:
        consumer = desk.consumer(fail(OSError("?")), in_doubt="hold")
        assert desk.handle(consumer, an_event()).action == "dead_letter"
        assert [letter.reason for letter in desk.letters()] == ["in_doubt"]
        desk.wait(desk.semel.resolve(desk.record(an_event()).key, resolution, reason="seen in the ledger"))
        return desk.handle(consumer, an_event())

    return act


def deliver_while_silent(desk: Desk) -> Disposition:
    def answer_nothing(operations: Sequence[Operation], *, joined: bool) -> Plan:
        del joined
        yield from ()
        return [StoreUnavailable("down", asked=False) for _ in operations]

    consumer = desk.consumer(nothing)
    with patch.object(desk.store, "plan", answer_nothing):
        return desk.handle(consumer, an_event())


def deliver_another_body(desk: Desk) -> Disposition:
    consumer = desk.consumer(nothing)
    desk.handle(consumer, an_event())
    return desk.handle(consumer, an_event(data={"capacity_kw": 51}))


def deliver_no_event(desk: Desk) -> Disposition:
    given: Disposition = desk.wait(desk.consumer(nothing).receive({"ce-id": "1"}, b"\x00"))
    return given


def take_registered(data: Registered) -> None:
    raise AssertionError(data)


def with_pause(error: Exception, seconds: float) -> Exception:
    error.retry_after = seconds  # type: ignore[attr-defined]
    return error


@dataclass(frozen=True)
class Row:
    """A row of the table: what happens, and what it is called."""

    name: str
    act: Callable[[Desk], Disposition]
    status: str
    action: str
    record: str | None
    letters: tuple[tuple[str, int], ...] = ()
    retry_after: timedelta | None = None
    retryable: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


BROKEN = OSError("no route")
TABLE = (
    Row("the handler returned", deliver(nothing), "processed", "ack", "completed"),
    Row("it was completed before", deliver(nothing, times=2), "duplicate", "ack", "completed"),
    Row("it was resolved as happened", deliver_resolved(Happened(None)), "duplicate", "ack", "completed"),
    Row(
        "the hook says that it happened",
        deliver(fail(BROKEN), times=2, pause=AFTER, **asks(Happened(None))),
        "duplicate",
        "ack",
        "completed",
    ),
    Row(
        "the hook says that it did not happen",
        deliver_after_crash(nothing, 20 * SECONDS + AFTER, lease_for=20, **asks(DidNotHappen())),
        "processed",
        "ack",
        "completed",
    ),
    Row("its type is ignored", deliver(nothing, types=("moved",), unknown="ignore"), "ignored", "ack", None),
    Row("its record was cancelled", deliver_resolved(Cancelled()), "ignored", "ack", "cancelled"),
    Row(
        "another worker runs it",
        deliver_after_crash(nothing, 5 * SECONDS, lease_for=20),
        "in_progress",
        "retry",
        "running",
        retry_after=15 * SECONDS,
    ),
    Row("an error", deliver(fail(BROKEN)), "failed", "retry", "in_doubt", retry_after=SECONDS),
    Row("the third error", deliver(fail(BROKEN), times=3), "failed", "retry", "in_doubt", retry_after=4 * SECONDS),
    Row(
        "an error that says when",
        deliver(fail(with_pause(OSError("busy"), 7.5))),
        "failed",
        "retry",
        "in_doubt",
        retry_after=7.5 * SECONDS,
    ),
    Row(
        "an error without effect",
        deliver(fail(Declined()), retry_errors=(Declined,)),
        "failed",
        "retry",
        "failed",
        retry_after=SECONDS,
        retryable=True,
    ),
    Row("the store does not answer", deliver_while_silent, "unavailable", "retry", None),
    Row(
        "the hook may not be asked yet",
        deliver(fail(BROKEN), times=2, pause=10 * SECONDS, **asks(DidNotHappen())),
        "in_doubt",
        "retry",
        "in_doubt",
        retry_after=AFTER - 10 * SECONDS,
    ),
    Row(
        "the hook says Unknown and may be asked again",
        deliver(fail(BROKEN), times=2, pause=AFTER, **asks(Unknown(), max_attempts=2)),
        "in_doubt",
        "retry",
        "in_doubt",
        retry_after=AFTER,
    ),
    Row(
        "the hook says Unknown as often as there are attempts",
        deliver(fail(BROKEN), times=3, pause=AFTER, **asks(Unknown(), max_attempts=2)),
        "in_doubt",
        "dead_letter",
        "in_doubt",
        (("in_doubt", 1),),
    ),
    Row(
        "the hook raises as often as there are attempts",
        deliver(fail(BROKEN), times=3, pause=AFTER, **asks(LookupError("gone"), max_attempts=2)),
        "in_doubt",
        "dead_letter",
        "in_doubt",
        (("in_doubt", 1),),
    ),
    Row(
        "delivered again before the hook may be asked once more",
        deliver(fail(BROKEN), times=3, pause=AFTER - SECONDS, **asks(Unknown(), max_attempts=1)),
        "in_doubt",
        "dead_letter",
        "in_doubt",
        (("in_doubt", 1),),
    ),
    Row(
        "a crash under hold",
        deliver_after_crash(nothing, timedelta(hours=1), in_doubt="hold"),
        "in_doubt",
        "dead_letter",
        "running",  # nobody has marked it yet; its lease is over
        (("in_doubt", 1),),
    ),
    Row(
        "an error under hold",
        deliver(fail(BROKEN), in_doubt="hold"),
        "in_doubt",
        "dead_letter",
        "in_doubt",
        (("in_doubt", 1),),
    ),
    Row(
        "a final error",
        deliver(fail(Declined()), final_errors=(Declined,)),
        "rejected",
        "dead_letter",
        "failed",
        (("rejected", 1),),
    ),
    Row(
        "a final error, delivered again",
        deliver(fail(Declined()), times=2, final_errors=(Declined,)),
        "rejected",
        "dead_letter",
        "failed",
        (("rejected", 2),),
    ),
    Row(
        "the last attempt",
        deliver(fail(BROKEN), times=2, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 1),),
    ),
    Row(
        "attempts used up, delivered again",
        deliver(fail(BROKEN), times=4, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 3),),
    ),
    Row(
        "attempts used up without a word",
        deliver_after_crash(nothing, 20 * SECONDS, crashes=2, lease_for=20, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 2),),
    ),
    Row("the same id with another body", deliver_another_body, "reused", "dead_letter", "completed", (("reused", 1),)),
    Row(
        "data that does not decode",
        deliver(take_registered, event=an_event(data={"capacity_kw": "much"})),
        "invalid",
        "dead_letter",
        "failed",
        (("invalid", 1),),
    ),
    Row(
        "data without a fingerprint",
        deliver(nothing, times=2, event=an_event(data="e" + "\u0301" * 31)),
        "invalid",
        "dead_letter",
        None,
        (("invalid", 2),),
    ),
    Row(
        "nobody can tell whose it is",
        deliver(nothing, scope=lambda event: event.data["tenant"]),
        "invalid",
        "dead_letter",
        None,
        (("invalid", 1),),
    ),
    Row("bytes that are no event", deliver_no_event, "invalid", "dead_letter", None, (("invalid", 1),)),
    Row(
        "an unknown type that is given up",
        deliver(nothing, types=("moved",), unknown="dead_letter"),
        "unknown_type",
        "dead_letter",
        "failed",
        (("unknown_type", 1),),
    ),
    Row(
        "an unknown type that is refused",
        deliver(nothing, types=("moved",)),
        "unknown_type",
        "retry",
        "failed",
        retry_after=SECONDS,
        retryable=True,
    ),
    Row(
        "an unknown type that is refused for the last time",
        deliver(nothing, types=("moved",), times=2, max_attempts=2),
        "exhausted",
        "dead_letter",
        "failed",
        (("exhausted", 1),),
    ),
)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_delivery_has_the_disposition_of_the_table(desk: Desk, row: Row) -> None:
    given = row.act(desk)
    assert (given.status, given.action) == (row.status, row.action)
    assert row.retry_after is None or given.retry_after == row.retry_after
    assert (given.retry_after is None) == (given.action != "retry") or given.status == "unavailable"
    record = desk.record(an_event())
    assert (None if record is None else str(record.status)) == row.record
    assert record is None or record.retryable == row.retryable
    letters = desk.letters()
    assert [(letter.reason, letter.seen) for letter in letters] == list(row.letters)
    if letters and record is not None:
        assert given.reference == letters[0].reference == record.reference, "the letter does not name the record"


@pytest.mark.parametrize(("decision", "status"), [(Happened(None), "duplicate"), (Cancelled(), "ignored")], ids=str)
def test_a_decision_closes_the_letter_of_a_hook_that_cannot_tell(desk: Desk, decision: Any, status: str) -> None:
    settings = asks(Unknown(), max_attempts=1)
    consumer = desk.consumer(fail(BROKEN), **settings)
    assert deliver_to(desk, consumer, 2, AFTER, an_event()).action == "dead_letter"
    assert [letter.attempts for letter in desk.letters()] == [1], "the handler was called once"
    desk.wait(desk.semel.resolve(desk.record(an_event()).key, decision, reason="seen in the ledger"))
    assert desk.letters() == []
    assert desk.handle(consumer, an_event()).status == status


def test_an_event_that_did_not_happen_can_be_redriven(desk: Desk) -> None:
    broken = desk.consumer(fail(BROKEN), in_doubt="hold")
    assert desk.handle(broken, an_event()).action == "dead_letter"
    desk.wait(desk.semel.resolve(desk.record(an_event()).key, DidNotHappen(), reason="not in the ledger"))
    (letter,) = desk.letters()
    mended = desk.consumer(nothing, in_doubt="hold")
    assert desk.wait(mended.redrive(letter.id)).status == "processed"
    assert desk.letters() == []


def refuse_to_scan(*_: Any) -> Any:
    pytest.fail("all letters were looked through for one that is named")


@pytest.mark.parametrize("act", ["redrive", "discard"])
def test_a_letter_is_found_by_its_id_without_looking_through_others(desk: Desk, act: str) -> None:
    consumer = desk.consumer(fail(BROKEN), max_attempts=1)
    for id_ in ("e-1", "e-2"):
        desk.handle(consumer, an_event(id=id_))
    desk.wait(consumer.receive({"ce-id": "1"}, b"no event"))
    ids = [letter.id for letter in desk.letters()]
    assert len(ids) == 3
    with (
        patch.object(redis_plan, "scan_keys", refuse_to_scan),
        patch.object(request_builders, "scan_letters", refuse_to_scan),
    ):
        for id_ in ids[1:]:
            done = consumer.redrive(id_) if act == "redrive" else consumer.discard(id_, reason="old")
            assert desk.wait(done) is not None
    left = [letter.id for letter in desk.letters()]
    assert left == (ids if act == "redrive" else ids[:1])


def test_what_a_hook_could_not_tell_is_counted_over_processes(desk: Desk) -> None:
    settings = asks(Unknown(), max_attempts=3)
    deliver_to(desk, desk.consumer(fail(BROKEN), **settings), 1, AFTER, an_event())
    actions = []
    for _ in range(3):
        desk.clock.advance(AFTER.total_seconds())
        other = Desk(desk.is_async, desk.clock, desk.store, desk.runner)
        actions.append(other.handle(other.consumer(nothing, **settings), an_event()).action)
        other.close()
    assert actions == ["retry", "retry", "dead_letter"]
