"""`semel doctor --broker`: what real brokers are configured with, compared with a consumer and a relay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiormq
import nats as nats_client
import pytest

from semel.cli.commands.events.broker_limits import Compared, judge
from semel.events.brokers.limits import BrokerLimits
from semel.events.brokers.rabbitmq_management import limits_of, management_url
from tests.cli.conftest import Database, Run
from tests.servers.broker import Broker
from tests.servers.rabbitmq import RabbitmqServer
from tests.servers.redis import Keys, RedisServer, said
from tests.servers.server import HOST, free_port
from tests.servers.sqs import Queues

DAY = timedelta(days=1)
DAY_MS = 86_400_000
MODULE = """
from datetime import timedelta

from semel import AsyncSemel
from semel.events import Consumer, Outbox, Relay

semel = AsyncSemel("{url}")
consumer = Consumer(semel, "billing", keep_for=timedelta(days=2), max_runtime=timedelta(minutes=10))
relay = Relay(Outbox(semel), object(), keep_for=timedelta(days=3))
"""
SUBSCRIBER = """
from datetime import timedelta

from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue, RabbitRouter
from semel import AsyncSemel
from semel.events.brokers.faststream import inbox

settings = dict(keep_for=timedelta(days=2), max_runtime=timedelta(minutes=10))
broker = RabbitBroker("{broker}", middlewares=[inbox(AsyncSemel("{url}"), "billing", **settings)])
router = RabbitRouter(prefix="{prefix}")


@router.subscriber(RabbitQueue("{queue}", declare=False), ack_policy=AckPolicy.MANUAL)
async def charge(body: dict) -> None: ...


broker.include_router(router)
"""
TASKS = """
from datetime import timedelta

from celery import Celery
from semel import Semel
from semel.events.brokers.celery import once_task

app = Celery("shop", broker="{broker}", set_as_current=False)
app.conf.update(task_default_queue="{queue}", broker_transport_options={{"confirm_publish": True}})


