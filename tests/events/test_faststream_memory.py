"""An inbox under FastStream's own test brokers, as users test with it; Kafka is tested here alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

import pytest
from faststream import AckPolicy, BaseMiddleware, Context
from faststream._internal.broker import BrokerUsecase
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from faststream.kafka import KafkaBroker, TestKafkaBroker
from faststream.nats import JStream, NatsBroker, PullSub, TestNatsBroker
from faststream.rabbit import QueueType, RabbitBroker, RabbitQueue, RabbitRouter, TestRabbitBroker
from faststream.redis import RedisBroker, StreamSub, TestRedisBroker
from pydantic import BaseModel

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.events import Event
from semel.events.brokers.faststream import inbox, on_rabbitmq
from semel.events.brokers.faststream.middleware import Inbox
from semel.stores.memory import MemoryStore
from tests.events.faststream_cases import UNSAFE

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Kind:
    """How subscribers and publishers of one broker are written."""

    broker: Any
    test_broker: Any
    where: tuple[str, ...] = ("assets",)
    subscribed: Callable[[], dict[str, Any]] = dict
    published: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "rabbitmq": Kind(RabbitBroker, TestRabbitBroker),
    "nats": Kind(
        NatsBroker,
        TestNatsBroker,
        subscribed=lambda: {"stream": JStream("s"), "durable": "billing", "pull_sub": PullSub()},
        published={"stream": "s"},
    ),
    "redis": Kind(
        RedisBroker,
        TestRedisBroker,
        where=(),
        subscribed=lambda: {"stream": StreamSub("assets", group="billing", consumer="w")},
        published={"stream": "assets"},
    ),
    "kafka": Kind(KafkaBroker, TestKafkaBroker, subscribed=lambda: {"group_id": "billing"}),
}


class Registered(BaseModel):
    n: int


F = TypeVar("F", bound=Callable[..., Any])


class Subscribes(Protocol):
    """A subscriber, as a decorator of its handlers."""

    @overload
    def __call__(self, function: F) -> F: ...

    @overload
    def __call__(self, *, filter: Any) -> Callable[[F], F]: ...


@dataclass
class Desk:
    """A broker with an inbox, and a way to publish to its subscriber."""

    kind: Kind
    box: Inbox
    broker: Any

    def subscriber(self, *where: str, **settings: Any) -> Subscribes:
        given = {"ack_policy": AckPolicy.MANUAL, **self.kind.subscribed(), **settings}
        made: Subscribes = self.broker.subscriber(*(where or self.kind.where), **given)
        return made

    async def publish(self, body: Any, **settings: Any) -> None:
        await self.broker.publish(body, *self.kind.where, **self.kind.published, **settings)

    async def send(self, number: int = 1, **changes: Any) -> None:
        headers, body = an_event(number, **changes).to_headers()
        await self.publish(body, headers=headers)

    async def letters(self) -> list[Any]:
        return [letter async for letter in self.box.consumer.dead_letters()]


def an_event(number: int = 1, **changes: Any) -> Event:
    given: dict[str, Any] = {"type": "registered", "source": "/a", "id": f"e-{number}", "data": {"n": number}}
    return Event(**{**given, **changes})


def a_desk(kind: str = "rabbitmq", *around: Any, **settings: Any) -> Desk:
    box = inbox(AsyncSemel(MemoryStore()), "billing", **settings)
    return Desk(KINDS[kind], box, KINDS[kind].broker(middlewares=[box, *around]))


on_brokers = pytest.mark.parametrize("kind", KINDS)


@on_brokers
async def test_an_event_that_is_delivered_twice_runs_once(kind: str) -> None:
    desk, runs = a_desk(kind), list[Any]()

    @desk.subscriber()
    async def registered(
        body: Registered, event: Event = Context("semel_event"), attempt: Any = Context("semel_attempt")
    ) -> None:
        runs.append((body.n, event.id, attempt.number))

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
        await desk.send()
    assert runs == [(1, "e-1", 1)]


@on_brokers
async def test_an_event_that_is_json_as_a_whole_gives_its_handler_the_data(kind: str) -> None:
    desk, runs = a_desk(kind), list[Any]()

    @desk.subscriber()
    async def registered(body: Registered) -> None:
        runs.append(body.n)

    async with desk.kind.test_broker(desk.broker):
        for _ in range(2):
            await desk.publish(json.loads(an_event(7).to_json()))
    assert runs == [7]


@on_brokers
async def test_ids_that_faststream_makes_are_not_taken(kind: str) -> None:
    desk, runs = a_desk(kind), list[Any]()

    @desk.subscriber()
    async def registered(body: Registered) -> None:
        runs.append(body.n)

    async with desk.kind.test_broker(desk.broker):
        await desk.publish({"n": 1}, correlation_id="c-1")
    (letter,) = await desk.letters()
    assert (runs, letter.reason, letter.raw[1]) == ([], "invalid", b'{"n":1}')


@on_brokers
async def test_an_id_in_a_header_is_taken_where_it_is_named(kind: str) -> None:
    desk, runs = a_desk(kind, id="header:X-Order", source="/shop", subject="body:who"), list[Any]()

    @desk.subscriber()
    async def registered(event: Event = Context("semel_event")) -> None:
        runs.append((event.source, event.id, event.type, event.subject))

    async with desk.kind.test_broker(desk.broker):
        for order in ("1", "1", "2"):
            await desk.publish({"who": "ann"}, headers={"x-order": order})
        await desk.publish({"who": "ann"})
    assert runs == [("/shop", "1", "message", "ann"), ("/shop", "2", "message", "ann")]
    assert [letter.reason for letter in await desk.letters()] == ["invalid"]


@on_brokers
async def test_a_body_that_is_not_as_annotated_is_no_attempt(kind: str) -> None:
    desk = a_desk(kind)

    @desk.subscriber()
    async def registered(body: Registered) -> None:
        raise AssertionError("it was called")

    async with desk.kind.test_broker(desk.broker):
        await desk.send(data={"n": "secret"})
    (letter,) = await desk.letters()
    assert (letter.reason, "secret" in letter.error.message) == ("invalid", False)


async def test_an_error_of_validation_inside_a_handler_is_one_of_the_handler() -> None:
    desk = a_desk()

    @desk.subscriber()
    async def registered(body: dict[str, Any]) -> None:
        Registered.model_validate({"n": "x"})

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
    record = await desk.box.consumer.semel.read(("/a", "e-1"), operation="event:billing")
    assert (await desk.letters(), record is not None and record.attempts) == ([], 1)


async def test_a_result_that_is_not_as_annotated_is_an_error_of_the_handler() -> None:
    desk = a_desk()

    @desk.subscriber()
    async def registered(body: dict[str, Any]) -> int:
        return "no number"  # type: ignore[return-value]

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
    assert await desk.letters() == [], "its effect has happened"


@pytest.mark.parametrize(
    ("raised", "reasons", "status"),
    [(RejectMessage, ["rejected"], "failed"), (AckMessage, [], "completed"), (NackMessage, [], "in_doubt")],
)
async def test_what_a_handler_says_of_its_message_is_taken_at_its_word(
    raised: type[Exception], reasons: list[str], status: str
) -> None:
    desk = a_desk()

    @desk.subscriber()
    async def registered(body: Registered) -> None:
        raise raised

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
    record = await desk.box.consumer.semel.read(("/a", "e-1"), operation="event:billing")
    assert [letter.reason for letter in await desk.letters()] == reasons
    assert record is not None
    assert record.status == status


async def test_a_duplicate_publishes_nothing() -> None:
    desk, answers = a_desk(), list[Any]()

    async def registered(body: Registered) -> int:
        return body.n + 1

    handler: Any = desk.subscriber()(desk.broker.publisher("answers")(registered))
    async with desk.kind.test_broker(desk.broker):
        await desk.send()
        await desk.send()
        handler.mock.assert_called_once()
        answers = desk.broker.publishers[0].mock.mock_calls
    assert len(answers) == 1


@pytest.mark.parametrize(("unknown", "reasons"), [("dead_letter", ["unknown_type"]), ("ignore", []), ("refuse", [])])
async def test_a_message_that_no_handler_takes_is_treated_as_was_said(unknown: Any, reasons: list[str]) -> None:
    desk = a_desk(unknown=unknown)

    async def never(_: Any) -> bool:
        return False

    @desk.subscriber()(filter=never)
    async def registered(body: Registered) -> None:
        raise AssertionError("it was called")

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
    record = await desk.box.consumer.semel.read(("/a", "e-1"), operation="event:billing")
    assert [letter.reason for letter in await desk.letters()] == reasons
    assert (record is None) == (unknown == "ignore")


async def test_a_message_whose_parser_fails_is_counted() -> None:
    async def parse(message: Any, original: Any) -> Any:
        raise LookupError("cannot")

    desk = a_desk(max_attempts=1, in_doubt="rerun")

    @desk.subscriber(parser=parse)
    async def registered(body: Registered) -> None:
        raise AssertionError("it was called")

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
    assert [letter.reason for letter in await desk.letters()] == ["exhausted"]


class Tag(BaseMiddleware):
    """Stands for what a service has around its handlers."""

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        with self.context.scope("tag", "around"):
            return await call_next(msg)


@on_brokers
async def test_a_letter_that_is_handed_over_again_takes_the_same_way(kind: str) -> None:
    desk, runs, may_work = a_desk(kind, Tag, max_attempts=1, in_doubt="rerun"), list[Any](), list[bool]()

    async def is_moved(message: Any) -> bool:
        return bool(message.headers.get("ce-type") == "moved")

    sub = desk.subscriber()

    @sub(filter=is_moved)
    async def moved(body: Registered) -> None:
        raise AssertionError("another handler")

    @sub
    async def registered(body: Registered, tag: str = Context(), event: Event = Context("semel_event")) -> None:
        if not may_work:
            raise LookupError("not yet")
        runs.append((body.n, tag, event.id))

    async with desk.kind.test_broker(desk.broker):
        await desk.send()
        may_work.append(True)
        (letter,) = await desk.letters()
        assert (await desk.box.consumer.redrive(letter.id)).status == "processed"
    assert (runs, await desk.letters()) == ([(1, "around", "e-1")], [])


async def test_a_subscriber_with_a_title_is_a_consumer_of_its_own() -> None:
    desk, runs = a_desk(), list[str]()

    @desk.subscriber()
    async def first(body: Registered) -> None:
        runs.append("first")

    @desk.subscriber("copies", title="copies")
    async def second(body: Registered) -> None:
        runs.append("second")

    headers, body = an_event().to_headers()
    async with desk.kind.test_broker(desk.broker):
        for queue in ("assets", "copies"):
            await desk.broker.publish(body, queue, headers=headers)
    assert runs == ["first", "second"]
    assert sorted(desk.box.consumers) == ["billing", "billing.copies"]


async def test_two_subscribers_that_are_the_same_consumer_are_refused() -> None:
    desk = a_desk()
    for queue in ("assets", "copies"):

        @desk.subscriber(queue)
        async def registered(body: Registered) -> None:
            pass

    with pytest.raises(UsageError, match='title="NAME"'):
        await BrokerUsecase.start(desk.broker)  # what its own start calls once it is connected


async def test_a_router_has_an_inbox_of_its_own() -> None:
    box, runs = inbox(AsyncSemel(MemoryStore()), "billing"), list[int]()
    router = RabbitRouter(middlewares=[box])

    @router.subscriber("assets", ack_policy=AckPolicy.MANUAL)
    async def registered(body: Registered) -> None:
        runs.append(body.n)

    broker = RabbitBroker()
    broker.include_router(router)

    @broker.subscriber("others")
    async def others(body: dict[str, Any]) -> None:
        runs.append(0)

    headers, body = an_event().to_headers()
    async with TestRabbitBroker(broker):
        for queue in ("assets", "others"):
            for _ in range(2):
                await broker.publish(body, queue, headers=dict(headers))
    assert runs == [1, 0, 0]


@on_brokers
@pytest.mark.parametrize("policy", UNSAFE, ids=lambda policy: policy.name)
@pytest.mark.filterwarnings("ignore:.*ACK_FIRST:RuntimeWarning", "ignore:AckPolicy.REJECT_ON_ERROR:UserWarning")
async def test_a_policy_that_loses_messages_is_refused_in_tests_too(kind: str, policy: AckPolicy) -> None:
    desk = a_desk(kind)

    @desk.subscriber(ack_policy=policy)
    async def registered(body: Registered) -> None:
        raise AssertionError("it was called")

    async with desk.kind.test_broker(desk.broker):
        with pytest.raises(UsageError, match=rf"Registered .*AckPolicy\.{policy.name}.*AckPolicy\.MANUAL"):
            await desk.send()


@pytest.mark.parametrize(
    ("queue", "named"),
    [
        (RabbitQueue("assets", exclusive=True), "deleted with its last consumer"),
        (RabbitQueue("assets", auto_delete=True), "deleted with its last consumer"),
        (RabbitQueue("assets", durable=False), "a restart of the broker deletes"),
        (RabbitQueue("assets", durable=False, declare=False), ""),  # it is there, as somebody else made it
        (RabbitQueue("assets"), ""),
    ],
    ids=["exclusive", "auto_delete", "not-durable", "not-declared", "usual"],
)
def test_a_queue_of_rabbitmq_that_does_not_last_is_named(
    queue: RabbitQueue, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    on_rabbitmq.check(RabbitBroker().subscriber(queue, ack_policy=AckPolicy.MANUAL))
    assert named in caplog.text
    assert bool(named) == bool(caplog.text)


A_STREAM = RabbitQueue("assets", queue_type=QueueType.STREAM, durable=True)


@pytest.mark.parametrize("offset", [None, "next", "last"])
def test_a_stream_of_rabbitmq_of_which_a_crash_loses_messages_is_refused(offset: str | None) -> None:
    given: dict[str, Any] = {} if offset is None else {"consume_args": {"x-stream-offset": offset}}
    subscriber = RabbitBroker().subscriber(A_STREAM, ack_policy=AckPolicy.MANUAL, **given)
    with pytest.raises(UsageError, match=rf"begins at '{offset or 'next'}'.*nothing was taken.*\"first\""):
        on_rabbitmq.check(subscriber)


@pytest.mark.parametrize("offset", ["first", 7, "7D"])
def test_a_stream_of_rabbitmq_that_is_read_again_is_not_refused(offset: Any, caplog: pytest.LogCaptureFixture) -> None:
    args = {"x-stream-offset": offset}
    on_rabbitmq.check(RabbitBroker().subscriber(A_STREAM, ack_policy=AckPolicy.MANUAL, consume_args=args))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "AckPolicy.ACK_FIRST"),
        ({"ack_policy": AckPolicy.NACK_ON_ERROR, "group_id": "g"}, "AckPolicy.NACK_ON_ERROR"),
        ({"ack_policy": AckPolicy.MANUAL}, "group_id="),
        ({"ack_policy": AckPolicy.MANUAL, "group_id": "g", "batch": True}, "batch"),
    ],
)
async def test_a_kafka_subscriber_that_loses_messages_is_refused_at_start(settings: dict[str, Any], named: str) -> None:
    broker: Any = KafkaBroker(middlewares=[inbox(AsyncSemel(MemoryStore()), "billing")])

    async def registered(body: Any) -> None:
        pass

    broker.subscriber("assets", **settings)(registered)
    with pytest.raises(UsageError, match="nothing was taken") as refused:
        await BrokerUsecase.start(broker)  # what its own start calls once it is connected
    assert named in str(refused.value)


async def test_a_handler_that_asks_for_a_session_where_there_is_none_is_refused() -> None:
    desk = a_desk()

    @desk.subscriber()
    async def registered(body: Registered, session: Any = Context("semel_session")) -> None:
        raise AssertionError("it was called")

    async with desk.kind.test_broker(desk.broker):
        with pytest.raises(UsageError, match=r"inbox\(transaction=…\)"):
            await desk.send()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"id": "x-id", "source": "/a"}, '"header:NAME" or "body:PATH"'),
        ({"id": "header:x"}, "source="),
        ({"source": "/a"}, "id="),
    ],
)
async def test_an_identity_that_is_half_said_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as refused:
        inbox(AsyncSemel(MemoryStore()), "billing", **settings)
    assert named in str(refused.value)


async def test_an_engine_of_threads_is_refused() -> None:
    with pytest.raises(UsageError, match="AsyncSemel"):
        inbox(Semel(MemoryStore()), "billing")  # type: ignore[arg-type]


async def test_a_consumer_of_an_inbox_takes_no_handlers() -> None:
    with pytest.raises(UsageError, match="subscriber of FastStream"):
        a_desk().box.consumer.on("registered")


async def test_data_that_is_no_json_is_handed_on_as_it_is() -> None:
    desk, bodies = a_desk(max_attempts=1, in_doubt="rerun"), list[bytes]()

    @desk.subscriber()
    async def registered(body: bytes) -> None:
        bodies.append(body)
        if len(bodies) == 1:
            raise LookupError("not yet")

    async with desk.kind.test_broker(desk.broker):
        await desk.send(data=b"\x00\xff", datacontenttype="application/octet-stream")
        (letter,) = await desk.letters()
        await desk.box.consumer.redrive(letter.id)
    assert bodies == [b"\x00\xff", b"\x00\xff"]


async def test_a_letter_reaches_a_subscriber_whose_broker_is_not_started() -> None:
    store, runs = MemoryStore(), list[int]()
    failing, working = (
        Desk(KINDS["rabbitmq"], box, RabbitBroker(middlewares=[box]))
        for box in [inbox(AsyncSemel(store), "billing", max_attempts=1, in_doubt="rerun") for _ in range(2)]
    )

    @failing.subscriber()
    async def fails(body: Registered) -> None:
        raise LookupError("not yet")

    @working.subscriber()
    async def works(body: Registered) -> None:
        runs.append(body.n)

    async with TestRabbitBroker(failing.broker):
        await failing.send()
    (letter,) = await working.letters()
    with pytest.raises(UsageError, match="No subscriber of FastStream"):
        await working.box.consumer.redrive(letter.id)
    working.box.prepare(working.broker)
    assert (await working.box.consumer.redrive(letter.id)).status == "processed"
    assert runs == [1]


async def test_a_subscriber_that_starts_without_its_broker_is_refused() -> None:
    desk = a_desk()

    @desk.subscriber()
    async def registered(body: Registered) -> None:
        pass

    (subscriber,) = desk.broker.subscribers
    with pytest.raises(UsageError, match="starts before its broker"):
        await desk.box.start(subscriber)
