"""Chunks of a batch on real workers of Celery that are killed in the middle: nothing is lost or happens twice."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from semel.batch.engines.celery import dispatch
from tests.batch.celery_worker import FAILS_ONCE, Application, Settings
from tests.batch.test_kill import COUNT, TABLE, TWICE
from tests.effort import FULL
from tests.events.celery_cases import until
from tests.processes import child
from tests.servers.databases import Databases
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
ITEMS = 2000 if FULL else 40
CHUNK = 8
DEATHS = [("i3", "after"), *([(f"i{ITEMS // 2}", "before")] if FULL else [])]
VISIBLE_AGAIN = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


@pytest.fixture(params=["rabbitmq", "redis"])
def settings(
    request: pytest.FixtureRequest,
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
) -> Iterator[Settings]:
    store = postgresql.new_database()
    postgresql.admin_each([TABLE], store)
    if request.param == "rabbitmq":
        broker = request.getfixturevalue("rabbitmq")
        yield Settings(broker.url, broker.new_name(), store, {"confirm_publish": True})
        return
    with start_redis() as server:
        yield Settings(server.endpoint.url, "chunks", store, VISIBLE_AGAIN)


@contextmanager
def worker(settings: Settings, log: Path) -> Iterator[Any]:
    """A worker; what it says goes to a file."""
    start = "import sys; from tests.batch.celery_worker import main; main(sys.argv[1])"
    command = [sys.executable, "-c", start, settings.to_text()]
    with log.open("a") as output, child(command, cwd=ROOT, stdout=output, stderr=output) as process:
        yield process


def test_a_worker_that_is_killed_in_a_chunk_loses_nothing_and_repeats_nothing(
    settings: Settings, postgresql: Databases, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with closing(Application(settings)) as program:
        items = ({"id": f"i{n}"} for n in range(ITEMS))
        batch = program.batches.start("chunks", items, operation="pay", item_id="id")
        assert dispatch(program.pay, batch, chunk=CHUNK) == ITEMS // CHUNK
        for dies_at, where in DEATHS:
            dying = dataclasses.replace(settings, dies_at=dies_at, where=where)
            with worker(dying, log) as process:
                assert process.wait(200) == -signal.SIGKILL, log.read_text()
        with worker(settings, log):
            until(lambda: batch.status().state == "completed", "the batch is completed")
        status = batch.status()
        assert (status.completed, status.failed) == (ITEMS, 0), list(batch.results(status="failed"))
        assert [result.id for result in batch.results() if result.attempts > 1] == [FAILS_ONCE], "sent again by itself"
    assert postgresql.admin_each([TWICE], settings.store) == []
    assert postgresql.admin_each([COUNT], settings.store)[0][0] == ITEMS
