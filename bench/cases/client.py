"""The client: what it costs that a key is on disk before the first byte is sent. The service answers at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.callers import Numbers, alone
from bench.harness import Case, Comparison, Effort, Measure, Variant
from semel.api import Place
from semel.client import Client

_URL = "http://payments.invalid/charges"
_BODY = {"order": "o-1", "cents": 1250}
_DURABLE = Comparison("slower", 1.5)


def _service() -> httpx.MockTransport:
    return httpx.MockTransport(lambda request: httpx.Response(201, json={"charge": 1}))


@contextmanager
def _no_keys(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with httpx.Client(transport=_service()) as client:
        yield lambda calls: alone(numbers.take(calls), lambda _: client.post(_URL, json=_BODY))


@contextmanager
def _by_hand(folder: Path, effort: Effort) -> Iterator[Measure]:
    """What anybody would write: the key and the request, one commit each, and that it is done."""
    numbers, connection = Numbers(), sqlite3.connect(folder / "client-by-hand.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
        connection.execute(statement)
    connection.execute("CREATE TABLE IF NOT EXISTS sent (key INTEGER PRIMARY KEY, request TEXT, status INTEGER)")
    with httpx.Client(transport=_service()) as client:

        def post(number: int) -> None:
            connection.execute("INSERT INTO sent (key) VALUES (?)", [number])
            connection.execute("UPDATE sent SET request = ? WHERE key = ?", [str(_BODY), number])
            status = client.post(_URL, json=_BODY, headers={"Idempotency-Key": f'"{number}"'}).status_code
            connection.execute("UPDATE sent SET status = ? WHERE key = ?", [status, number])

        yield lambda calls: alone(numbers.take(calls), post)
    connection.close()


@contextmanager
def _with_keys(keys: Place) -> Iterator[Measure]:
    numbers = Numbers()
    with Client(keys, transport=_service()) as client:
        yield lambda calls: alone(numbers.take(calls), lambda _: client.post(_URL, json=_BODY))


CLIENT = Case(
    "client",
    "A client that keeps its keys, one caller, against a service that answers at once",
    (
        Variant("no keys", _no_keys, 200),
        Variant("keys in memory", lambda folder, effort: _with_keys("memory://"), 200, against="no keys"),
        Variant("three commits by hand", _by_hand, 100),
        Variant(
            "keys in SQLite",
            lambda folder, effort: _with_keys(folder / "client-keys.db"),
            100,
            against="three commits by hand",
            by=_DURABLE,
        ),
    ),
    notes=("The target is ours: no library of the field keeps keys, so there is nothing to compare with.",),
)