@once_task(app, Semel("{url}"), key="name", name="charge", shared=False, keep_for=timedelta(days=2))
def charge(name: str) -> None: ...
"""


@pytest.fixture(scope="module")
def managed(
    start_rabbitmq: Callable[..., AbstractContextManager[RabbitmqServer]],
) -> Iterator[tuple[Broker, str]]:
    """A RabbitMQ with its management plugin, and where that answers."""
    port = free_port()
    with start_rabbitmq(settings={"management.tcp.port": str(port), "management.tcp.ip": HOST}) as server:
        yield server.broker(), f"http://{HOST}:{port}"


def declare(broker: Broker, **arguments: Any) -> str:
    name = broker.new_name()

    async def make() -> None:
        connection = await aiormq.connect(broker.url)
        settings = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        await (await connection.channel()).queue_declare(name, durable=True, arguments=settings)
        await connection.close()

    asyncio.run(make())
    return name


def findings(call: Run, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = call("doctor", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Database:
    database.completed("o-1")
    (tmp_path / "shop.py").write_text(MODULE.format(url=database.url))
    return database


@pytest.mark.slow
@pytest.mark.timeout(180)
class TestRabbitmq:
    """On a real server with its plugin."""

    def test_a_queue_that_delivers_for_less_than_marks_are_kept_is_fine(
        self, managed: tuple[Broker, str], shop: Database, call: Run
    ) -> None:
        broker, plugin = managed
        queue = declare(broker, message_ttl=DAY_MS, dead_letter_exchange="dead")
        options = ["--broker", broker.url, "--queue", queue, "--management", plugin, "--consumer", "shop:consumer"]
        code, found = findings(call, shop.url, *options)
        assert (code, found["redelivery"]["verdict"]) == (0, "ok")
        assert "marks of billing are kept for 2d" in found["redelivery"]["found"]
        assert found["consumer_timeout"]["verdict"] == "ok"
        assert "expired messages" not in found

    def test_a_queue_that_delivers_for_longer_has_to_be_fixed(
        self, managed: tuple[Broker, str], shop: Database, call: Run
    ) -> None:
        broker, plugin = managed
        queue = declare(broker, message_ttl=3 * DAY_MS)
        options = ["--broker", broker.url, "--queue", queue, "--management", plugin, "--consumer", "shop:consumer"]
        done = call("doctor", shop.url, *options, COLUMNS="200")
        assert done.returncode == 1
        assert "raise keep_for of the consumer" in done.stdout
        assert "see: redelivery" in done.stdout, "the promise of replays does not hold"
        _, found = findings(call, shop.url, *options)
        assert (found["redelivery"]["verdict"], found["expired messages"]["verdict"]) == ("fix", "note")

    def test_a_queue_without_a_limit_is_noted(self, managed: tuple[Broker, str], shop: Database, call: Run) -> None:
        broker, plugin = managed
        options = ["--broker", broker.url, "--queue", declare(broker), "--management", plugin]
        code, found = findings(call, shop.url, *options)
        assert (code, found["redelivery"]["verdict"]) == (0, "note")
        assert "a consumer that sets nothing" in found["redelivery"]["found"]

    def test_a_queue_that_is_not_there_is_named(self, managed: tuple[Broker, str], shop: Database, call: Run) -> None:
        broker, plugin = managed
        done = call("doctor", shop.url, "--broker", broker.url, "--queue", "nowhere", "--management", plugin)
        assert done.returncode == 2
        assert "no queue 'nowhere'" in done.stderr

    def test_a_user_who_may_not_look_is_told(self, managed: tuple[Broker, str], shop: Database, call: Run) -> None:
        broker, plugin = managed
        stranger = broker.url.replace("guest:guest", "me:hush")
        done = call("doctor", shop.url, "--broker", stranger, "--queue", "q", "--management", plugin)
        assert done.returncode == 2
        assert "may not look" in done.stderr
        assert "hush" not in done.stderr

    def test_a_queue_of_a_subscriber_of_faststream_is_compared(
        self, managed: tuple[Broker, str], shop: Database, call: Run, tmp_path: Path
    ) -> None:
        broker, plugin = managed
        queue = declare(broker, message_ttl=3 * DAY_MS)
        prefix, name = queue[:6], queue[6:]
        text = SUBSCRIBER.format(url=shop.url, broker=broker.url, prefix=prefix, queue=name)
        (tmp_path / "subscribers.py").write_text(text)
        options = ["--faststream", "subscribers:broker", "--management", plugin]
        code, found = findings(call, shop.url, *options)
        assert (code, found["redelivery"]["verdict"]) == (1, "fix")
        assert f"queue {queue}: up to 3d" in found["redelivery"]["found"]
        assert found["consumer_timeout"]["verdict"] == "ok"
        _, found = findings(call, shop.url, *options, "--consumer-timeout", "5m")
        assert found["consumer_timeout"]["verdict"] == "fix"

    def test_the_queues_of_an_application_of_celery_are_compared(
        self, managed: tuple[Broker, str], shop: Database, call: Run, tmp_path: Path
    ) -> None:
        broker, plugin = managed
        queue = declare(broker, message_ttl=3 * DAY_MS)
        (tmp_path / "tasks.py").write_text(TASKS.format(url=shop.url, broker=broker.url, queue=queue))
        code, found = findings(call, shop.url, "--celery", "tasks:app", "--management", plugin)
        assert (code, found["redelivery"]["verdict"]) == (1, "fix")
        assert "marks of charge are kept for 2d" in found["redelivery"]["found"]
        code, found = findings(call, shop.url, "--celery", "tasks:app")
        assert (code, "redelivery" in found) == (0, False)


def test_a_broker_that_tells_nothing_is_not_called_fine(shop: Database, call: Run) -> None:
    options = ["--broker", "amqp://me:hush@127.0.0.1:1/", "--queue", "q", "--management", "http://127.0.0.1:1"]
    code, found = findings(call, shop.url, *options)
    assert (code, found["broker"]["verdict"]) == (1, "fix")
    assert "rabbitmq-plugins enable" in found["broker"]["advice"]
    assert "hush" not in str(found)


def make_stream(broker: Broker, *, max_deliver: int = -1, **settings: Any) -> str:
    name = broker.new_name()

    async def make() -> None:
        client = await nats_client.connect(broker.url)
        context = client.jetstream()
        await context.add_stream(name=name, subjects=[f"{name}.>"], **settings)
        config = nats_client.js.api.ConsumerConfig(durable_name="billing", max_deliver=max_deliver)
        await context.add_consumer(name, config)
        await client.close()

    asyncio.run(make())
    return name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        ({"max_age": 86400.0}, {"redelivery": "ok", "repeats of relays": "ok"}),
        ({"max_age": 3 * 86400.0}, {"redelivery": "fix"}),
        ({}, {"redelivery": "note"}),
        ({"max_age": 86400.0, "duplicate_window": 5.0}, {"repeats of relays": "note"}),
        ({"max_age": 86400.0, "max_deliver": 3}, {"delivery limit": "fix"}),
        ({"max_age": 86400.0, "max_deliver": 30}, {"delivery limit": "note"}),
        ({"max_age": 86400.0, "max_msgs": 10}, {"full queue": "note"}),
    ],
    ids=["fine", "longer", "without a limit", "short window", "few deliveries", "deliveries", "full"],
)
def test_a_stream_of_nats_is_compared(
    nats: Broker, shop: Database, call: Run, settings: dict[str, Any], verdicts: dict[str, str]
) -> None:
    stream = make_stream(nats, **settings)
    options = ["--broker", nats.url, "--stream", stream, "--consumer", "shop:consumer", "--relay", "shop:relay"]
    code, found = findings(call, shop.url, *options)
    assert {topic: found[topic]["verdict"] for topic in verdicts} == verdicts
    assert code == ("fix" in verdicts.values())
    assert found["kept events"]["verdict"] == "note", "the relay keeps events for longer than the consumer its marks"
    assert "consumer_timeout" not in found


@pytest.fixture
def redis_stream(redis_keys: Keys) -> Iterator[tuple[str, str]]:
    """A stream with a group, and the address of its server."""
    name = f"{redis_keys.prefix}:doctor"
    redis_keys.said("XGROUP", "CREATE", name, "billing", "0", "MKSTREAM")
    yield name, redis_keys.plain_url.partition("?")[0]
    redis_keys.said("DEL", name)


@pytest.mark.slow
def test_a_stream_of_redis_is_compared(redis_stream: tuple[str, str], shop: Database, call: Run) -> None:
    stream, url = redis_stream
    options = ["--broker", url, "--stream", stream, "--consumer", "shop:consumer", "--relay", "shop:relay"]
    code, found = findings(call, shop.url, *options)
    assert (code, found["redelivery"]["verdict"], found["kept events"]["verdict"]) == (0, "note", "note")
    assert "MAXLEN of its publishers" in found["redelivery"]["found"]
    assert "marks of billing are kept for 2d" in found["redelivery"]["found"]
    assert "full queue" not in found


@pytest.mark.slow
def test_a_server_of_redis_that_drops_streams_when_it_is_full_is_noted(
    start_redis: Callable[..., AbstractContextManager[RedisServer]], shop: Database, call: Run
) -> None:
    with start_redis(settings={"maxmemory-policy": "allkeys-lru"}) as server:
        said(server.endpoint.url, "XGROUP", "CREATE", "events", "billing", "0", "MKSTREAM")
        options = ["--broker", server.endpoint.url, "--stream", "events", "--consumer", "shop:consumer"]
        code, found = findings(call, shop.url, *options)
    assert (code, found["full queue"]["verdict"]) == (0, "note")
    assert "maxmemory-policy = allkeys-lru" in found["full queue"]["found"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [(["--stream", "nowhere"], "no stream 'nowhere'"), (["--group", "strangers"], "no group 'strangers'")],
    ids=["stream", "group"],
)
def test_what_redis_does_not_have_is_named(
    redis_stream: tuple[str, str], shop: Database, call: Run, options: list[str], words: str
) -> None:
    stream, url = redis_stream
    named = options if "--stream" in options else ["--stream", stream, *options]
    done = call("doctor", shop.url, "--broker", url, *named)
    assert done.returncode == 2
    assert words in done.stderr


FINE = {"VisibilityTimeout": "30", "MessageRetentionPeriod": "86400"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        (FINE, {"redelivery": "ok", "visibility time-out": "ok", "expired messages": "note"}),
        ({**FINE, "MessageRetentionPeriod": "345600"}, {"redelivery": "fix"}),
        ({**FINE, "VisibilityTimeout": "0"}, {"visibility time-out": "fix"}),
        ({**FINE, "VisibilityTimeout": "2"}, {"visibility time-out": "note"}),
        ({**FINE, "VisibilityTimeout": "3600"}, {"visibility time-out": "note"}),
        ({**FINE, "maxReceiveCount": 5}, {"delivery limit": "fix"}),
        ({**FINE, "maxReceiveCount": 6}, {"delivery limit": "note"}),
        ({**FINE, "is_fifo": True}, {"repeats of relays": "ok"}),
    ],
    ids=["fine", "longer", "hides nothing", "short", "long", "few deliveries", "deliveries", "fifo"],
)
def test_a_queue_of_sqs_is_compared(
    sqs: Queues, shop: Database, call: Run, settings: dict[str, Any], verdicts: dict[str, str]
) -> None:
    given = dict(settings)
    if most := given.pop("maxReceiveCount", None):
        dead = sqs.attributes(sqs.new_queue())["QueueArn"]
        given["RedrivePolicy"] = {"deadLetterTargetArn": dead, "maxReceiveCount": most}
    options = ["--broker", sqs.url, "--queue", sqs.new_queue(**given), "--consumer", "shop:consumer"]
    code, found = findings(call, shop.url, *options)
    assert {topic: found[topic]["verdict"] for topic in verdicts} == verdicts
    assert code == ("fix" in verdicts.values())
    assert ("delivery limit" in found) == (most is not None)


@pytest.mark.slow
def test_a_queue_of_sqs_that_is_not_there_is_named(sqs: Queues, shop: Database, call: Run) -> None:
    done = call("doctor", shop.url, "--broker", sqs.url, "--queue", "nowhere")
    assert done.returncode == 2
    assert "no queue 'nowhere'" in done.stderr


def test_a_handler_that_may_run_for_longer_than_a_message_is_hidden_has_to_be_fixed() -> None:
    limits: Any = {"visibility": timedelta(seconds=30), "longest_visibility": timedelta(hours=12)}
    found = BrokerLimits("queue q", DAY, "MessageRetentionPeriod", **limits)
    by_topic = {one.topic: one for one in judge(found, Compared(None, 30 * DAY, DAY), is_rabbitmq=False)}
    assert by_topic["visibility time-out"].verdict == "fix"
    assert "12h" in str(by_topic["visibility time-out"].advice)


@pytest.mark.slow
def test_a_stream_that_is_not_there_is_named(nats: Broker, shop: Database, call: Run) -> None:
    done = call("doctor", shop.url, "--broker", nats.url, "--stream", "nowhere")
    assert done.returncode == 2
    assert "no stream 'nowhere'" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--consumer", "shop:consumer"], "--consumer needs a broker"),
        (["--relay", "shop:relay"], "--relay needs a broker"),
        (["--consumer-timeout", "30m"], "--consumer-timeout needs a broker"),
        (["--queue", "q"], "No broker was named"),
        (["--queue", "q", "--broker", "nats://x"], "--queue is not for NATS"),
        (["--queue", "q", "--broker", "eventbridge://x"], "EventBridge is not listened to"),
        (["--queue", "q", "--broker", "sqs://x", "--management", "http://x"], "--management is not for SQS"),
        (["--stream", "s", "--broker", "amqp://x/"], "--stream is not for RabbitMQ"),
        (["--queue", "q", "--broker", "amqp://x/", "--management", "ftp://x"], "http://host:port"),
        (["--queue", "q", "--broker", "amqp://x/", "--consumer", "shop:relay"], "not a Consumer"),
    ],
)
def test_what_cannot_be_meant_is_refused(shop: Database, call: Run, options: list[str], words: str) -> None:
    done = call("doctor", shop.url, *options)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr


def test_a_broker_of_the_environment_alone_is_not_asked(shop: Database, call: Run) -> None:
    code, found = findings_with(call, shop.url, SEMEL_BROKER="amqp://127.0.0.1:1/")
    assert code == 0
    assert "broker" not in found


def findings_with(call: Run, url: str, **variables: str) -> tuple[int, set[str]]:
    done = call("doctor", url, "--json", **variables)
    return done.returncode, {finding["topic"] for finding in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({}, {"longest": None, "drops_expired": False, "drops_when_full": None}),
        ({"arguments": {"x-message-ttl": 1000}}, {"longest": timedelta(seconds=1), "drops_expired": True}),
        ({"policy": {"message-ttl": 2000}}, {"longest": timedelta(seconds=2)}),
        (
            {"arguments": {"x-message-ttl": 9000}, "policy": {"message-ttl": 2000}},
            {"longest": timedelta(seconds=2)},
        ),
        ({"arguments": {"x-message-ttl": 1, "x-dead-letter-exchange": ""}}, {"drops_expired": False}),
        ({"arguments": {"x-max-length": 5}}, {"drops_when_full": "x-max-length"}),
        ({"arguments": {"x-max-length": 5, "x-overflow": "reject-publish"}}, {"drops_when_full": None}),
        ({"policy": {"max-length-bytes": 5}}, {"drops_when_full": "x-max-length-bytes"}),
        ({"policy": {"delivery-limit": 20}}, {"delivery_limit": 20}),
        ({"arguments": {"x-consumer-timeout": 60_000}}, {"consumer_timeout": timedelta(minutes=1)}),
        (
            {"type": "stream", "arguments": {"x-max-age": "7D"}},
            {"longest": timedelta(days=7), "limited_by": "x-max-age"},
        ),
        ({"type": "stream", "arguments": {"x-max-age": "12h"}}, {"longest": timedelta(hours=12)}),
    ],
)
def test_what_the_plugin_tells_is_read(told: dict[str, Any], wanted: dict[str, Any]) -> None:
    described = {
        "type": told.get("type", "classic"),
        "arguments": told.get("arguments", {}),
        "effective_policy_definition": told.get("policy", []),  # an empty list is what the plugin writes for none
    }
    found = limits_of("q", described)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("told", "said", "verdict"),
    [
        (None, None, "ok"),
        (timedelta(minutes=5), None, "fix"),
        (None, timedelta(minutes=5), "fix"),
        (timedelta(minutes=20), timedelta(minutes=5), "ok"),
    ],
    ids=["usual", "told by the broker", "said by somebody", "the broker knows better"],
)
def test_handlers_are_compared_with_how_long_the_broker_waits(
    told: timedelta | None, said: timedelta | None, verdict: str
) -> None:
    found = BrokerLimits("queue q", DAY, "x-message-ttl", consumer_timeout=told)
    compared = Compared("billing", 30 * DAY, timedelta(minutes=10), said)
    by_topic = {finding.topic: finding for finding in judge(found, compared, is_rabbitmq=True)}
    assert by_topic["consumer_timeout"].verdict == verdict
    slow = judge(found, replace(compared, max_runtime=timedelta(hours=1), consumer_timeout=None), is_rabbitmq=True)
    assert {finding.topic: finding.verdict for finding in slow}["consumer_timeout"] == (
        "note" if told is None else "fix"
    )


@pytest.mark.parametrize(
    ("broker", "plugin"),
    [("amqp://me:hush@host:5672/v", "http://host:15672"), ("amqps://host/", "https://host:15671")],
)
def test_the_plugin_is_looked_for_beside_the_broker(broker: str, plugin: str) -> None:
    assert management_url(broker) == plugin
