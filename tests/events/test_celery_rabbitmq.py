"""Celery on RabbitMQ, with a worker of processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from tests.events.celery_cases import CeleryCases, running_worker, until, value_of
from tests.events.celery_program import Application, Settings
from tests.servers.broker import Broker
from tests.servers.databases import Databases
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def program(
    rabbitmq: Broker,
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Application]:
    with start_redis() as notes:
        settings = Settings(rabbitmq.url, rabbitmq.new_name(), notes.endpoint.url, postgresql.new_database())
        with running_worker(settings, tmp_path_factory.mktemp("worker") / "log") as program:
            yield program


class TestRabbitmq(CeleryCases):
    """Processes."""

    def test_each_process_has_connections_of_its_own(self, program: Application, name: str) -> None:
        sent = [program.by_id.delay(name) for _ in range(120)]
        assert len({value_of(result) for result in sent}) == 120
        assert len(set(program.noted("did", name))) == 3, "not every process of the pool took part"

    def test_a_process_that_is_killed_is_taken_over(self, program: Application, name: str) -> None:
        assert value_of(program.killed.delay(name)) == "first second"
        assert program.noted("entered", name) == ["1 False", "2 True"]
        assert program.noted("did", name) == ["first", "second"]

    def test_a_soft_time_limit_leaves_a_doubt(self, program: Application, name: str) -> None:
        with pytest.raises(SoftTimeLimitExceeded):
            value_of(program.soft.delay(name))
        record = program.semel.read(name, operation="soft")
        assert record is not None
        assert record.status == "in_doubt"
        assert value_of(program.soft.delay(name)) == "done"

    def test_what_a_hard_time_limit_killed_is_taken_over(self, program: Application, name: str) -> None:
        program.hard.delay(name)
        until(lambda: len(program.noted("entered", name)) == 2, "it runs again")
        # The first has failed by its time limit; what came of it in the end is told to another task of the same key.
        assert value_of(program.hard.delay(name)) == "done"
        assert len(program.noted("entered", name)) == 2
