"""A Celery application whose task runs chunks of a batch, and its worker: one process that may kill itself.

Each item writes a row in the transaction of its record.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import psycopg
from celery import Celery

from semel import Semel
from semel.batch import Batches, Item
from semel.batch.engines.celery import batch_task
from tests.batch.worker import INSERT

FAILS_ONCE: Final = "i9"
"""The item whose first attempt fails."""


@dataclass(frozen=True)
class Settings:
    """Where everything is, as the worker is told on its command line, and at which item it dies, and where."""

    broker: str
    queue: str
    store: str
    transport: dict[str, Any] = field(default_factory=dict)
    dies_at: str = ""
    where: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))


class Application:
    """The Celery application, its batches and its task."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.semel = Semel(settings.store)
        self.batches = Batches(self.semel)
        self.app = Celery("payroll", broker=settings.broker, set_as_current=False)
        self.app.conf.update(
            task_default_queue=settings.queue,
            broker_transport_options=settings.transport,
            broker_connection_retry_on_startup=True,
            worker_prefetch_multiplier=1,
            worker_hijack_root_logger=False,
        )
        make = batch_task(
            self.app,
            self.batches,
            transaction=self._transaction,
            max_attempts=2,
            lease_for=1,
            name="pay",
            shared=False,
            ignore_result=True,
        )
        self.pay: Any = make(self._pay)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with psycopg.connect(self.settings.store) as connection:
            yield connection

    def _pay(self, item: Item, session: Any) -> str:
        self._meet(item.id, "before")
        session.execute(INSERT.format(item.id))
        self._meet(item.id, "after")
        if item.id == FAILS_ONCE and item.number == 1:
            raise ConnectionError("no answer")
        return item.id

    def _meet(self, item: str, where: str) -> None:
        if (item, where) == (self.settings.dies_at, self.settings.where):
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        """Let go of everything."""
        self.semel.close()
        self.app.close()


def main(text: str) -> None:
    """Be the worker."""
    program = Application(Settings(**json.loads(text)))
    program.app.worker_main(["worker", "--pool", "solo", "--loglevel", "INFO", "--without-gossip", "--without-mingle"])
