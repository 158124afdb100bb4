"""Celery on each broker with the other kind of worker: processes on Redis, threads on RabbitMQ."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.effort import FULL
from tests.events.celery_cases import CeleryCases, running_worker
from tests.events.celery_program import Application, Settings
from tests.servers.broker import Broker
from tests.servers.databases import Databases
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["redis-prefork", "rabbitmq-threads"])
def program(
    request: pytest.FixtureRequest,
    rabbitmq: Broker,
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Application]:
    broker, _, pool = request.param.partition("-")
    with start_redis() as server:
        url = server.endpoint.url
        place = (f"{url}1", "tasks") if broker == "redis" else (rabbitmq.url, rabbitmq.new_name())
        settings = Settings(*place, url, postgresql.new_database(), pool=pool)
        with running_worker(settings, tmp_path_factory.mktemp("worker") / "log") as program:
            yield program


class TestOtherPools:
    """What differs by pool: who runs at the same time, who waits, and what is sent again."""

    test_a_task_that_is_sent_twice_runs_once = CeleryCases.test_a_task_that_is_sent_twice_runs_once_and_gives_the_same
    test_many_tasks_at_the_same_time_run_once_per_key = CeleryCases.test_many_tasks_at_the_same_time_run_once_per_key
    test_a_second_copy_waits_for_the_first = (
        CeleryCases.test_a_second_copy_waits_for_the_first_and_replays_it_without_counting_retries
    )
    test_waiting_for_another_uses_up_no_retry = CeleryCases.test_waiting_for_another_uses_up_no_retry_of_its_own

    @pytest.fixture
    def name(self) -> str:
        return secrets.token_hex(6)


if FULL:

    class TestAllOnOtherPools(CeleryCases):
        """All cases."""
