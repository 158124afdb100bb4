"""The handler for AWS Lambda: what it tells of each disposition, and of a batch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError

from semel import AsyncSemel, Semel
from semel.core.operations import Operation, Renew
from semel.core.store import Plan
from semel.errors import EventInvalid, StoreUnavailable, TryLater, UsageError
from semel.events import Backoff, Consumer, Event
from semel.events.brokers import aws_lambda
from semel.events.brokers.sqs.messages import MessageReader
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock
from semel.testing.contract.instrumented_store import InstrumentedStore
from tests.docs.pages import page
from tests.events.desk import Declined
from tests.events.invocations import (
    FIFO,
    QUEUE,
    Context,
    batch,
    eventbridge,
    failures,
    kinesis_record,
    sqs_record,
)
from tests.unit.engine.test_lease_thread import wait_until

TYPE = "asset.registered"
SOON = Backoff(first=timedelta(seconds=7), most=timedelta(seconds=7), spread=0)


class Registered(msgspec.Struct):
    """The data of an event."""

    capacity_kw: int


def an_event(number: int = 1, **changes: Any) -> Event:
    given: dict[str, Any] = {"type": TYPE, "source": "/plant", "id": f"e-{number}", "data": {"capacity_kw": 50}}
    return Event(**{**given, **changes})


class Sqs:
    """A client of SQS that writes down which message becomes visible when."""

    def __init__(self) -> None:
        self.delays: dict[str, int] = {}
        self.looked_up: list[str] = []

    def get_queue_url(self, **asked: str) -> dict[str, str]:
        self.looked_up.append(asked["QueueName"])
        return {"QueueUrl": f"https://sqs/{asked['QueueOwnerAWSAccountId']}/{asked['QueueName']}"}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - names of the SDK
        del QueueUrl
        assert len(Entries) <= 10
        self.delays |= {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in Entries}
        return {}


class World:
    """A consumer on a store in memory, its handler for Lambda, and what its handlers did."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store: Any = MemoryStore(clock=self.clock.store_clock)
        self.semel = Semel(self.store, clock=self.clock)
        self.sqs = Sqs()
        self.ran: list[str] = []
        self.broken: set[str] = set()

    def consumer(self, run: Callable[[Event], None] | None = None, **settings: Any) -> Consumer[Semel]:
        consumer = Consumer(self.semel, "billing", **{"backoff": SOON, **settings})

        @consumer.on(TYPE)
        def registered(event: Event, data: Registered) -> None:
            del data
            if run is not None:
                run(event)
            if event.id in self.broken:
                raise ConnectionError("no")
            self.ran.append(event.id)

        return consumer

    def handler(self, consumer: Any = None, **settings: Any) -> aws_lambda.LambdaHandler:
        return aws_lambda.handler(consumer or self.consumer(), **{"sqs": self.sqs, **settings})


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.semel:
        yield made


def reject(_event: Event) -> None:
    raise Declined


def lose_connection(_event: Event) -> None:
    raise ConnectionError


Scene = Callable[[World, ExitStack], tuple[Consumer[Semel], Event]]


