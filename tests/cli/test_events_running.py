"""`semel events consume` and `relay`: real processes on real brokers, ended by a signal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiormq
import nats as nats_client
import pytest
from redis.asyncio import Redis

from semel import Semel
from semel.events import Consumer, Event, Outbox
from semel.events.brokers import nats as nats_adapter
from semel.events.brokers import rabbitmq as rabbitmq_adapter
from semel.events.brokers import redis_streams as redis_adapter
from semel.events.brokers import sqs as sqs_adapter
from tests.cli.conftest import Database, Run, command, environment
from tests.processes import child
from tests.servers.broker import Broker
from tests.servers.ministack import CREDENTIALS
from tests.servers.redis import Keys
from tests.servers.sqs import Queues, service_url

pytestmark = pytest.mark.slow
LONG = 60.0
CONSUMER = """
import asyncio
from pathlib import Path

from semel import {engine}
from semel.events import Consumer, Event

semel = {engine}("{url}")
consumer = Consumer(semel, "billing", max_attempts=1)


@consumer.on("invoice.sent")
{prefix}def book(event: Event) -> None:
    with Path("booked").open("a") as book:
        book.write(event.id + "\\n")


@consumer.on("invoice.broken")
{prefix}def broken(event: Event) -> None:
    raise OSError("no route to the ledger")
"""
WAITING = """

@consumer.on("invoice.slow")
async def slow(event: Event) -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    with Path("booked").open("a") as book:
        book.write(event.id + "\\n")
"""
NOT_COMMITTING = """

import sqlite3
from contextlib import asynccontextmanager


