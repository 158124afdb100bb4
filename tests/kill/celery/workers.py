"""The workers of a run with Celery, and the zygote that forks them: each is one process that takes one task at a time.

A worker costs a fork instead of an interpreter. The zygote reads orders from its standard input: `spawn SLOT` answers
with a process id, `reap PID` waits for that process and answers with its exit status. What always holds: nobody is
reaped unasked, so an id that the killer knows still names the process it meant; when the killer is gone, all end.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import psycopg
from celery import Celery, signals

from semel import Attempt, Semel
from semel.events.brokers.celery import once_task
from tests.kill.events.board import Board, Field, Slot

BOARD, ERRORS, QUEUE, OPERATION = "board", "errors.txt", "semel-kill-celery", "pay"
WORKERS: Final = 3
LEASE: Final = 1.0
VISIBLE_AGAIN: Final = 3
TRANSPORTS: Final[dict[str, dict[str, Any]]] = {
    "rabbitmq": {"confirm_publish": True},
    "redis": {
        "visibility_timeout": VISIBLE_AGAIN,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        # Whoever is killed while it restores messages keeps others from it for so long.
        "unacked_mutex_expire": VISIBLE_AGAIN,
    },
}
TABLES: Final = """
CREATE TABLE paid (id text PRIMARY KEY, order_id text NOT NULL);
CREATE TABLE asked (order_id text NOT NULL, in_doubt boolean NOT NULL);
"""
"""What a provider has that knows the ids it was asked with; and each time that it was asked."""


class At(IntEnum):
    """Where a kill can hit a task."""

    TAKEN = 1
    CLAIMED = 2
    RAN = 3
    RECORDED = 4
    SENT_AGAIN = 5


MEANING: Final = {
    At.TAKEN: "a message was taken, nothing was claimed",
    At.CLAIMED: "the body has begun, nothing has happened",
    At.RAN: "the effect has happened, nothing is recorded",
    At.RECORDED: "the end is recorded, nothing is acknowledged",
    At.SENT_AGAIN: "the task was sent again with a countdown, its message is not acknowledged",
}


class Body:
    """What the task does, and where the process shows that it is."""

    def __init__(self, database: str, slot: Slot | None) -> None:
        self._database = database
        self._slot = slot
        self._connection: psycopg.Connection[Any] | None = None
        self._has_run = False

    def watch(self) -> None:
        """Show where tasks are that Celery runs here."""
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)

    def pay(self, order_id: str, attempt: Attempt) -> str:
        """Ask the provider."""
        self._has_run = True
        self._stand(At.CLAIMED)
        if self._connection is None:
            self._connection = psycopg.connect(self._database, autocommit=True)
        self._connection.execute("INSERT INTO asked VALUES (%s, %s)", (order_id, attempt.in_doubt))
        id_ = attempt.derive("payment")
        self._connection.execute("INSERT INTO paid VALUES (%s, %s) ON CONFLICT DO NOTHING", (id_, order_id))
        self._stand(At.RAN)
        return id_

    def _stand(self, at: At) -> None:
        if self._slot is not None:
            self._slot.stand(at)

    def _begin(self, **_: Any) -> None:
        assert self._slot is not None
        self._has_run = False
        self._slot.change(Field.UNDER_WAY, 1)
        self._slot.stand(At.TAKEN)

    def _end(self, state: str, **_: Any) -> None:
        assert self._slot is not None
        if state == "RETRY":
            self._slot.stand(At.SENT_AGAIN)
        elif self._has_run:
            self._slot.stand(At.RECORDED)
        elif state == "SUCCESS":
            self._slot.change(Field.REPEATS, 1)
        self._slot.change(Field.UNDER_WAY, -1)


def make_app(kind: str, url: str, database: str, slot: Slot | None = None) -> tuple[Celery, Body]:
    """The application, for those who send and for those who work."""
    app = Celery("kill", broker=url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        broker_transport_options=TRANSPORTS[kind],
        broker_connection_retry_on_startup=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
    )
    body = Body(database, slot)

    # max_retries: if what is sent again were counted, tasks would fail here, and be missed in the end.
    @once_task(
        app,
        Semel(database),
        shared=False,
        key="order_id",
        operation=OPERATION,
        name="pay",
        lease_for=LEASE,
        max_retries=0,
    )
    def pay(order_id: str, attempt: Attempt) -> str:
        return body.pay(order_id, attempt)

    return app, body


def main(folder: Path, database: str, kind: str, url: str) -> None:
    """Serve until the input ends."""
    board = Board(folder / BOARD, WORKERS)
    children: set[int] = set()
    try:
        for order in sys.stdin:
            word, argument = order.split()
            if word == "spawn":
                child = os.fork()
                if child == 0:
                    _live(folder, *make_app(kind, url, database, board.slot(int(argument))), argument)
                children.add(child)
                print(child, flush=True)
            else:
                _, status = os.waitpid(int(argument), 0)
                children.discard(int(argument))
                print(status, flush=True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def _live(folder: Path, app: Celery, body: Body, number: str) -> None:
    """The life of a worker, up to its end."""
    status = 1
    try:
        with (folder / f"worker-{number}.log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        body.watch()
        words = ["worker", "--pool", "solo", "--hostname", f"w{number}@%h", "--loglevel", "WARNING"]
        app.worker_main([*words, "--without-gossip", "--without-mingle", "--without-heartbeat"])
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the killer has to see it
        with (folder / ERRORS).open("a") as file:
            file.write(traceback.format_exc())
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
