"""The tables of the reference that say what each broker is told: every cell is compared with what is said to a server.

A row of the tables that is not tried here fails, and so does a cell with other words than those that are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiormq
import nats as nats_client
import pytest
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from redis.asyncio import Redis

from semel import AsyncSemel
from semel.events import Backoff, Consumer
from semel.events.brokers.faststream import inbox, on_kafka
from semel.events.brokers.faststream.settling import Served
from semel.events.brokers.listening import Message
from semel.events.disposition import Disposition
from semel.stores.memory import MemoryStore
from tests.docs.pages import page, table
from tests.events.broker_cases import LONG, Bench, an_event, publish, until
from tests.events.faststream_cases import Site
from tests.events.taps import monitor, parse_amqp, parse_nats, parse_sqs, tap, without_extensions
from tests.events.test_aws_lambda import row_of
from tests.events.test_faststream_nats import NatsSite
from tests.events.test_faststream_rabbitmq import RabbitSite
from tests.events.test_faststream_redis import RedisSite
from tests.events.test_nats import NatsBench
from tests.events.test_rabbitmq import RabbitBench
from tests.events.test_redis_streams import RedisBench
from tests.events.test_sqs import SqsBench

ACTIONS = ("ack", "retry", "dead_letter")
LATER = timedelta(hours=1)
"""How long what failed has to wait: longer than any test."""
DELAYED = ["basic.publish", "confirmed", "basic.ack"]
HIDDEN = "ChangeMessageVisibilityBatch with the delay"
MEANING = {
    "basic.ack": ["basic.ack"],
    "basic.ack, grouped": ["basic.ack"],
    "published to a delay queue with a confirmation, then acknowledged": DELAYED,
    "basic.reject: goes where the queue's x-dead-letter-exchange says": ["basic.reject"],
    "+ACK": ["+ACK"],
    "-NAK with the delay": ["-NAK with the delay"],
    "+TERM": ["+TERM"],
    "a copy to dead_letter_subject=, then +TERM": ["copy", "+TERM"],
    "XACK by the owner": ["XACK"],
    "XACK by the owner, grouped": ["XACK"],
    "set aside until it is due": ["set aside"],
    "set aside until it is due, then handed to the subscriber": ["set aside"],
    "a copy to dead_letter_stream=, then XACK": ["copy", "XACK"],
    "DeleteMessageBatch, up to ten": ["DeleteMessageBatch"],
    f"{HIDDEN}, at most until 12 hours after the delivery; the rest of a FIFO group is given back": [HIDDEN],
    "a copy to dead_letter_queue=, then deleted": ["copy", "DeleteMessageBatch"],
    "the position is committed": ["committed"],
    "waits at most a minute, then goes back to the message": ["went back"],
}
"""What is said, by the words of a cell."""
EXTENDED = ("+WPI every", "touched by the owner every", "ChangeMessageVisibilityBatch every")
NOT_EXTENDED = "cannot be extended: max_runtime must be below consumer_timeout"
ROWS = {row[0]: row[1:] for row in table(page("docs/reference/events.md"), "broker")}
FASTSTREAM = {f"FastStream, {row[0]}": row[1:] for row in table(page("docs/reference/events.md"), "FastStream on")}
SERVERS = {"RabbitMQ": "rabbitmq", "NATS": "nats", "Redis streams": "redis_keys", "SQS": "sqs"}


class Refused(Exception):
    """Settled: nobody can process this event."""


@dataclass
class Stage:
    """Where one event is listened to, and what the broker is told of it."""

    bench: Bench
    told: list[str]
    listen: Callable[..., AbstractAsyncContextManager[Any]]
    """Given what a handler does, and settings of the consumer."""


SETTINGS: dict[str, Any] = {
    "backoff": Backoff(first=LATER, most=LATER, spread=0),
    "final_errors": (Refused,),
    "retry_errors": (OSError,),
}


def listening_by_itself(bench: Bench, url: str, **places: Any) -> Callable[..., Any]:
    def listen(act: Callable[[], Any], **settings: Any) -> Any:
        consumer: Consumer[AsyncSemel] = Consumer(AsyncSemel(MemoryStore()), "billing", **SETTINGS, **settings)
        consumer.on("registered")(act)
        return bench.listen(consumer, url, **places)

    return listen


def listening_with_faststream(site: Site, url: str) -> Callable[..., Any]:
    def listen(act: Callable[[], Any], **settings: Any) -> Any:
        box = inbox(AsyncSemel(MemoryStore()), "billing", ack_wait=1.0, **SETTINGS, **settings)
        return site.running(box, act, url=url)

    return listen


@asynccontextmanager
async def on_rabbitmq(server: Any, *, with_faststream: bool) -> AsyncIterator[Stage]:
    connection = await aiormq.connect(server.url)
    bench = RabbitBench(server, await connection.channel())
    await bench.make()
    with tap(server.url, parse_amqp) as (url, told):
        site = RabbitSite(bench)
        listen = listening_with_faststream(site, url) if with_faststream else listening_by_itself(bench, url)
        yield Stage(bench, told, listen)
    await connection.close()


@asynccontextmanager
async def on_nats(server: Any, *, with_faststream: bool) -> AsyncIterator[Stage]:
    connection = await nats_client.connect(server.url)
    bench = NatsBench(server, connection.jetstream())
    await bench.make()
    with tap(server.url, parse_nats(bench.dead)) as (url, told):
        site = NatsSite(bench)
        itself = listening_by_itself(bench, url, ack_wait=timedelta(seconds=1))
        yield Stage(bench, told, listening_with_faststream(site, url) if with_faststream else itself)
    await connection.close()


@asynccontextmanager
async def on_redis(server: Any, *, with_faststream: bool) -> AsyncIterator[Stage]:
    client = Redis.from_url(server.plain_url, protocol=2)
    bench = RedisBench(server, client)
    await bench.make()
    await client.xgroup_create(bench.name, "billing", id="0", mkstream=True)
    async with monitor(client, bench.name, bench.dead) as told:
        site = RedisSite(bench)
        itself = listening_by_itself(bench, bench.url, ack_wait=timedelta(seconds=1))
        yield Stage(bench, told, listening_with_faststream(site, bench.url) if with_faststream else itself)
    await bench.make()
    await client.delete(f"{bench.name}-nowhere")
    await client.aclose()


@asynccontextmanager
async def on_sqs(server: Any, *, with_faststream: bool) -> AsyncIterator[Stage]:
    assert not with_faststream
    bench = SqsBench(server)
    with tap(server.endpoint.url, parse_sqs(LATER.total_seconds())) as (url, told):
        yield Stage(bench, told, listening_by_itself(bench, url))


STAGES = {"RabbitMQ": on_rabbitmq, "NATS": on_nats, "Redis streams": on_redis, "SQS": on_sqs}
TRIED = {name: row for name, row in {**ROWS, **FASTSTREAM}.items() if name.removeprefix("FastStream, ") in STAGES}


@pytest.fixture
async def stage(row: str, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    broker = row.removeprefix("FastStream, ")
    server = request.getfixturevalue(SERVERS[broker])
    async with STAGES[broker](server, with_faststream=row != broker) as made:
        yield made


def test_every_row_of_the_tables_is_tried() -> None:
    assert set(ROWS) == {*STAGES, "AWS Lambda"}
    assert set(FASTSTREAM) == {
        f"FastStream, {name}" for name in ("RabbitMQ", "NATS", "Redis streams", "Kafka (not run)")
    }


def ending_as(action: str) -> Callable[[], Any]:
    async def act() -> None:
        if action == "retry":
            raise OSError("nobody answers")
        if action == "dead_letter":
            raise Refused

    return act


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("row", TRIED)
async def test_a_broker_is_told_what_the_reference_says(stage: Stage, row: str, action: str) -> None:
    expected = MEANING[TRIED[row][ACTIONS.index(action)]]
    await publish(stage.bench, an_event())
    stage.told.clear()
    async with stage.listen(ending_as(action)):

        async def is_told() -> bool:
            return len(without_extensions(stage.told)) >= len(expected)

        await until(is_told, f"{expected}, and not only {stage.told}")
    assert without_extensions(stage.told) == expected
    there = ["e-1"] if action == "dead_letter" and ("copy" in expected or "basic.reject" in expected) else []

    async def is_passed_on() -> bool:
        return await stage.bench.passed_on() == there

    await until(is_passed_on, f"the place for dead letters has {there}")  # RabbitMQ moves them there by and by


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row, cells in TRIED.items() if cells[3].startswith(EXTENDED)])
async def test_a_deadline_is_extended_while_a_handler_runs_as_the_reference_says(stage: Stage, row: str) -> None:
    is_extended = asyncio.Event()

    async def act() -> None:
        await until(lambda: asyncio.sleep(0, "extended" in stage.told), "extended")
        is_extended.set()

    await publish(stage.bench, an_event())
    async with asyncio.timeout(LONG), stage.listen(act):
        await is_extended.wait()


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row, cells in TRIED.items() if cells[3] == NOT_EXTENDED])
async def test_a_handler_that_outlasts_what_cannot_be_extended_is_named(
    stage: Stage, row: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage.listen(ending_as("ack"), max_runtime=timedelta(hours=1)):
        assert "consumer_timeout" in caplog.text


def test_a_deadline_of_every_row_is_extended_or_not() -> None:
    cells = [cells[3] for cells in TRIED.values()]
    assert [cell for cell in cells if not cell.startswith(EXTENDED) and cell != NOT_EXTENDED] == []


class Position:
    """A message of Kafka, as FastStream gives it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def ack(self) -> None:
        self.told.append("committed")

    async def nack(self) -> None:
        self.told.append("went back")


