"""Tasks of Celery that run once per key, on PostgreSQL, against the same task without semel.

Invariant: the messages of a round are in the broker before its clock starts, and both tasks are acknowledged
late. The worker runs in threads of this process, and is started anew for each round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bench.callers import Numbers
from bench.event_servers import broker_address, with_broker
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database
from semel import Semel

THREADS = 8
CALLS = 500
_WORKER: dict[str, Any] = {
    "pool": "threads",
    "concurrency": THREADS,
    "perform_ping_check": False,
    "loglevel": "ERROR",
    "shutdown_timeout": 600.0,  # on a busy machine ten seconds are not enough
}
Decorate = Callable[[Any, str], AbstractContextManager[Callable[[Callable[..., Any]], Any]]]
"""From an application and the URL of a database to what makes a task of a function."""


class _Counter:
    """Waits until so many tasks were done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self._done = threading.Event()

    def expect(self, number: int) -> None:
        self._left = number
        self._done.clear()

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._done.set()

    def wait(self) -> None:
        self._done.wait()


def _app(kind: str, folder: Path, name: str) -> Any:
    from celery import Celery

    app = Celery(name, broker=broker_address(kind, folder), set_as_current=False)
    app.conf.update(
        task_default_queue=f"bench-{name}",
        task_ignore_result=True,
        broker_transport_options={"confirm_publish": True} if kind == "rabbitmq" else {},
        worker_hijack_root_logger=False,
    )
    return app


@contextmanager
def leave_logging_alone() -> Iterator[None]:
    """Keep a worker from setting up the logging of this process; show errors of Celery only."""
    from celery import signals

    def set_up_nothing(**_: Any) -> None: ...

    logger = logging.getLogger("celery")
    level = logger.level
    signals.setup_logging.connect(set_up_nothing, weak=False)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        signals.setup_logging.disconnect(set_up_nothing)


def _working(kind: str, name: str, decorate: Decorate) -> Callable[[Path, Effort], AbstractContextManager[Measure]]:
    """A worker that takes tasks that are there."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        from celery.contrib.testing.worker import start_worker

        numbers, counter = Numbers(), _Counter()
        app = _app(kind, folder, name)
        with (
            leave_logging_alone(),
            database(folder, f"celery_{kind}_{name}") as url,
            decorate(app, url) as make_task,
        ):

            def charge(order_id: str, cents: int) -> str:
                counter.count()
                return order_id

            task = make_task(charge)

            def measure(calls: int) -> float:
                for number in numbers.take(calls):
                    task.delay(f"order-{number:010}", 1250)
                counter.expect(calls)
                began = time.perf_counter()
                with start_worker(app, **_WORKER):
                    counter.wait()
                    return time.perf_counter() - began

            yield measure
        app.close()

    return prepare


def _bare(app: Any, _: str) -> AbstractContextManager[Any]:
    return nullcontext(app.task(name="charge", shared=False, acks_late=True, reject_on_worker_lost=True))


@contextmanager
def _once(app: Any, url: str) -> Iterator[Any]:
    from semel.events.brokers.celery import once_task

    with Semel(url) as semel:
        yield once_task(app, semel, key="order_id", operation="charge", name="charge", shared=False)


def _case(kind: str, title: str) -> Case:
    return Case(
        f"celery-{kind}",
        f"Celery on {title}, records on PostgreSQL: once_task against a bare task",
        (
            Variant("bare task", _working(kind, "bare", _bare), CALLS),
            Variant("once_task", _working(kind, "once", _once), CALLS, "bare task", Comparison("slower")),
        ),
        notes=(
            f"A worker of {THREADS} threads in the measuring process, whose start is part of every round.",
            "Both tasks are acknowledged late, keep no result and do nothing.",
        ),
        needs="celery",
        site=with_broker(kind),
    )


CELERY_RABBITMQ = _case("rabbitmq", "RabbitMQ")
CELERY_REDIS = _case("redis", "Redis")
