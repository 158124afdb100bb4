"""A Celery application for tests, and its worker.

What tasks did, and what they wait for, are lists in a Redis: `did:KEY` has a line for each effect, `entered:KEY` one
for each beginning, and `go:KEY` is popped by a task that waits to be let on. Of each task id `sent_again:ID` has a line
for each time it was sent again, and `ended:ID` the state in which each run of it ended.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final

import redis
from celery import Celery, signals
from celery.exceptions import Ignore, Reject

from semel import Attempt, Semel
from semel.errors import (
    InDoubt,
    LeaseLost,
    RecordUnreadable,
    ResultNotKept,
    SchemaOutdated,
    SemelError,
    StoreMisconfigured,
    StoreUnavailable,
    TooManyHandlers,
    TransactionAborted,
)
from semel.events.brokers.celery import once_task

PATIENCE: Final = 240
"""Seconds: a bound for the hopeless, not a measure."""
LEASE: Final = 1.0


@dataclass(frozen=True)
class Settings:
    """Where everything is, as the worker is told on its command line."""

    broker: str
    queue: str
    notes: str
    """A Redis: results of tasks, and what they did."""
    store: str
    transport: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    pool: str = "prefork"
    concurrency: int = 3

    def to_text(self) -> str:
        return json.dumps(asdict(self))


SOON: Final = timedelta(milliseconds=200)
SENT_AGAIN: Final[dict[str, SemelError]] = {
    "TooManyHandlers": TooManyHandlers("too many", retry_after=SOON),
    "StoreUnavailable": StoreUnavailable("no answer", retry_after=SOON),
    "StoreMisconfigured": StoreMisconfigured("wrong password", retry_after=SOON),
    "TransactionAborted": TransactionAborted("gone", retry_after=SOON),
    "InDoubt with retry_after": InDoubt("the hook may be asked later", reference="ab", retry_after=SOON),
    "LeaseLost": LeaseLost("taken over"),
}
"""How a call of semel may end after which a task is sent again, by the rows of the reference."""
FAILED: Final[dict[str, SemelError]] = {
    "ResultNotKept": ResultNotKept("too large"),
    "RecordUnreadable": RecordUnreadable("newer"),
    "SchemaOutdated": SchemaOutdated("older"),
}
"""And after which it has failed."""


class Declined(Exception):
    """Settled: this is the answer."""


class Application:
    """The Celery application with its tasks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.notes = redis.Redis.from_url(settings.notes, decode_responses=True, socket_timeout=PATIENCE + 10)
        self.semel = Semel(settings.store)
        self.app = Celery("shop", broker=settings.broker, backend=settings.notes, set_as_current=False)
        self.app.conf.update(
            task_default_queue=settings.queue,
            broker_transport_options=settings.transport,
            broker_connection_retry_on_startup=True,
            task_annotations=settings.annotations or None,
            worker_prefetch_multiplier=4,
            worker_hijack_root_logger=False,
            # What is tested is what semel answers, so Celery shall not look into its results first.
            worker_deduplicate_successful_tasks=False,
        )
        self._make_plain_tasks()
        self._make_retried_tasks()
        self._make_tasks_that_end_otherwise()
        self._make_tasks_that_are_cut_off()

    def note(self, kind: str, key: str, text: object) -> int:
        return int(self.notes.rpush(f"{kind}:{key}", str(text)))

    def noted(self, kind: str, key: str) -> list[str]:
        return [str(line) for line in self.notes.lrange(f"{kind}:{key}", 0, -1)]

    def await_note(self, kind: str, key: str) -> str:
        found = self.notes.blpop([f"{kind}:{key}"], timeout=PATIENCE)
        assert found is not None, f"nobody noted {kind}:{key}"
        return str(found[1])

    def _make_plain_tasks(self) -> None:
        app, semel = self.app, self.semel

        @once_task(app, semel, shared=False, key="order_id", operation="charge", name="charge", lease_for=LEASE)
        def charge(order_id: str, cents: int, attempt: Attempt) -> str:
            self.note("did", order_id, attempt.derive("charge"))
            return f"{order_id}:{cents}:{secrets.token_hex(8)}"

        @once_task(app, semel, shared=False, operation="by_id", name="by_id", lease_for=LEASE)
        def by_id(name: str) -> str:
            self.note("did", name, os.getpid())
            return secrets.token_hex(8)

        @once_task(app, semel, shared=False, key="name", operation="wait", name="wait", lease_for=LEASE, max_retries=0)
        def wait(name: str) -> str:
            self.note("entered", name, os.getpid())
            self.await_note("go", name)
            self.note("did", name, os.getpid())
            return secrets.token_hex(8)

        @once_task(app, semel, shared=False, key="name", operation="total", name="total", lease_for=LEASE)
        def total(parts: list[str], name: str) -> str:
            self.note("did", name, "")
            return f"{','.join(sorted(parts))}:{secrets.token_hex(8)}"

        @once_task(app, semel, shared=False, key="name", name="follow", lease_for=LEASE)
        def follow(before: str, name: str) -> str:
            self.note("did", name, "")
            return f"{before}>{secrets.token_hex(8)}"

    def _make_retried_tasks(self) -> None:
        app, semel = self.app, self.semel

        @once_task(
            app,
            semel,
            shared=False,
            key="name",
            operation="again",
            name="again",
            bind=True,
            max_retries=2,
            lease_for=LEASE,
        )
        def again(self_: Any, name: str, failures: int) -> str:
            self.note("entered", name, self_.request.retries)
            if self_.request.retries < failures:
                # So that the record of this run is settled before the next one begins.
                raise self_.retry(countdown=0.2)
            return f"{self_.request.retries} retries"

        @once_task(
            app,
            semel,
            shared=False,
            key="name",
            name="autoretried",
            autoretry_for=(Exception,),
            retry_kwargs={"countdown": 0.05, "max_retries": 2},
            lease_for=LEASE,
        )
        def autoretried(name: str) -> str:
            if self.note("entered", name, "") < 3:
                raise ConnectionError("not yet")
            return "done"

    def _make_tasks_that_end_otherwise(self) -> None:
        app, semel = self.app, self.semel

        @once_task(
            app, semel, shared=False, key="name", operation="held", name="held", in_doubt="hold", lease_for=LEASE
        )
        def held(name: str) -> str:
            self.note("did", name, "")
            raise ConnectionError("no answer")

        @once_task(
            app,
            semel,
            shared=False,
            key="name",
            name="declined",
            final_errors=(Declined,),
            autoretry_for=(Exception,),
            default_retry_delay=0,
        )
        def declined(name: str) -> str:
            self.note("did", name, "")
            raise Declined("no money")

        @once_task(app, semel, shared=False, key="name", operation="ignored", name="ignored", lease_for=LEASE)
        def ignored(name: str) -> str:
            self.note("did", name, "")
            raise Ignore("somebody else tells")

        @once_task(app, semel, shared=False, key="name", operation="rejected", name="rejected", lease_for=LEASE)
        def rejected(name: str) -> str:
            if self.note("entered", name, "") == 1:
                raise Reject("not here", requeue=True)
            return "done"

        @once_task(app, semel, shared=False, key="name", operation="meets", name="meets", lease_for=LEASE)
        def meets(name: str, row: str) -> str:
            if self.note("entered", name, "") == 1:
                raise {**SENT_AGAIN, **FAILED}[row]
            return "done"

    def _make_tasks_that_are_cut_off(self) -> None:
        app, semel = self.app, self.semel

        @once_task(app, semel, shared=False, key="name", name="killed", lease_for=LEASE)
        def killed(name: str, attempt: Attempt) -> str:
            first = attempt.step("first", self._note_effect, name, "first")
            if self.note("entered", name, f"{attempt.number} {attempt.in_doubt}") == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{first} {attempt.step('second', self._note_effect, name, 'second')}"

        @once_task(
            app, semel, shared=False, key="name", operation="soft", name="soft", soft_time_limit=1, lease_for=LEASE
        )
        def soft(name: str) -> str:
            if self.note("entered", name, "") == 1:
                self.await_note("go", name)
            return "done"

        @once_task(
            app,
            semel,
            shared=False,
            key="name",
            name="hard",
            time_limit=1,
            acks_on_failure_or_timeout=False,
            lease_for=LEASE,
        )
        def hard(name: str) -> str:
            if self.note("entered", name, "") == 1:
                self.await_note("go", name)
            return "done"

    def _note_effect(self, name: str, part: str) -> str:
        self.note("did", name, part)
        return part

    def __getattr__(self, name: str) -> Any:
        return self.app.tasks[name]


def main(text: str) -> None:
    """Be the worker."""
    program = Application(Settings(**json.loads(text)))

    def use_before_forking(**_: Any) -> None:
        # So that a process of the pool would inherit a connection, if that could be.
        program.semel.read("nothing", operation="charge")

    def tell_ready(**_: Any) -> None:
        program.note("worker", "ready", os.getpid())

    def tell_retry(request: Any, **_: Any) -> None:
        program.note("sent_again", request.id, request.retries)

    def tell_end(task_id: str, state: str, **_: Any) -> None:
        program.note("ended", task_id, state)

    signals.worker_init.connect(use_before_forking, weak=False)
    signals.worker_ready.connect(tell_ready, weak=False)
    signals.task_retry.connect(tell_retry, weak=False)
    signals.task_postrun.connect(tell_end, weak=False)
    settings = program.settings
    # Two workers of the same name keep each other from a queue of theirs.
    words = ["worker", "--pool", settings.pool, "--concurrency", str(settings.concurrency)]
    words += ["--hostname", f"{settings.queue}@%h"]
    program.app.worker_main([*words, "--loglevel", "INFO", "--without-gossip", "--without-mingle"])