@pytest.mark.anyio
@pytest.mark.parametrize("action", ACTIONS)
async def test_kafka_is_told_what_the_reference_says(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("semel.events.brokers.faststream.on_kafka.asyncio.sleep", wait)
    semel: Any = AsyncSemel(MemoryStore())
    consumer: Consumer[AsyncSemel] = Consumer(semel, "billing")
    subscriber = KafkaBroker().subscriber("events", group_id="billing", ack_policy=AckPolicy.MANUAL)
    settler = on_kafka.make_settler(Served(subscriber, None, consumer, timedelta(seconds=1)))
    position = Position()
    message = Message({}, b"", position)
    match action:
        case "ack":
            await settler.acknowledge(message)
        case "retry":
            await settler.retry(message, LATER)
        case _:
            await settler.dead_letter(message, Disposition("dead_letter", "rejected"))
    assert position.told == MEANING[FASTSTREAM["FastStream, Kafka (not run)"][ACTIONS.index(action)]]
    assert waited == ([60.0] if action == "retry" else [])


@pytest.mark.anyio
@pytest.mark.parametrize(("interval_ms", "is_named"), [(300_000, True), (300_001, False)])
async def test_a_handler_that_may_outlast_its_place_in_a_group_of_kafka_is_named(
    interval_ms: int, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told = FASTSTREAM["FastStream, Kafka (not run)"][3]
    assert told == "cannot be extended: max_runtime must be below max_poll_interval_ms"
    consumer = Consumer(AsyncSemel(MemoryStore()), "billing", max_runtime=timedelta(minutes=5))
    given: dict[str, Any] = {"group_id": "billing", "max_poll_interval_ms": interval_ms}
    subscriber = KafkaBroker().subscriber("events", ack_policy=AckPolicy.MANUAL, **given)
    await on_kafka.make_settler(Served(subscriber, None, consumer, timedelta(seconds=1))).start()
    assert ("max_poll_interval_ms" in caplog.text) == is_named


def test_the_row_of_lambda_says_what_its_own_table_says() -> None:
    acknowledged, again, dead, _ = ROWS["AWS Lambda"]
    assert row_of("processed")[1] == acknowledged
    assert again == "a failure item, or an error"
    assert row_of("failed")[1].startswith("a failure item")
    assert row_of("failed")[2].startswith("raises")
    assert row_of("rejected")[1].startswith("acknowledged")
    assert dead == "acknowledged, then pass_on="