@asynccontextmanager
async def never():
    connection = sqlite3.connect("semel.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.rollback()
    connection.close()


forgetful = Consumer(semel, "forgetful", transaction=never)


@forgetful.on("invoice.sent")
async def forget(event: Event) -> None:
    pass
"""
RELAY = """
from pathlib import Path

from semel import AsyncSemel
from semel.events import Outbox, Relay


class File:
    async def publish(self, events):
        with Path("published").open("a") as book:
            book.writelines(event.id + "\\n" for event in events)
        return [None] * len(events)

    async def close(self):
        Path("closed").touch()


relay = Relay(Outbox(AsyncSemel("{url}")), File())
"""


class Place(ABC):
    """Where events go on one broker, and the options by which the command finds it."""

    def __init__(self, broker: Broker) -> None:
        self.url = broker.url
        self.name = broker.new_name()

    @property
    @abstractmethod
    def consume_options(self) -> list[str]:
        """Where to take from."""

    @property
    @abstractmethod
    def relay_options(self) -> list[str]:
        """Where to publish to."""

    @abstractmethod
    async def make(self) -> None:
        """Make it."""

    @abstractmethod
    async def count(self) -> int:
        """How many messages are there that nobody acknowledged."""

    @abstractmethod
    def publisher(self) -> Any:
        """What publishes there."""

    async def publish(self, *events: Event) -> None:
        async with self.publisher() as publisher:
            assert await publisher.publish(events) == [None] * len(events)


class RabbitPlace(Place):
    @property
    def consume_options(self) -> list[str]:
        return ["--queue", self.name]

    @property
    def relay_options(self) -> list[str]:
        return ["--routing-key", self.name]

    async def make(self) -> None:
        connection = await aiormq.connect(self.url)
        await (await connection.channel()).queue_declare(self.name, durable=True)
        await connection.close()

    async def count(self) -> int:
        connection = await aiormq.connect(self.url)
        declared = await (await connection.channel()).queue_declare(self.name, passive=True)
        await connection.close()
        return int(declared.message_count or 0)

    def publisher(self) -> Any:
        return rabbitmq_adapter.publisher(self.url, routing_key=self.name)


class NatsPlace(Place):
    @property
    def consume_options(self) -> list[str]:
        return ["--stream", self.name, "--durable", "billing"]

    @property
    def relay_options(self) -> list[str]:
        return ["--subject", f"{self.name}.{{type}}"]

    async def make(self) -> None:
        client = await nats_client.connect(self.url)
        await client.jetstream().add_stream(name=self.name, subjects=[f"{self.name}.>"])
        await client.close()

    async def count(self) -> int:
        client = await nats_client.connect(self.url)
        try:
            info = await client.jetstream().consumer_info(self.name, "billing")
            return int((info.num_pending or 0) + (info.num_ack_pending or 0))
        except nats_client.js.errors.NotFoundError:
            return int((await client.jetstream().stream_info(self.name)).state.messages)
        finally:
            await client.close()

    def publisher(self) -> Any:
        return nats_adapter.publisher(self.url, subject=lambda event: f"{self.name}.{event.type}")


class RedisPlace(Place):
    @property
    def consume_options(self) -> list[str]:
        return ["--stream", self.name, "--group", "billing"]

    @property
    def relay_options(self) -> list[str]:
        return ["--target-stream", self.name]

    async def make(self) -> None:
        async with Redis.from_url(self.url, protocol=2) as client:
            await client.xgroup_create(self.name, "billing", id="0", mkstream=True)

    async def count(self) -> int:
        async with Redis.from_url(self.url, protocol=2) as client:
            (group,) = await client.xinfo_groups(self.name)
            return int(group["pending"] + group["lag"])

    def publisher(self) -> Any:
        return redis_adapter.publisher(self.url, stream=self.name)


class SqsPlace(Place):
    def __init__(self, queues: Queues) -> None:
        self.url = queues.url
        self.queues = queues
        self.name = queues.new_queue(VisibilityTimeout="4")

    @property
    def consume_options(self) -> list[str]:
        return ["--queue", self.name]

    @property
    def relay_options(self) -> list[str]:
        return ["--target-queue", self.name]

    async def make(self) -> None:
        """It is made."""

    async def count(self) -> int:
        return await asyncio.to_thread(self.queues.count, self.name)

    def publisher(self) -> Any:
        return sqs_adapter.publisher(self.url, queue=self.name)


@pytest.fixture
def redis(redis_keys: Keys) -> Broker:
    return Broker(replace(redis_keys.endpoint, url=redis_keys.plain_url))


@pytest.fixture(params=["rabbitmq", "nats", "redis", "sqs"])
def place(request: pytest.FixtureRequest) -> Place:
    kinds: dict[str, Callable[[Any], Place]] = {
        "rabbitmq": RabbitPlace,
        "nats": NatsPlace,
        "redis": RedisPlace,
        "sqs": SqsPlace,
    }
    made = kinds[request.param](request.getfixturevalue(request.param))
    asyncio.run(made.make())
    return made


class Running:
    """The command, and what it told so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.told: dict[str, Any] = {}

    def until(self, **wanted: int) -> None:
        """Read its lines until the numbers are these."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told = json.loads(line)
            if all(self.told[name] == number for name, number in wanted.items()):
                return
        raise AssertionError(f"it ended at {self.told}: {self.process.stderr and self.process.stderr.read()}")

    def end(self) -> dict[str, Any]:
        """Read what it tells at its end."""
        out, err = self.process.communicate(timeout=LONG)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1]) if out else self.told


@contextmanager
def started(folder: Path, *arguments: str, broker: str = "") -> Iterator[Running]:
    variables = {"SEMEL_BROKER": broker} if broker else {}
    line = command(["events", *arguments, "--json", "--every", "100ms"])
    pipe = subprocess.PIPE
    with child(line, cwd=folder, env=environment(**variables), stdout=pipe, stderr=pipe) as process:
        yield Running(process)


def write_consumer(folder: Path, database: Database, *, is_async: bool = True, more: str = "") -> None:
    engine, prefix = ("AsyncSemel", "async ") if is_async else ("Semel", "")
    (folder / "billing.py").write_text(CONSUMER.format(engine=engine, prefix=prefix, url=database.url) + more)


def an_event(id_: str, type_: str = "invoice.sent") -> Event:
    return Event(id=id_, type=type_, source="/shop", data={"cents": 5})


@pytest.mark.parametrize(
    ("place", "is_async"),
    [("rabbitmq", True), ("nats", False)],
    ids=["rabbitmq-loop", "nats-threads"],
    indirect=["place"],
)
def test_a_consumer_runs_until_it_is_told_to_end(
    place: Place, database: Database, tmp_path: Path, *, is_async: bool
) -> None:
    write_consumer(tmp_path, database, is_async=is_async)
    with Semel(database.url) as semel:
        early = Consumer(semel, "billing")
        early.on("invoice.sent")(lambda event: None)
        early.handle(an_event("e-0"))
    asyncio.run(place.publish(*(an_event(f"e-{number}") for number in range(10)), an_event("x", "invoice.broken")))
    with started(tmp_path, "consume", "billing:consumer", *place.consume_options, broker=place.url) as running:
        running.until(received=11, in_flight=0)
        running.process.send_signal(signal.SIGTERM)
        told = running.end()
    assert (told["processed"], told["duplicates"], told["dead_letters"], told["retried"]) == (9, 1, 1, 0)
    assert told["types"]["invoice.sent"]["received"] == 10
    assert sorted((tmp_path / "booked").read_text().split()) == [f"e-{number}" for number in range(1, 10)]
    assert asyncio.run(place.count()) == 0, "all of it is acknowledged"


def test_what_is_under_way_at_the_end_is_finished_and_acknowledged(
    place: Place, database: Database, tmp_path: Path
) -> None:
    write_consumer(tmp_path, database, more=WAITING)
    asyncio.run(place.publish(an_event("e-1", "invoice.slow")))
    with started(tmp_path, "consume", "billing:consumer", *place.consume_options, broker=place.url) as running:
        running.until(in_flight=1)
        running.process.send_signal(signal.SIGINT)
        assert not (tmp_path / "booked").exists()
        (tmp_path / "go").touch()
        told = running.end()
    assert (told["received"], told["processed"], told["in_flight"]) == (1, 1, 0)
    assert (tmp_path / "booked").read_text().split() == ["e-1"]
    assert asyncio.run(place.count()) == 0


def on_a_terminal(folder: Path, arguments: list[str], *, until: bytes, **variables: str) -> bytes:
    """The command on a terminal, ended by a signal once it shows something; gives all that it showed."""
    controller, terminal = pty.openpty()
    shown = b""
    own = environment(COLUMNS="140", TERM="xterm", **variables)
    line = command(["events", *arguments])
    with child(line, cwd=folder, env=own, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        while until not in shown:
            shown += os.read(controller, 65536)
        process.send_signal(signal.SIGTERM)
        while True:
            try:
                shown += os.read(controller, 65536)
            except OSError:  # its end of the terminal is closed
                break
        assert process.wait(LONG) == 0, shown.decode()
    os.close(controller)
    return shown


@pytest.mark.parametrize("place", ["rabbitmq"], indirect=True)
def test_a_terminal_shows_a_table_that_changes(place: Place, database: Database, tmp_path: Path) -> None:
    write_consumer(tmp_path, database)
    asyncio.run(place.publish(an_event("e-1")))
    line = ["consume", "billing:consumer", *place.consume_options]
    shown = on_a_terminal(tmp_path, line, until=b"invoice.sent", SEMEL_BROKER=place.url)
    for words in (b"consumer billing", b"dead letters", b"in flight"):
        assert words in shown
    assert b"guest:guest" not in shown


def test_a_relay_publishes_an_outbox_until_it_is_told_to_end(place: Place, database: Database, tmp_path: Path) -> None:
    with Semel(database.url) as semel:
        for number in range(5):
            Outbox(semel, "shop").add(an_event(f"e-{number}"), autonomous=True)
        options = ["relay", database.url, "--stream", "shop", *place.relay_options]
        with started(tmp_path, *options, broker=place.url) as running:
            running.until(published=5, waiting=0)
            Outbox(semel, "shop").add(an_event("later"), autonomous=True)
            running.until(published=6, waiting=0, in_flight=0)
            running.process.send_signal(signal.SIGTERM)
            told = running.end()
    assert (told["stream"], told["published"], told["parked"]) == ("shop", 6, 0)
    assert asyncio.run(place.count()) == 6


def test_a_relay_of_a_module_brings_its_own_publisher(database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(RELAY.format(url=database.url))
    with Semel(database.url) as semel:
        Outbox(semel).add(an_event("e-1"), autonomous=True)
    with started(tmp_path, "relay", "shop:relay") as running:
        running.until(published=1, waiting=0)
        running.process.send_signal(signal.SIGTERM)
        running.end()
    assert (tmp_path / "published").read_text().split() == ["e-1"]
    assert (tmp_path / "closed").exists(), "its connection was ended"


def test_a_relay_on_a_terminal_shows_how_far_it_is(database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(RELAY.format(url=database.url))
    with Semel(database.url) as semel:
        Outbox(semel).add(an_event("e-1"), autonomous=True)
    shown = on_a_terminal(tmp_path, ["relay", "shop:relay"], until=b"a second")
    for words in (b"published", b"parked", b"waiting", b"oldest"):
        assert words in shown


def test_the_lag_on_a_terminal_is_looked_at_until_it_is_told_to_end(database: Database, tmp_path: Path) -> None:
    with Semel(database.url) as semel:
        Outbox(semel).add(an_event("e-1"), autonomous=True)
    shown = on_a_terminal(tmp_path, ["lag", database.url, "--watch", "--every", "50ms"], until=b"no relay yet")
    assert b"waiting" in shown


def test_a_publisher_that_does_not_answer_for_each_event_ends_the_relay(
    database: Database, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(RELAY.format(url=database.url).replace("[None] * len(events)", "[]"))
    with Semel(database.url) as semel:
        Outbox(semel).add(an_event("e-1"), autonomous=True)
    done = run("events", "relay", "shop:relay")
    assert done.returncode == 2
    assert "1 events and answered for 0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["nats"], indirect=True)
def test_a_transaction_that_does_not_commit_ends_the_consumer(
    place: Place, database: Database, run: Run, tmp_path: Path
) -> None:
    write_consumer(tmp_path, database, more=NOT_COMMITTING)
    asyncio.run(place.publish(an_event("e-1")))
    done = run("events", "consume", "billing:forgetful", *place.consume_options, SEMEL_BROKER=place.url)
    assert done.returncode == 2, done.stderr
    assert "did not commit" in done.stderr
    assert "Traceback" not in done.stderr
    assert asyncio.run(place.count()) == 1, "it was not acknowledged"


@pytest.mark.parametrize("is_async", [True, False], ids=["loop", "threads"])
@pytest.mark.parametrize("place", ["nats"], indirect=True)
def test_a_store_that_refuses_its_address_ends_the_consumer_before_anything_is_taken(
    place: Place, run: Run, tmp_path: Path, *, is_async: bool
) -> None:
    write_consumer(tmp_path, Database(tmp_path / "nowhere" / "semel.db"), is_async=is_async)
    asyncio.run(place.publish(an_event("e-1")))
    done = run("events", "consume", "billing:consumer", *place.consume_options, SEMEL_BROKER=place.url)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("semel: store_misconfigured: ")
    assert "nowhere" in done.stderr
    assert asyncio.run(place.count()) == 1, "it waits for a consumer that can record it"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "billing:consumer"], "No broker was named"),
        (["consume", "billing:consumer", "--broker", "http://x/"], "none of amqp://"),
        (["consume", "billing:consumer", "--broker", "user:hush@x"], "none of amqp://"),
        (["consume", "billing:consumer", "--broker", "amqp://x/"], "Give --queue"),
        (["consume", "billing:consumer", "--broker", "nats://x"], "Give --stream"),
        (["consume", "billing:consumer", "--broker", "nats://x", "--queue", "q"], "--queue is not for NATS"),
        (
            ["consume", "billing:consumer", "--broker", "amqp://x/", "--queue", "q", "--durable", "d"],
            "--durable is not",
        ),
        (["consume", "billing:semel", "--broker", "amqp://x/", "--queue", "q"], "not a Consumer"),
        (["relay", "billing:consumer"], "not a Relay"),
        (["relay", "billing:relay", "--stream", "s"], "no options can be given beside it"),
        (["relay", "semel.db"], "No broker was named"),
        (["relay", "semel.db", "--broker", "nats://x", "--exchange", "e"], "--exchange is not for NATS"),
        (["relay", "semel.db", "--broker", "amqp://x/", "--subject", "e"], "--subject is not for RabbitMQ"),
        (["consume", "billing:consumer", "--broker", "redis://x"], "Give --stream"),
        (["consume", "billing:consumer", "--broker", "nats://x", "--stream", "s", "--group", "g"], "--group is not"),
        (["relay", "semel.db", "--broker", "redis://x", "--routing-key", "e"], "--routing-key is not for Redis"),
        (["consume", "billing:consumer", "--broker", "sqs://x"], "Give --queue"),
        (["consume", "billing:consumer", "--broker", "eventbridge://x"], "EventBridge is not listened to"),
        (["consume", "billing:consumer", "--broker", "amqp://x/", "--queue", "q", "--event-id", "d"], "--event-id is"),
        (["relay", "semel.db", "--broker", "sqs://x"], "Give --target-queue"),
        (["relay", "semel.db", "--broker", "sqs://x", "--bus", "b"], "--bus is not for SQS"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], words: str, database: Database, call: Run, tmp_path: Path
) -> None:
    write_consumer(tmp_path, database, is_async=False)
    done = call("events", *arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "nothing was done" in done.stderr
    assert "hush" not in done.stderr


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("amqp://me:hush@127.0.0.1:1/", "--queue"),
        ("nats://me:hush@127.0.0.1:1", "--stream"),
        ("redis://me:hush@127.0.0.1:1", "--stream"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_told_without_its_password(
    url: str, where: str, database: Database, call: Run, tmp_path: Path
) -> None:
    write_consumer(tmp_path, database, is_async=False)
    done = call("events", "consume", "billing:consumer", "--broker", url, where, "q")
    assert done.returncode == 75, done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "hush" not in done.stderr


def test_a_broker_that_refuses_the_login_is_not_told_as_one_that_is_away(
    redis_keys: Keys, database: Database, call: Run, tmp_path: Path
) -> None:
    write_consumer(tmp_path, database, is_async=False)
    where = urlsplit(redis_keys.plain_url)
    url = f"redis://:hush@{where.hostname}:{where.port}"
    done = call("events", "consume", "billing:consumer", "--broker", url, "--stream", "q")
    assert done.returncode == 75, done.stderr
    assert "AuthenticationError" in done.stderr
    assert "hush" not in done.stderr


def test_a_service_of_amazon_that_cannot_be_reached_is_told(
    database: Database, call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    write_consumer(tmp_path, database, is_async=False)
    url = service_url("sqs", "http://127.0.0.1:1")
    done = call("events", "consume", "billing:consumer", "--broker", url, "--queue", "q")
    assert done.returncode == 75, done.stderr
    assert "sqs://eu-west-1 cannot be reached" in done.stderr


def test_a_relay_puts_events_on_a_bus(sqs: Queues, database: Database, tmp_path: Path) -> None:
    name, queue = sqs.new_name(), sqs.new_queue()
    sqs.events.create_event_bus(Name=name)
    sqs.events.put_rule(Name=name, EventBusName=name, EventPattern='{"source": ["/shop"]}')
    target = {"Id": "queue", "Arn": sqs.attributes(queue)["QueueArn"]}
    sqs.events.put_targets(Rule=name, EventBusName=name, Targets=[target])
    with Semel(database.url) as semel:
        Outbox(semel).add(an_event("e-1"), autonomous=True)
        with started(tmp_path, "relay", database.url, "--bus", name, broker=sqs.eventbridge_url) as running:
            running.until(published=1, waiting=0, in_flight=0)
            running.process.send_signal(signal.SIGTERM)
            running.end()
    assert [Event.from_sqs(message).id for message in sqs.peek(queue)] == ["e-1"]
