"""A function of AWS Lambda for batches of SQS, with semel's handler and by hand, in this process.

Invariant: invocations are made before their clock starts, ten records each, and both kinds of function answer
`batchItemFailures`. The store is a file or the memory of the process: an emulator of DynamoDB would say nothing about
the service.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.callers import Numbers
from bench.event_servers import events_of
from bench.harness import Case, Comparison, Effort, Measure, Variant
from semel import Semel
from semel.events import Consumer, Event
from semel.events.brokers import aws_lambda
from semel.stores.memory import MemoryStore

RECORDS = 10
_TABLE = "CREATE TABLE IF NOT EXISTS effect (subject TEXT NOT NULL)"
_INSERT = "INSERT INTO effect VALUES (?)"
Function = Callable[[Any, Any], Any]
Making = Callable[[Path], Iterator[Function]]


class _Context:
    """An invocation with a minute left."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def _invocations(numbers: list[int]) -> list[dict[str, Any]]:
    records = [
        {
            "messageId": event.id,
            "receiptHandle": event.id,
            "body": event.to_json().decode(),
            "attributes": {},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:000000000000:orders",
        }
        for event in events_of(numbers)
    ]
    return [{"Records": records[start : start + RECORDS]} for start in range(0, len(records), RECORDS)]


def _invoking(making: Making) -> Callable[[Path, Effort], Any]:
    """Invokes a function, one batch after the other."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with contextmanager(making)(folder) as function:

            def measure(calls: int) -> float:
                invocations, context = _invocations(numbers.take(calls)), _Context()
                began = time.perf_counter()
                failed = [function(invocation, context)["batchItemFailures"] for invocation in invocations]
                passed = time.perf_counter() - began
                assert not any(failed)
                return passed

            yield measure

    return prepare


def _bare(handle: Callable[[str], None]) -> Function:
    def function(invocation: Any, _: Any) -> dict[str, Any]:
        failures = []
        for record in invocation["Records"]:
            try:
                handle(msgspec.json.decode(record["body"])["data"]["order_id"])
            except Exception:  # noqa: BLE001 - as such functions do it
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return function


def _bare_alone(_: Path) -> Iterator[Function]:
    yield _bare(lambda _: None)


def _with_inbox(_: Path) -> Iterator[Function]:
    with Semel(MemoryStore()) as semel:
        consumer = Consumer(semel, "bench")

        @consumer.on("placed")
        def place(event: Event) -> None: ...

        yield aws_lambda.handler(consumer)


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(_TABLE)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def _commit_at_end(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _bare_transaction(folder: Path) -> Iterator[Function]:
    with _connection(folder / "lambda-bare.db") as connection:

        def insert(order: str) -> None:
            with _commit_at_end(connection):
                connection.execute(_INSERT, (order,))

        yield _bare(insert)


def _in_transaction(folder: Path) -> Iterator[Function]:
    path = folder / "lambda-semel.db"
    with Semel(f"sqlite:///{path}") as semel, _connection(path) as connection:
        consumer = Consumer(semel, "bench", transaction=lambda: _commit_at_end(connection))

        @consumer.on("placed")
        def place(event: Event, session: sqlite3.Connection) -> None:
            session.execute(_INSERT, (event.subject,))

        yield aws_lambda.handler(consumer)


AWS_LAMBDA = Case(
    "lambda",
    "AWS Lambda: a handler for batches of SQS against the same function by hand",
    (
        Variant("bare function", _invoking(_bare_alone), 20_000),
        Variant("handler, records in memory", _invoking(_with_inbox), 4000, "bare function"),
        Variant("bare function, a transaction each", _invoking(_bare_transaction), 1000),
        Variant(
            "handler, transaction=",
            _invoking(_in_transaction),
            1000,
            "bare function, a transaction each",
            Comparison("slower"),
        ),
    ),
    notes=(
        f"{RECORDS} records in an invocation, events of about 200 bytes; times are for one record.",
        "The bare function reads the data of each record and answers batchItemFailures. Transactions are of SQLite.",
    ),
)
