"""What goes to the service: how many requests, what they demand, and what is sent again."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from semel.core.operations import (
    Checkpoint,
    Complete,
    Fail,
    Found,
    Granted,
    InDoubtAnswer,
    Purge,
    Read,
    Recorded,
    Renew,
    Renewed,
    Replay,
    Reused,
    Running,
    SweepCount,
)
from semel.core.record import About, Failure, Lease, NotKept, Status, Step, unpack_outcome
from semel.errors import SchemaOutdated, StoreUnavailable, UsageError
from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.driver import Send, make_client
from semel.stores.dynamodb.settings import Settings
from semel.stores.settings import machine_clock
from tests.servers.ministack import Tables
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import FINGERPRINTS, KEYS, SECOND, Clock, claim, terms

pytestmark = pytest.mark.slow

DECLINED = Failure("app.Declined", "no")
TOO_LARGE = "Item size has exceeded the maximum allowed size"
HALF_A_MEGABYTE = b"\x93" * 500_000


def granted(asker: Asker, number: int = 1, **rest: Any) -> Lease:
    lease = asker.one(claim(number=number, **rest), Granted).lease
    asker.actions()
    return lease


def test_a_first_run_takes_two_requests(asker: Asker) -> None:
    lease = asker.one(claim(), Granted).lease
    asker.one(Complete(lease, b"done"), Recorded)
    assert asker.actions() == ["put_item", "update_item"]


def test_a_replay_takes_one_request(asker: Asker) -> None:
    asker.one(Complete(granted(asker), b"done"), Recorded)
    asker.actions()
    assert asker.one(claim(number=2), Replay).record.outcome == b"done"
    assert asker.actions() == ["put_item"]


def test_being_refused_takes_one_request(asker: Asker) -> None:
    granted(asker, of=terms(in_doubt="hold"))
    asker.one(claim(number=2), Running)
    asker.one(claim(number=3, fingerprint=FINGERPRINTS[1]), Reused)
    asker.clock.advance(31)
    asker.one(claim(number=4), InDoubtAnswer)
    assert asker.actions() == ["put_item"] * 3


def test_a_renewal_and_a_step_take_one_request_each(asker: Asker) -> None:
    lease = granted(asker)
    asker.one(Renew(lease, 30 * SECOND), Renewed)
    asker.one(Checkpoint(lease, Step(0, "reserve", b"r-1")), Recorded)
    assert asker.actions() == ["update_item", "update_item"]


def test_a_take_over_is_written_over_the_very_record_that_was_seen(asker: Asker) -> None:
    granted(asker)
    asker.clock.advance(31)
    asker.one(claim(number=2), Granted)
    assert asker.actions() == ["put_item", "put_item"]


def test_a_take_over_loses_to_a_renewal_in_between(asker: Asker) -> None:
    lease = granted(asker)
    asker.clock.advance(31)
    renewed: list[object] = []

    def renew(wanted: Send, send: Any) -> Any:
        if "version" in wanted.call.parameters["ConditionExpression"] and not renewed:
            renewed.append(None)
            renewed.append(Asker(asker.store, asker.clock).one(Renew(lease, 30 * SECOND), Renewed))
        return send()

    asker.driver.meddle = renew
    assert asker.one(claim(number=2), Running).remaining_us == 30 * SECOND


def test_a_late_completion_is_calculated_from_what_came_back(asker: Asker) -> None:
    lease = granted(asker)
    asker.clock.advance(31)
    asker.one(Complete(lease, b"done"), Recorded)
    assert asker.actions() == ["update_item", "put_item"]
    record = asker.record()
    assert record is not None
    assert (record.lease_us, record.status) == (lease.until, Status.COMPLETED)


def test_reads_are_consistent(asker: Asker) -> None:
    asker.one(Read(KEYS[0].digest), Found)
    assert asker.driver.sent[0].call.parameters["ConsistentRead"]


def test_a_claim_whose_reply_was_lost_is_granted_when_sent_again(asker: Asker) -> None:
    asker.driver.meddle = _lose
    with pytest.raises(StoreUnavailable, match="not known"):
        asker.one(claim(), Granted)
    asker.driver.meddle = None
    assert asker.one(claim(), Granted).record.attempts == 1


def test_a_lost_reply_is_not_sent_again_by_the_driver(asker: Asker) -> None:
    asker.driver.meddle = _lose
    with pytest.raises(StoreUnavailable):
        asker.one(claim(), Granted)
    assert asker.actions() == ["put_item"]


def test_the_sdk_sends_nothing_again() -> None:
    client = make_client(Settings("table", region="eu-west-1"))
    assert client.meta.config.retries["total_max_attempts"] == 1
    client.close()


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"]
)
def test_what_was_throttled_is_sent_again(asker: Asker, code: str) -> None:
    left = [code] * 3

    def throttle(_wanted: Send, send: Any) -> Any:
        return _fail(left.pop()) if left else send()

    asker.driver.meddle = throttle
    asker.one(claim(), Granted)
    assert len(asker.driver.pauses) == 3


def test_throttled_for_too_long_is_unavailable(asker: Asker) -> None:
    span = Clock()
    asker.store._context.clock.span = span

    def throttle(_wanted: Send, _send: Any) -> Any:
        span.advance(0.3)
        return _fail("ThrottlingException")

    asker.driver.meddle = throttle
    with pytest.raises(StoreUnavailable, match="nothing was recorded"):
        asker.one(claim(), Granted)
    assert asker.actions() == ["put_item"] * 4


def test_what_befalls_one_is_not_its_neighbours_answer(asker: Asker) -> None:
    def break_one(wanted: Send, send: Any) -> Any:
        return _fail("InternalServerError", 500) if wanted.call.parameters["Item"]["value"]["S"] == "o-1" else send()

    asker.driver.meddle = break_one
    answers = asker.all([claim(key, number=number) for number, key in enumerate(KEYS)])
    assert [type(answer) for answer in answers] == [Granted, StoreUnavailable, Granted]


def test_a_missing_table_is_named(dynamodb: Tables, clock: Clock) -> None:
    asker = Asker(DynamoStore(dynamodb.new_url(), clock=clock), clock)
    with pytest.raises(SchemaOutdated, match="semel migrate"):
        asker.one(claim(), Granted)
    asker.driver.close()


def test_a_result_too_large_for_an_item_leaves_a_tombstone(asker: Asker) -> None:
    asker.one(Complete(granted(asker), HALF_A_MEGABYTE), Recorded)
    outcome = asker.one(claim(number=2), Replay).record.outcome
    assert outcome is not None
    assert isinstance(unpack_outcome(outcome), NotKept)


def test_steps_make_room_for_the_result(asker: Asker) -> None:
    lease = granted(asker)
    asker.one(Checkpoint(lease, Step(0, "reserve", HALF_A_MEGABYTE[:300_000])), Recorded)
    asker.one(Complete(lease, HALF_A_MEGABYTE[:200_000]), Recorded)
    record = asker.one(claim(number=2), Replay).record
    assert (record.steps, record.outcome) == ((), HALF_A_MEGABYTE[:200_000])


def test_a_step_that_does_not_fit_beside_the_others_leaves_a_tombstone(asker: Asker) -> None:
    lease = granted(asker)
    for index in range(2):
        asker.one(Checkpoint(lease, Step(index, f"s-{index}", HALF_A_MEGABYTE[:300_000])), Recorded)
    record = asker.record()
    assert record is not None
    assert [len(step.outcome) > 200_000 for step in record.steps] == [True, False]


def test_a_step_that_did_not_fit_is_recorded_once(asker: Asker) -> None:
    lease = granted(asker)
    for index in (0, 1, 1):
        asker.one(Checkpoint(lease, Step(index, f"s-{index}", HALF_A_MEGABYTE[:300_000])), Recorded)
    record = asker.record()
    assert record is not None
    assert [step.name for step in record.steps] == ["s-0", "s-1"]


@pytest.mark.parametrize("name", ["reserve", "ünïcode", "half \ud800 a pair"])
def test_a_step_sent_again_is_recorded_once_whatever_it_is_called(asker: Asker, name: str) -> None:
    lease = granted(asker)
    for _ in range(2):
        asker.one(Checkpoint(lease, Step(0, name, b"r-1")), Recorded)
    record = asker.record()
    assert record is not None
    assert len(record.steps) == 1


def test_an_outcome_is_recorded_although_the_service_counts_otherwise(asker: Asker) -> None:
    lease = granted(asker)

    def narrow(wanted: Send, send: Any) -> Any:
        return _fail("ValidationException", text=TOO_LARGE) if _size(wanted) > 250_000 else send()

    asker.driver.meddle = narrow
    asker.one(Complete(lease, HALF_A_MEGABYTE[:300_000]), Recorded)
    outcome = asker.one(claim(number=2), Replay).record.outcome
    assert outcome is not None
    assert isinstance(unpack_outcome(outcome), NotKept)


def test_a_failure_is_recorded_in_an_item_that_is_full(asker: Asker) -> None:
    lease = granted(asker)
    asker.one(Checkpoint(lease, Step(0, "reserve", HALF_A_MEGABYTE[:407_500])), Recorded)
    asker.one(Fail(lease, "doubt", Failure("app.Broke", "x" * 2000), doubtful=True), Recorded)
    record = asker.record()
    assert record is not None
    assert record.error is not None
    assert (record.status, len(record.steps), len(record.error.message)) == (Status.IN_DOUBT, 1, 80)


def test_a_claim_that_leaves_no_room_is_refused_before_anything_runs(asker: Asker) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        asker.one(claim(about=About(tags={"a": "x" * 200_000})), Granted)
    assert asker.record() is None


def test_only_what_is_settled_may_be_deleted_by_the_service(asker: Asker, dynamodb: Tables, url: str) -> None:
    def ttl() -> Any:
        (item,) = dynamodb.items(url)
        return item.get("ttl", {}).get("N")

    lease = granted(asker)
    assert ttl() is None
    asker.one(Fail(lease, "doubt", DECLINED, doubtful=True), Recorded)
    assert ttl() is None
    lease = granted(asker, number=2)
    asker.one(Fail(lease, "retry", DECLINED, doubtful=False), Recorded)
    record = asker.record()
    assert record is not None
    assert ttl() == str(-(-record.expires_us // SECOND))
    granted(asker, number=3)
    assert ttl() is None


def test_what_the_service_has_not_deleted_yet_is_not_replayed(asker: Asker) -> None:
    asker.one(Complete(granted(asker, of=terms(keep=60)), b"old"), Recorded)
    asker.clock.advance(60)
    assert asker.one(claim(number=2, fingerprint=FINGERPRINTS[1]), Granted).record.attempts == 1


def test_a_sweep_goes_on_where_the_last_one_stopped(asker: Asker) -> None:
    for number, key in enumerate(KEYS):
        lease = asker.one(claim(key, number=number, of=terms(keep=1)), Granted).lease
        asker.one(Complete(lease, b""), Recorded)
    asker.clock.advance(3600)
    counts = [asker.one(Purge(1), SweepCount).count for _ in range(4)]
    assert counts == [1, 1, 1, 0]


def test_a_purge_spares_what_was_claimed_in_between(asker: Asker) -> None:
    asker.one(Complete(granted(asker, of=terms(keep=1)), b""), Recorded)
    asker.clock.advance(3600)
    other = Asker(asker.store, asker.clock)

    def claim_first(wanted: Send, send: Any) -> Any:
        if wanted.call.action == "delete_item":
            other.one(claim(number=2), Granted)
        return send()

    asker.driver.meddle = claim_first
    assert asker.one(Purge(10), SweepCount).count == 0
    record = asker.record()
    assert record is not None
    assert record.status is Status.RUNNING


def test_the_time_of_the_service_lies_between_what_is_known_of_it(url: str) -> None:
    store = DynamoStore(url)
    asker = Asker(store, Clock())
    lease = asker.one(claim(), Granted).lease
    assert asker.actions() == ["get_item", "put_item"]  # the first request of a process also asks for the time
    asker.one(Complete(lease, b""), Recorded)
    assert asker.actions() == ["update_item"]
    moment = store._context.clock.moment()
    assert moment is not None
    assert moment.low <= machine_clock() <= moment.high + SECOND
    asker.driver.close()


def _lose(wanted: Send, send: Any) -> Any:
    send()
    raise ConnectionClosedError(endpoint_url="http://lost")


def _size(wanted: Send) -> int:
    return len(repr(wanted.call.parameters).replace("\\x93", "."))


def _fail(code: str, status: int = 400, text: str = "no") -> Any:
    raise ClientError(
        {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "PutItem",
    )