def processed(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(), an_event()


def duplicate(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    consumer = world.consumer()
    consumer.handle(an_event())
    return consumer, an_event()


def ignored(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(unknown="ignore"), an_event(type="asset.painted")


def in_progress(world: World, stack: ExitStack) -> tuple[Consumer[Semel], Event]:
    """Another thread is inside the handler of the event."""
    began, may_end = threading.Event(), threading.Event()

    def wait(_event: Event) -> None:
        began.set()
        may_end.wait(30)

    running = threading.Thread(target=world.consumer(wait).handle, args=(an_event(),))
    running.start()
    stack.callback(running.join)
    stack.callback(may_end.set)
    assert began.wait(30)
    return world.consumer(), an_event()


def failed(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(lose_connection), an_event()


def unavailable(world: World, stack: ExitStack) -> tuple[Consumer[Semel], Event]:
    def answer_nothing(operations: Sequence[Operation], *, joined: bool) -> Plan:
        del joined
        yield from ()
        return [StoreUnavailable("down", asked=False) for _ in operations]

    stack.enter_context(patch.object(world.store, "plan", answer_nothing))
    return world.consumer(), an_event()


def in_doubt_retried(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    consumer = world.consumer(lose_connection, in_doubt="reconcile", reconcile=lambda _: None, reconcile_after=30)
    consumer.handle(an_event())
    return consumer, an_event()


def in_doubt_held(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(lose_connection, in_doubt="hold"), an_event()


def rejected(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(reject, final_errors=(Declined,)), an_event()


def exhausted(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(lose_connection, max_attempts=1), an_event()


def reused(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    consumer = world.consumer()
    consumer.handle(an_event())
    return consumer, an_event(data={"capacity_kw": 51})


def invalid(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(), an_event(data={"capacity_kw": "many"})


def unknown_type_refused(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(), an_event(type="asset.painted")


def unknown_type_kept(world: World, _: ExitStack) -> tuple[Consumer[Semel], Event]:
    return world.consumer(unknown="dead_letter"), an_event(type="asset.painted")


SCENES: dict[str, tuple[Scene, str]] = {
    "processed": (processed, "acknowledged"),
    "duplicate": (duplicate, "acknowledged"),
    "ignored": (ignored, "acknowledged"),
    "in_progress": (in_progress, "again"),
    "failed": (failed, "again"),
    "unavailable": (unavailable, "again"),
    "in_doubt, to be tried again": (in_doubt_retried, "again"),
    "unknown_type, refused": (unknown_type_refused, "again"),
    "in_doubt, a dead letter": (in_doubt_held, "acknowledged"),
    "rejected": (rejected, "acknowledged"),
    "exhausted": (exhausted, "acknowledged"),
    "reused": (reused, "acknowledged"),
    "invalid": (invalid, "acknowledged"),
    "unknown_type, a dead letter": (unknown_type_kept, "acknowledged"),
}
"""What happens to an event, and what Lambda is told."""


def row_of(name: str) -> list[str]:
    """The cells of the reference's table that are about a status."""
    text = page("docs/reference/events.md").text.partition("What Lambda is told")[2]
    rows = [line for line in text.splitlines() if line.startswith("|") and f"`{name.partition(',')[0]}`" in line]
    dead = "dead letter" in name
    (row,) = [line for line in rows if ("dead letter" in line.partition("|")[2].partition("|")[0]) is dead] or rows
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("source", ["sqs", "kinesis", "eventbridge"])
def test_lambda_is_told_what_the_reference_says(world: World, name: str, source: str) -> None:
    scene, told = SCENES[name]
    _, batches, by_itself = row_of(name)
    with ExitStack() as stack:
        consumer, event = scene(world, stack)
        handler = world.handler(consumer)
        if source == "eventbridge":
            invocation = eventbridge(msgspec.json.decode(event.to_json()))
            if told == "again":
                with pytest.raises(TryLater):
                    handler(invocation, Context())
            else:
                assert handler(invocation, Context()) is None
            assert by_itself.startswith("raises `TryLater`" if told == "again" else "returns")
            return
        record = sqs_record(event) if source == "sqs" else kinesis_record(event, 1)
        expected = [] if told == "acknowledged" else ["m-1" if source == "sqs" else "4960"]
        assert failures(handler(batch(record), Context())) == expected
        assert batches.startswith("a failure item" if told == "again" else "acknowledged")


def test_a_failed_message_becomes_visible_when_it_is_due(world: World) -> None:
    world.broken = {"e-2"}
    handler = world.handler()
    assert failures(handler(batch(sqs_record(an_event(1), 1), sqs_record(an_event(2), 2)))) == ["m-2"]
    assert world.sqs.delays == {"r-2": 7}


def test_what_somebody_else_runs_becomes_visible_when_its_lease_ends(world: World) -> None:
    with ExitStack() as stack:
        consumer, event = in_progress(world, stack)
        assert failures(world.handler(consumer)(batch(sqs_record(event)))) == ["m-1"]
    assert world.sqs.delays == {"r-1": 30}


def test_a_queue_is_looked_up_once_per_process(world: World) -> None:
    world.broken = {"e-1"}
    handler = world.handler()
    for _ in range(2):
        handler(batch(sqs_record(an_event())))
    assert world.sqs.looked_up == ["orders"]


def test_more_messages_than_a_request_takes_are_all_delayed(world: World) -> None:
    world.broken = {f"e-{number}" for number in range(25)}
    handler = world.handler()
    handler(batch(*(sqs_record(an_event(number), number) for number in range(25))))
    assert len(world.sqs.delays) == 25


def test_a_right_that_is_missing_leaves_the_message_to_its_queue(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    from botocore.exceptions import ClientError

    class Denied(Sqs):
        def get_queue_url(self, **_: str) -> dict[str, str]:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetQueueUrl")

    world.broken = {"e-1"}
    assert failures(world.handler(sqs=Denied())(batch(sqs_record(an_event())))) == ["m-1"]
    assert "come again when its time-out ends" in caplog.text


class Unreachable(Sqs):
    """A service that nothing leads to."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error
        self.asked = 0

    def get_queue_url(self, **asked: str) -> dict[str, str]:
        self._answer()
        return super().get_queue_url(**asked)

    def change_message_visibility_batch(self, **asked: Any) -> dict[str, Any]:
        self._answer()
        return super().change_message_visibility_batch(**asked)

    def _answer(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


unreached = pytest.mark.parametrize(
    "error", [ConnectTimeoutError(endpoint_url="https://sqs"), EndpointConnectionError(endpoint_url="https://sqs")]
)


@unreached
def test_a_service_that_was_never_reached_is_asked_once_per_process(world: World, error: Exception) -> None:
    world.broken = {"e-1"}
    sqs = Unreachable(error)
    handler = world.handler(sqs=sqs)
    for _ in range(3):
        assert failures(handler(batch(sqs_record(an_event())))) == ["m-1"]
    assert sqs.asked == 1


@unreached
def test_a_service_that_was_reached_before_is_asked_again(world: World, error: Exception) -> None:
    world.broken = {"e-1"}
    sqs = Unreachable(error)
    handler = world.handler(sqs=sqs)
    for fault in (None, error, None):
        sqs.error = fault
        sqs.delays.clear()
        handler(batch(sqs_record(an_event())))
    assert sqs.delays == {"r-1": 7}


def test_sqs_is_asked_in_the_region_of_the_queue_once_and_for_a_second() -> None:
    client = aws_lambda.Queues()._open_client("arn:aws:sqs:eu-west-2:111122223333:orders")
    config = client.meta.config
    assert client.meta.region_name == "eu-west-2"
    assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (1, 1, 1)


def test_without_the_time_for_it_no_message_is_delayed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.broken = {"e-1"}
    handler = world.handler()
    assert failures(handler(batch(sqs_record(an_event())), Context(left=1200))) == ["m-1"]
    assert (world.sqs.delays, world.sqs.looked_up) == ({}, [])
    assert "too little of the invocation is left" in caplog.text


def test_a_failure_stops_its_group_and_no_other(world: World) -> None:
    world.broken = {"e-1"}
    groups = ["a", "b", "a", "b"]
    records = [sqs_record(an_event(n), n, queue=FIFO, group=group) for n, group in enumerate(groups, 1)]
    assert failures(world.handler()(batch(*records))) == ["m-1", "m-3"]
    assert world.ran == ["e-2", "e-4"]


def test_what_waits_behind_a_failure_is_due_with_it(world: World) -> None:
    world.broken = {"e-1"}
    world.handler()(batch(*(sqs_record(an_event(n), n, queue=FIFO, group="a") for n in (1, 2))))
    assert world.sqs.delays == {"r-1": 7, "r-2": 7}


def test_equal_groups_of_two_queues_are_two_groups(world: World) -> None:
    world.broken = {"e-1"}
    other = FIFO.replace("orders", "returns")
    records = [sqs_record(an_event(1), 1, queue=FIFO, group="a"), sqs_record(an_event(2), 2, queue=other, group="a")]
    assert failures(world.handler()(batch(*records))) == ["m-1"]


def test_groups_of_a_standard_queue_hold_nothing_up(world: World) -> None:
    world.broken = {"e-1"}
    records = [sqs_record(an_event(n), n, queue=QUEUE, group="a") for n in (1, 2)]
    assert failures(world.handler()(batch(*records))) == ["m-1"]
    assert world.ran == ["e-2"]


def test_of_a_shard_the_first_failure_is_told(world: World) -> None:
    world.broken = {"e-2", "e-4"}
    records = [kinesis_record(an_event(n), n, key=f"key-{n}") for n in range(1, 6)]
    assert failures(world.handler()(batch(*records))) == ["4961"]
    assert world.ran == ["e-1", "e-3", "e-5"]


def test_behind_a_failure_nothing_of_its_partition_key_is_begun(world: World) -> None:
    world.broken = {"e-1"}
    records = [kinesis_record(an_event(n), n, key=key) for n, key in enumerate("aba", 1)]
    assert failures(world.handler()(batch(*records))) == ["4960"]
    assert world.ran == ["e-2"]


def test_each_shard_has_a_checkpoint_of_its_own(world: World) -> None:
    world.broken = {"e-1", "e-4"}
    records = [kinesis_record(an_event(n), n, key=str(n), shard=n % 2) for n in range(1, 5)]
    assert failures(world.handler()(batch(*records))) == ["4960", "4963"]


def test_what_is_delivered_again_from_a_checkpoint_has_no_second_effect(world: World) -> None:
    world.broken = {"e-1"}
    handler, invocation = world.handler(), batch(*(kinesis_record(an_event(n), n, key=str(n)) for n in (1, 2)))
    assert failures(handler(invocation)) == ["4960"]
    world.broken.clear()
    assert failures(handler(invocation)) == []
    assert world.ran == ["e-2", "e-1"]


def test_near_the_end_no_further_record_is_begun(world: World) -> None:
    records = [sqs_record(an_event(n), n) for n in (1, 2, 3)]
    answer = world.handler(stop_before=2)(batch(*records), Context(left=4000, each=1500))
    assert failures(answer) == ["m-3"]
    assert world.ran == ["e-1", "e-2"]
    assert world.sqs.delays == {}


def test_the_first_record_is_begun_however_little_time_is_left(world: World, caplog: pytest.LogCaptureFixture) -> None:
    handler = world.handler(stop_before=2)
    records = [sqs_record(an_event(n), n) for n in (1, 2)]
    assert failures(handler(batch(*records), Context(left=1900))) == ["m-2"]
    assert world.ran == ["e-1"]
    assert "1 of 2 records were not begun" in caplog.text


@pytest.mark.parametrize("source", ["sqs", "eventbridge"])
def test_what_making_the_consumer_takes_is_no_time_for_a_lease(source: str, world: World) -> None:
    context, leases = Context(left=12_000), []

    def look(event: Event) -> None:
        record = world.semel.read((event.source, event.id), operation="event:billing")
        assert record is not None
        assert record.lease_until is not None
        leases.append((record.lease_until - record.started_at).total_seconds())

    def make() -> Consumer[Semel]:
        context.left -= 5000
        return world.consumer(look)

    event = an_event()
    sent = {"sqs": batch(sqs_record(event)), "eventbridge": eventbridge(msgspec.json.decode(event.to_json()))}
    world.handler(make)(sent[source], context)
    assert leases == [7.0]


def test_no_lease_outlives_the_invocation(world: World) -> None:
    leases: list[float] = []

    def look(event: Event) -> None:
        record = world.semel.read((event.source, event.id), operation="event:billing")
        assert record is not None
        assert record.lease_until is not None
        leases.append((record.lease_until - record.started_at).total_seconds())

    handler = world.handler(world.consumer(look))
    handler(batch(sqs_record(an_event(1))), Context(left=12_000))
    handler(batch(sqs_record(an_event(2))), Context(left=600_000))
    assert leases == [12.0, 30.0]


def test_no_renewal_outlives_the_invocation(world: World) -> None:
    store = InstrumentedStore(world.store)
    leases: list[float] = []

    def run_for_long(event: Event) -> None:
        for _ in range(2):
            sent = store.count(Renew)
            wait_until(lambda: world.clock.next_due() is not None)
            world.clock.advance(4)  # a third of a lease that is as long as what is left of the invocation
            wait_until(lambda: store.count(Renew) > sent)  # noqa: B023 - called here
            record = world.semel.read((event.source, event.id), operation="event:billing")
            assert record is not None
            assert record.lease_until is not None
            leases.append((record.lease_until - record.started_at).total_seconds())

    with Semel(store, clock=world.clock) as world.semel:
        handler = world.handler(world.consumer(run_for_long))
        assert failures(handler(batch(sqs_record(an_event(1))), Context(left=12_000))) == []
    assert leases == [12.0, 12.0]


def test_without_a_context_nothing_is_bounded(world: World) -> None:
    assert failures(world.handler()(batch(sqs_record(an_event())), None)) == []


def test_a_dead_letter_is_passed_on_after_it_is_stored(world: World) -> None:
    consumer, passed = world.consumer(reject, final_errors=(Declined,)), []

    def pass_on(record: Any, disposition: Any) -> None:
        passed.append((record["messageId"], disposition.status, len(list(consumer.dead_letters()))))

    assert failures(world.handler(consumer, pass_on=pass_on)(batch(sqs_record(an_event())))) == []
    assert passed == [("m-1", "rejected", 1)]


def test_a_dead_letter_that_could_not_be_passed_on_comes_again(world: World) -> None:
    answers = iter([ConnectionError("no"), None])

    def pass_on(_record: Any, _disposition: Any) -> None:
        if (error := next(answers)) is not None:
            raise error

    handler = world.handler(world.consumer(reject, final_errors=(Declined,)), pass_on=pass_on)
    assert failures(handler(batch(sqs_record(an_event())))) == ["m-1"]
    assert failures(handler(batch(sqs_record(an_event())))) == []


@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
def test_a_dead_letter_is_passed_on_by_a_coroutine(world: World, kind: type[Any]) -> None:
    consumer: Any = Consumer(kind(world.store, clock=world.clock), "billing", unknown="dead_letter")
    passed = list[str]()

    async def pass_on(record: Any, _disposition: Any) -> None:
        passed.append(record["messageId"])

    handler = world.handler(consumer, pass_on=pass_on)
    assert failures(handler(batch(sqs_record(an_event())))) == []
    assert passed == ["m-1"]
    handler.close()


def test_a_dead_letter_that_a_coroutine_could_not_pass_on_comes_again(world: World) -> None:
    async def pass_on(_record: Any, _disposition: Any) -> None:
        raise ConnectionError("no")

    handler = world.handler(world.consumer(reject, final_errors=(Declined,)), pass_on=pass_on)
    assert failures(handler(batch(sqs_record(an_event())))) == ["m-1"]
    handler.close()


def test_what_is_no_event_is_a_dead_letter_with_its_bytes(world: World) -> None:
    consumer = world.consumer()
    assert failures(world.handler(consumer)(batch(sqs_record("{}"), kinesis_record(b"\xff\xfe", 2)))) == []
    assert sorted(letter.raw[1] for letter in consumer.dead_letters() if letter.raw) == [b"{}", b"\xff\xfe"]


def test_the_message_id_is_never_taken_for_the_id_of_an_event(world: World) -> None:
    consumer = world.consumer()
    record = sqs_record('{"type": "asset.registered", "source": "/plant", "data": {"capacity_kw": 1}}')
    world.handler(consumer)(batch(record))
    (letter,) = consumer.dead_letters()
    assert letter.reason == "invalid"


def test_the_producers_id_is_found_where_it_is_named(world: World) -> None:
    handler = world.handler(id="detail.event_id")
    detail = {"event_id": "order-7", "capacity_kw": 1}
    for put in ("put-1", "put-2"):
        handler(eventbridge(detail, id=put))
    handler(batch(sqs_record(msgspec.json.encode(eventbridge(detail, id="put-3")).decode())))
    assert world.ran == ["order-7"]


def test_without_a_name_each_put_to_eventbridge_is_an_event(world: World) -> None:
    handler = world.handler()
    for put in ("put-1", "put-1", "put-2"):
        handler(eventbridge({"capacity_kw": 1}, id=put))
    assert world.ran == ["put-1", "put-2"]


def test_in_a_queue_an_envelope_without_a_named_id_means_what_it_means_to_every_listener(world: World) -> None:
    message = msgspec.json.encode(eventbridge({"capacity_kw": 1})).decode()
    consumer = world.consumer()
    world.handler(consumer)(batch(sqs_record(message), kinesis_record(message.encode(), 2)))
    headers, body = MessageReader(None, None).read({"Body": message})
    with pytest.raises(EventInvalid):
        Event.from_headers(headers, body)  # what `sqs.listen` makes of it
    (letter,) = consumer.dead_letters()  # of the same bytes
    assert (letter.reason, world.ran) == ("invalid", [])


def test_an_event_has_its_own_id_for_every_listener_whatever_path_is_named(world: World) -> None:
    event = an_event(number=1)
    whole = event.to_json().decode()
    envelope = eventbridge(msgspec.json.decode(whole))
    seen: list[Event] = []
    handler = world.handler(world.consumer(seen.append), id="capacity_kw", subject="source")
    texts = [whole, msgspec.json.encode(envelope).decode()]
    handler(batch(sqs_record(texts[0], 1), sqs_record(texts[1], 2), kinesis_record(texts[1].encode(), 3)))
    handler(envelope)
    assert seen == [event]
    reader = MessageReader("capacity_kw", "source")
    assert [Event.from_headers(*reader.read({"Body": text})) for text in texts] == [event, event]


def test_data_that_look_like_an_envelope_are_data_where_the_attributes_say_which_event_it_is(world: World) -> None:
    inner = msgspec.json.decode(an_event(number=2).to_json())
    event = an_event(data={**eventbridge(inner), "capacity_kw": 50})
    headers, body = event.to_headers()
    attributes = {name: {"dataType": "String", "stringValue": value} for name, value in headers.items()}
    seen: list[Event] = []
    world.handler(world.consumer(seen.append))(batch({**sqs_record(body.decode()), "messageAttributes": attributes}))
    listened = {name: {"StringValue": value} for name, value in headers.items()}
    read = MessageReader(None, None).read({"Body": body.decode(), "MessageAttributes": listened})
    assert seen == [Event.from_headers(*read)]
    assert (seen[0].id, seen[0].data) == (event.id, event.data)


def test_the_subject_of_an_event_of_eventbridge_is_found_where_it_is_named(world: World) -> None:
    subjects: list[str | None] = []
    handler = world.handler(world.consumer(lambda event: subjects.append(event.subject)), subject="detail.asset")
    handler(eventbridge({"asset": "pump-1", "capacity_kw": 1}))
    assert subjects == ["pump-1"]


def test_another_source_is_refused(world: World) -> None:
    others: list[Any] = [{"Records": [{"eventSource": "aws:s3"}]}, {"httpMethod": "GET"}, []]
    for invocation in others:
        with pytest.raises(UsageError, match="takes records of SQS and Kinesis"):
            world.handler()(invocation)


def test_the_consumer_is_made_once_at_the_first_invocation(world: World) -> None:
    made: list[Consumer[Semel]] = []

    def make() -> Consumer[Semel]:
        made.append(world.consumer())
        return made[-1]

    handler = world.handler(make)
    assert made == []
    for number in (1, 2):
        handler(batch(sqs_record(an_event(number))))
    assert len(made) == 1


def test_coroutines_run_in_one_loop_that_is_kept(world: World) -> None:
    import asyncio

    loops: set[int] = set()
    consumer = Consumer(AsyncSemel(world.store, clock=world.clock), "billing")

    @consumer.on(TYPE)
    async def registered(event: Event) -> None:
        loops.add(id(asyncio.get_running_loop()))
        world.ran.append(event.id)

    handler = world.handler(consumer)
    for number in (1, 2, 1):
        assert failures(handler(batch(sqs_record(an_event(number))), Context())) == []
    assert (world.ran, len(loops)) == (["e-1", "e-2"], 1)
    handler._runner.run(consumer.semel.close())  # type: ignore[union-attr]  # in its own loop
    handler.close()


def test_all_orders_of_a_batch_with_a_repeat_have_each_effect_once(world: World) -> None:
    handler = world.handler()
    for number, order in enumerate(itertools.permutations(range(4))):
        events = [an_event(source=f"/plant/{number}", id=f"{number}-{n}") for n in (*order, order[0])]
        records = [sqs_record(event, n) for n, event in enumerate(events)]
        assert failures(handler(batch(*records), Context())) == []
    assert len(world.ran) == len(set(world.ran)) == 24 * 4


def test_the_url_of_the_table_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_NAME", "assets")
    assert aws_lambda.table_url(pk="pk", sk="sk") == "dynamodb://assets?pk=pk&sk=sk"
    assert aws_lambda.table_url() == "dynamodb://assets"


def test_a_table_that_nobody_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABLE_NAME", raising=False)
    with pytest.raises(UsageError, match="TABLE_NAME names no table"):
        aws_lambda.table_url()
