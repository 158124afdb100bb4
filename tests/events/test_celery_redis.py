"""Celery on Redis, with a worker of threads, and a visibility time-out shorter than its tasks."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.events.celery_cases import CeleryCases, running_worker, until, value_of
from tests.events.celery_program import FAILED, SENT_AGAIN, Application, Settings
from tests.servers.databases import Databases
from tests.servers.redis import RedisServer

VISIBLE_AGAIN = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.fixture(scope="module")
def worker_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker") / "log"


@pytest.fixture(scope="module")
def program(
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
    worker_log: Path,
) -> Iterator[Application]:
    with start_redis() as server:
        url = server.endpoint.url
        settings = Settings(f"{url}1", "tasks", url, postgresql.new_database(), VISIBLE_AGAIN, pool="threads")
        with running_worker(settings, worker_log) as program:
            yield program


class TestRedis(CeleryCases):
    """Threads."""

    def test_a_task_that_is_delivered_again_while_it_runs_runs_once(self, program: Application, name: str) -> None:
        result = program.wait.delay(name)
        program.await_note("entered", name)
        # Sent once; so whatever is sent again is a second delivery that has met the running one.
        for _ in range(3):
            program.await_note("sent_again", result.id)
        program.note("go", name, "")
        value = value_of(result)
        until(lambda: has_nothing(program), "every copy is settled")
        assert len(program.noted("did", name)) == 1
        assert program.noted("entered", name) == []
        assert set(program.noted("ended", result.id)) == {"RETRY", "SUCCESS"}
        assert value_of(program.wait.delay(name)) == value

    @pytest.mark.parametrize("row", SENT_AGAIN)
    def test_what_a_task_meets_for_a_while_is_sent_again_and_acknowledged(
        self, program: Application, name: str, row: str
    ) -> None:
        result = program.meets.delay(name, row)
        assert program.await_note("sent_again", result.id) == "0"
        assert value_of(result) == "done"
        until(lambda: has_nothing(program), "every copy is settled")
        assert len(program.noted("entered", name)) == 2

    @pytest.mark.parametrize("row", FAILED)
    def test_what_a_task_meets_for_good_is_acknowledged(self, program: Application, name: str, row: str) -> None:
        with pytest.raises(type(FAILED[row])):
            value_of(program.meets.delay(name, row))
        until(lambda: has_nothing(program), "it is settled")
        assert len(program.noted("entered", name)) == 1

    def test_a_worker_says_that_tasks_may_run_longer_than_they_are_invisible(
        self, program: Application, worker_log: Path
    ) -> None:
        assert (
            "delivers charge again after 2 s (visibility_timeout), and it may run for 900 s" in worker_log.read_text()
        )


def has_nothing(program: Application) -> bool:
    """Whether the broker has no message, not even one that somebody holds."""
    import redis

    with redis.Redis.from_url(program.settings.broker) as client:
        return not client.llen(program.settings.queue) and not client.hlen("unacked")
