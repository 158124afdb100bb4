"""`semel doctor --faststream` and `--celery`: programs that take from real brokers are looked at before they start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
from redis import Redis

from tests.cli.conftest import Database, Run
from tests.servers.broker import Broker
from tests.servers.redis import Keys

SUBSCRIBERS = """
from datetime import timedelta

from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.redis import RedisBroker, StreamSub
from semel import AsyncSemel
from semel.events import Outbox, Relay
from semel.events.brokers.faststream import inbox

semel = AsyncSemel("{url}")
billing = inbox(semel, "billing", keep_for=timedelta(days=2), max_runtime=timedelta(minutes=10))
relay = Relay(Outbox(semel), object(), keep_for=timedelta(days=3))
broker = {broker}
app = FastStream(broker)


@broker.subscriber({subscriber})
async def charge(body: dict) -> None: ...
"""
TASKS = """
from datetime import timedelta

from celery import Celery
from semel import Semel
from semel.events.brokers.celery import once_task

semel = Semel("{url}")
app = Celery("shop", broker="{broker}", backend={backend}, set_as_current=False)
app.conf.update({settings})


@once_task(app, semel, key="order_id", operation="charge", name="charge", shared=False, max_runtime={longest})
def charge(order_id: str) -> None: ...


@once_task(app, semel, key="order_id", operation="ship", name="ship", shared=False)
def ship(order_id: str) -> None: ...


