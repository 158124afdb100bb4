"""Time that is known with an error only: nobody is early, whatever a worker's clock shows."""

from dataclasses import replace
from typing import Any

import pytest

from semel.core.operations import (
    Complete,
    Found,
    Granted,
    InDoubtAnswer,
    LapsedRecords,
    MarkLapsed,
    Purge,
    Read,
    Recorded,
    Renew,
    Renewed,
    Replay,
    Resolve,
    Resolved,
    Running,
    StateMismatch,
    SweepCount,
)
from semel.core.record import Lease, Status
from semel.errors import StoreUnavailable
from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.clock import Moment, ServiceClock, VirtualServiceClock, span_clock
from semel.stores.dynamodb.driver import Send
from tests.stores.dynamodb.kit import Asker, WatchedDriver
from tests.unit.stores.operations import KEYS, SECOND, START, claim, terms

pytestmark = pytest.mark.slow

ERROR = 700_000
LEASE = 30 * SECOND
KEEP = 60 * SECOND


class Coarse(VirtualServiceClock):
    """Known to 0.7 seconds either way."""

    def moment(self) -> Moment:
        exact = super().moment()
        return Moment(exact.low - ERROR, exact.high + ERROR)


@pytest.fixture
def coarse(asker: Asker) -> Asker:
    _set_clock(asker, Coarse(asker.clock))
    return asker


def _set_clock(asker: Asker, clock: ServiceClock) -> None:
    place = replace(asker.store._context, clock=clock)
    asker.store._context = place
    asker.driver._context = place


def test_a_lease_counts_from_the_latest_that_now_can_be(coarse: Asker) -> None:
    lease = coarse.one(claim(), Granted).lease
    assert lease.until == START + ERROR + LEASE
    assert coarse.one(Renew(lease, LEASE), Renewed).until_us == START + ERROR + LEASE


def test_a_lease_is_over_when_the_earliest_that_now_can_be_is_behind_it(coarse: Asker) -> None:
    lease = coarse.one(claim(), Granted).lease
    coarse.clock.now = lease.until + ERROR - 1
    assert coarse.one(claim(number=2), Running).remaining_us == 1
    coarse.clock.now += 1
    coarse.one(claim(number=3), Granted)


def test_a_hook_is_not_asked_early(coarse: Asker) -> None:
    asks = terms(in_doubt="reconcile", reconcile_after=10)
    lease = coarse.one(claim(of=asks), Granted).lease
    coarse.clock.now = lease.until + 10 * SECOND + ERROR - 1
    assert coarse.one(claim(number=2, of=asks), InDoubtAnswer).remaining_us == 1
    coarse.clock.now += 1
    assert coarse.one(claim(number=3, of=asks), Granted).reconcile


def _completed(asker: Asker) -> int:
    lease = asker.one(claim(of=terms(keep=60)), Granted).lease
    asker.one(Complete(lease, b"done"), Recorded)
    record = asker.record()
    assert record is not None
    assert record.expires_us == START + ERROR + KEEP
    return record.expires_us


def test_an_outcome_is_kept_until_it_has_certainly_expired(coarse: Asker) -> None:
    expires = _completed(coarse)
    coarse.clock.now = expires + ERROR - 1
    coarse.one(claim(number=2), Replay)
    assert coarse.one(Purge(10), SweepCount).count == 0
    coarse.clock.now += 1
    assert coarse.one(Purge(10), SweepCount).count == 1


def test_a_sweep_marks_nothing_early(coarse: Asker) -> None:
    lease = coarse.one(claim(), Granted).lease
    coarse.clock.now = lease.until + ERROR - 1
    assert coarse.one(MarkLapsed(10), LapsedRecords).count == 0
    coarse.clock.now += 1
    assert coarse.one(MarkLapsed(10), LapsedRecords).count == 1


def test_nothing_is_resolved_that_may_still_run(coarse: Asker) -> None:
    lease = coarse.one(claim(), Granted).lease
    resolve = Resolve(KEYS[0].digest, b"n" * 16, Status.CANCELLED, None, "note")
    coarse.clock.now = lease.until + ERROR - 1
    coarse.one(resolve, StateMismatch)
    coarse.clock.now += 1
    coarse.one(resolve, Resolved)


def test_a_read_tells_the_earliest_that_now_can_be(coarse: Asker) -> None:
    assert coarse.one(Read(KEYS[0].digest), Found).now_us == START - ERROR


@pytest.mark.parametrize("wrong", [10**15, -(10**15)], ids=["ahead", "behind"])
def test_a_worker_with_a_wrong_clock_takes_nothing_over_and_loses_nothing(url: str, asker: Asker, wrong: int) -> None:
    owner, other = Asker(DynamoStore(url), asker.clock), Asker(DynamoStore(url), asker.clock)
    _set_clock(other, ServiceClock(lambda: span_clock() + wrong))
    began = span_clock()
    lease: Lease = owner.one(claim(), Granted).lease
    remaining = other.one(claim(number=2), Running).remaining_us
    mine = other.one(claim(KEYS[1], number=3), Granted).lease
    passed = span_clock() - began  # a busy machine takes its time, and that is no mistake of a clock
    assert LEASE - 2 * SECOND - passed < remaining < LEASE + 4 * SECOND
    assert abs(mine.until - lease.until) < 4 * SECOND + passed
    owner.driver.close()
    other.driver.close()


def _rewritten(driver: WatchedDriver, **headers: Any) -> None:
    """Let every reply lack these headers, or have others."""

    def meddle(_wanted: Send, send: Any) -> Any:
        reply = send()
        for name, value in headers.items():
            reply["ResponseMetadata"]["HTTPHeaders"].pop(name.replace("_", "-"))
            if value is not None:
                reply["ResponseMetadata"]["HTTPHeaders"][name] = value
        return reply

    driver.meddle = meddle


def test_replies_without_a_date_are_not_enough_to_decide(url: str, asker: Asker) -> None:
    blind = Asker(DynamoStore(url), asker.clock)
    _rewritten(blind.driver, date=None)
    with pytest.raises(StoreUnavailable, match="Date"):
        blind.one(claim(), Granted)
    assert blind.actions() == ["get_item"]
    blind.driver.close()


def test_the_date_of_a_reply_that_is_not_the_services_teaches_nothing(url: str, asker: Asker) -> None:
    fooled = Asker(DynamoStore(url), asker.clock)
    _rewritten(fooled.driver, date="Sun, 15 Nov 2099 00:00:00 GMT", x_amzn_requestid=None)
    with pytest.raises(StoreUnavailable, match="Date"):
        fooled.one(claim(), Granted)
    fooled.driver.close()