@app.task(name="plain", shared=False)
def plain() -> None: ...
"""
MANUAL = "ack_policy=AckPolicy.MANUAL"


@pytest.fixture
def shop(database: Database) -> Database:
    database.completed("o-1")
    return database


def all_findings(call: Run, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = call("doctor", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["findings"]


def findings(call: Run, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code, found = all_findings(call, *arguments)
    return code, {finding["topic"]: finding for finding in found}


def make_stream(broker: Broker, **settings: Any) -> str:
    name = broker.new_name()

    async def make() -> None:
        client = await nats_client.connect(broker.url)
        await client.jetstream().add_stream(name=name, subjects=[f"{name}.>"], **settings)
        await client.close()

    asyncio.run(make())
    return name


class TestFaststream:
    """Subscribers, and what they take from."""

    @pytest.fixture
    def write(self, shop: Database, tmp_path: Path) -> Any:
        def write(broker: str, subscriber: str) -> None:
            text = SUBSCRIBERS.format(url=shop.url, broker=broker, subscriber=subscriber)
            (tmp_path / "shop.py").write_text(text)

        return write

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("settings", "verdict"),
        [({"max_age": 86400.0}, "ok"), ({"max_age": 3 * 86400.0}, "fix"), ({}, "note")],
        ids=["fine", "longer", "without a limit"],
    )
    def test_a_stream_of_nats_is_compared_with_its_inbox(
        self, *, nats: Broker, shop: Database, call: Run, write: Any, settings: dict[str, Any], verdict: str
    ) -> None:
        stream = make_stream(nats, **settings)
        where = f'stream=JStream("{stream}", declare=False), durable="billing", pull_sub=PullSub()'
        write(f'NatsBroker("{nats.url}", middlewares=[billing])', f'"{stream}.placed", {where}, {MANUAL}')
        code, found = findings(call, shop.url, "--faststream", "shop:broker", "--relay", "shop:relay")
        assert (code, found["redelivery"]["verdict"]) == (verdict == "fix", verdict)
        assert "marks of billing are kept for 2d" in found["redelivery"]["found"]
        assert found["acknowledgement"]["verdict"] == "ok"
        assert "the inbox of billing acknowledges" in found["acknowledgement"]["found"]
        assert found["kept events"]["verdict"] == "note", "the relay keeps events for longer than the inbox its marks"

    @pytest.mark.slow
    def test_a_stream_of_redis_is_looked_at_through_the_application(
        self, redis_keys: Keys, shop: Database, call: Run, write: Any
    ) -> None:
        stream = f"{redis_keys.prefix}-assets"
        with Redis.from_url(redis_keys.plain_url) as client:
            client.xgroup_create(stream, "billing", mkstream=True)
        where = f'stream=StreamSub("{stream}", group="billing", consumer="one")'
        write(f'RedisBroker("{redis_keys.plain_url}", middlewares=[billing])', f"{where}, {MANUAL}")
        code, found = findings(call, shop.url, "--faststream", "shop:app")
        assert (code, found["redelivery"]["verdict"]) == (0, "note")
        assert f"stream {stream}: no limit" in found["redelivery"]["found"]

    @pytest.mark.slow
    def test_a_stream_that_is_not_there_yet_is_noted(
        self, redis_keys: Keys, shop: Database, call: Run, write: Any
    ) -> None:
        where = 'stream=StreamSub("nowhere", group="billing", consumer="one")'
        write(f'RedisBroker("{redis_keys.plain_url}", middlewares=[billing])', f"{where}, {MANUAL}")
        code, found = findings(call, shop.url, "--faststream", "shop:broker")
        assert (code, found["broker"]["verdict"]) == (0, "note")
        assert "no stream 'nowhere'" in found["broker"]["found"]

    @pytest.mark.parametrize("policy", ["ACK", "ACK_FIRST", "NACK_ON_ERROR", "REJECT_ON_ERROR"])
    def test_a_policy_that_loses_events_has_to_be_fixed(
        self, shop: Database, call: Run, write: Any, policy: str
    ) -> None:
        where = 'stream=StreamSub("assets", group="billing", consumer="one")'
        broker = 'RedisBroker("redis://127.0.0.1:1", middlewares=[billing])'
        write(broker, f"{where}, ack_policy=AckPolicy.{policy}")
        code, found = findings(call, shop.url, "--faststream", "shop:broker")
        assert (code, found["acknowledgement"]["verdict"]) == (1, "fix")
        assert f"AckPolicy.{policy}" in found["acknowledgement"]["found"]
        assert found["acknowledgement"]["advice"].startswith("Write ack_policy=AckPolicy.MANUAL")
        assert "broker" not in found, "what does not start asks nobody"

    def test_a_subscriber_without_an_inbox_is_noted(self, shop: Database, call: Run, write: Any) -> None:
        write('RedisBroker("redis://127.0.0.1:1")', 'stream=StreamSub("assets", group="billing", consumer="one")')
        code, found = findings(call, shop.url, "--faststream", "shop:broker")
        assert (code, found["acknowledgement"]["verdict"]) == (0, "note")
        assert "has no inbox" in found["acknowledgement"]["found"]

    def test_a_broker_that_does_not_answer_has_to_be_fixed_and_shows_no_password(
        self, shop: Database, call: Run, write: Any
    ) -> None:
        where = 'stream=StreamSub("assets", group="billing", consumer="one")'
        write('RedisBroker("redis://:hush@127.0.0.1:1", middlewares=[billing])', f"{where}, {MANUAL}")
        code, found = findings(call, shop.url, "--faststream", "shop:broker")
        assert (code, found["broker"]["verdict"]) == (1, "fix")
        assert "hush" not in str(found)

    def test_an_object_that_is_no_broker_is_refused(self, shop: Database, call: Run, write: Any) -> None:
        write('RedisBroker("redis://127.0.0.1:1")', 'stream=StreamSub("assets", group="billing", consumer="one")')
        done = call("doctor", shop.url, "--faststream", "shop:semel")
        assert done.returncode == 2
        assert "no broker of FastStream" in done.stderr


class TestCelery:
    """Tasks, the configuration, and the broker."""

    @pytest.fixture
    def write(self, shop: Database, tmp_path: Path) -> Any:
        def write(
            broker: str, settings: str = "", *, longest: str = "timedelta(minutes=10)", backend: str | None = None
        ) -> None:
            given = {"settings": settings, "longest": longest, "backend": repr(backend)}
            (tmp_path / "shop.py").write_text(TASKS.format(url=shop.url, broker=broker, **given))

        return write

    @pytest.mark.slow
    def test_an_application_that_loses_nothing_is_fine(
        self, rabbitmq: Broker, shop: Database, call: Run, write: Any
    ) -> None:
        write(rabbitmq.url, "broker_transport_options={'confirm_publish': True}")
        code, found = findings(call, shop.url, "--celery", "shop:app")
        topics = ("broker", "tasks", "acknowledgement", "confirm_publish", "consumer_timeout", "result backend")
        assert (code, {topic: found[topic]["verdict"] for topic in topics}) == (0, dict.fromkeys(topics, "ok"))
        assert found["tasks"]["found"] == "run once: charge, ship"
        assert "none is needed" in found["result backend"]["found"]
        assert "visibility_timeout" not in found
        assert "guest:guest" not in str(found)

    @pytest.mark.slow
    def test_a_rabbitmq_that_confirms_nothing_has_to_be_fixed(
        self, rabbitmq: Broker, shop: Database, call: Run, write: Any
    ) -> None:
        write(rabbitmq.url)
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["confirm_publish"]["verdict"]) == (1, "fix")

    @pytest.mark.slow
    @pytest.mark.parametrize(("given", "verdict"), [("30m", "ok"), ("10m", "fix")])
    def test_the_longest_task_is_compared_with_the_time_limit_of_rabbitmq(
        self, *, rabbitmq: Broker, shop: Database, call: Run, write: Any, given: str, verdict: str
    ) -> None:
        write(rabbitmq.url, "broker_transport_options={'confirm_publish': True}")
        code, found = findings(call, shop.url, "--celery", "shop:app", "--consumer-timeout", given)
        assert (code, found["consumer_timeout"]["verdict"]) == (verdict == "fix", verdict)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("settings", "longest", "verdict"),
        [
            ("", "timedelta(minutes=59)", "ok"),
            ("", "timedelta(hours=1)", "note"),
            ("broker_transport_options={'visibility_timeout': 86400}", "timedelta(hours=1)", "ok"),
        ],
        ids=["usual", "longer", "raised"],
    )
    def test_the_longest_task_is_compared_with_the_visibility_timeout_of_redis(
        self, *, redis_keys: Keys, shop: Database, call: Run, write: Any, settings: str, longest: str, verdict: str
    ) -> None:
        write(redis_keys.plain_url, settings, longest=longest)
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["visibility_timeout"]["verdict"]) == (0, verdict)
        assert "charge may run for" in found["visibility_timeout"]["found"]
        assert "confirm_publish" not in found

    @pytest.mark.parametrize("option", ["acks_late", "reject_on_worker_lost"])
    def test_annotations_that_lose_tasks_have_to_be_fixed(
        self, shop: Database, call: Run, write: Any, option: str
    ) -> None:
        write("memory://", f"task_annotations={{'ship': {{'{option}': False}}}}")
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["acknowledgement"]["verdict"]) == (1, "fix")
        assert found["acknowledgement"]["found"] == f"switched off: {option} of ship"

    def test_a_broker_that_does_not_answer_has_to_be_fixed_and_shows_no_password(
        self, shop: Database, call: Run, write: Any
    ) -> None:
        write("redis://:hush@127.0.0.1:1", backend="redis://:quiet@127.0.0.1:1")
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["broker"]["verdict"]) == (1, "fix")
        assert "redis://:**@127.0.0.1:1" in found["result backend"]["found"]
        assert not {"hush", "quiet"} & set(str(found).replace(":", " ").replace("@", " ").split())

    def test_tasks_that_run_where_they_are_called_have_to_be_fixed(self, shop: Database, call: Run, write: Any) -> None:
        write("memory://", "task_always_eager=True")
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["eager"]["verdict"]) == (1, "fix")

    def test_an_application_without_such_tasks_is_noted(self, shop: Database, call: Run, tmp_path: Path) -> None:
        (tmp_path / "shop.py").write_text(
            "from celery import Celery\napp = Celery('shop', broker='memory://', set_as_current=False)\n"
        )
        code, found = findings(call, shop.url, "--celery", "shop:app")
        assert (code, found["tasks"]["verdict"]) == (0, "note")
        assert "acknowledgement" not in found

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--celery", "shop:semel"], "no application of Celery"),
            (["--celery", "shop:app", "--queue", "q"], "--queue cannot be given beside --celery"),
            (["--celery", "shop:app", "--relay", "shop:relay"], "--relay cannot be given beside --celery"),
            (["--celery", "shop:app", "--management", "http://x"], "--management is for RabbitMQ"),
            (["--faststream", "shop:app", "--consumer", "shop:c"], "--consumer cannot be given beside --faststream"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, shop: Database, call: Run, write: Any, options: list[str], words: str
    ) -> None:
        write("memory://")
        done = call("doctor", shop.url, *options)
        assert done.returncode == 2, done.stdout
        assert words in done.stderr
