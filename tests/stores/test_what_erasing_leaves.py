"""What erasing leaves in a store does not depend on what was asked: two requests that differ leave the same bytes.

Looked at is everything that is stored, not only what a record is made from, so a digest that only helps a store (of
a step, say) is found too. Time and nonces are given, so that nothing else could differ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semel.core.fingerprint import fingerprint
from semel.core.key import Key
from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Claim,
    Complete,
    Erase,
    Fail,
    Granted,
    Operation,
    Resolve,
    Terms,
)
from semel.core.record import About, Failure, Lease, Status, Step
from semel.core.store import Store
from semel.stores.dynamodb import DynamoStore
from semel.stores.mysql import MysqlStore
from semel.stores.postgresql import PostgresStore
from semel.stores.redis import RedisStore
from semel.stores.sqlite import SqliteStore
from tests.servers.databases import Databases
from tests.servers.ministack import Tables
from tests.servers.records import TABLES, emptied
from tests.servers.redis import Keys
from tests.unit.stores.operations import Clock

KEY = Key.of("o-1", operation="charge", scope="acme")
FIRST, SECOND = "PIN 4711", "PIN 4712"
Act = Callable[[Lease, str], Operation]


class Place(NamedTuple):
    """A store that is empty at first, and a way to see all that is in it."""

    store: Store
    everything: Callable[[], Any]


def _sqlite(clock: Clock, request: pytest.FixtureRequest) -> Place:
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("records")
    path = folder / "semel.db"

    def everything() -> Any:
        with closing(sqlite3.connect(path)) as connection:
            return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608

    return Place(SqliteStore(path, clock=clock), everything)


def _postgresql(clock: Clock, request: pytest.FixtureRequest) -> Place:
    server: Databases = request.getfixturevalue("postgresql")
    url = emptied(server, server.url)
    return Place(PostgresStore(url, clock=clock), lambda: _rows(server, url))


def _mariadb(clock: Clock, request: pytest.FixtureRequest) -> Place:
    server: Databases = request.getfixturevalue("mariadb")
    url = emptied(server, server.url)
    return Place(MysqlStore(url, clock=clock), lambda: _rows(server, url))


def _rows(server: Databases, url: str) -> Any:
    # Sorted: where a row lies in its table is of no matter.
    return {table: sorted(server.admin(f"SELECT * FROM {table}", url), key=repr) for table in TABLES}  # noqa: S608 - names of ours


def _redis(clock: Clock, request: pytest.FixtureRequest) -> Place:
    keys: Keys = request.getfixturevalue("redis_keys")
    keys.empty()
    return Place(
        RedisStore(keys.url, clock=clock), lambda: {name: _fields(keys.said("HGETALL", name)) for name in keys.names()}
    )


def _fields(told: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(told[::2], told[1::2], strict=True))


def _dynamodb(clock: Clock, request: pytest.FixtureRequest) -> Place:
    tables: Tables = request.getfixturevalue("dynamodb")
    tables.empty(tables.url)
    return Place(DynamoStore(tables.url, clock=clock), lambda: tables.items(tables.url))


def _final(lease: Lease, pin: str) -> Operation:
    return Fail(lease, "final", Failure("app.Declined", pin), doubtful=False)


def _retry(lease: Lease, pin: str) -> Operation:
    return Fail(lease, "retry", Failure("app.Declined", pin), doubtful=False)


def _doubt(lease: Lease, pin: str) -> Operation:
    return Fail(lease, "doubt", Failure("app.Broke", pin), doubtful=True)


def _cancel(lease: Lease, pin: str) -> Operation:
    return Resolve(lease.key.digest, b"r" * 16, Status.CANCELLED, None, pin)


def _happened(lease: Lease, pin: str) -> Operation:
    return Resolve(lease.key.digest, b"r" * 16, Status.COMPLETED, pin.encode(), pin)


ENDS: dict[str, tuple[Act, ...]] = {
    "completed": (lambda lease, pin: Complete(lease, pin.encode()),),
    "failed": (_final,),
    "failed, to be tried again": (_retry,),
    "cancelled": (_doubt, _cancel),
    "resolved": (_doubt, _happened),
}
PLACES = {"sqlite": _sqlite, "postgresql": _postgresql, "mariadb": _mariadb, "redis": _redis, "dynamodb": _dynamodb}
places = pytest.mark.parametrize(
    "make", [pytest.param(make, marks=[] if name == "sqlite" else pytest.mark.slow) for name, make in PLACES.items()],
    ids=PLACES.keys(),
)  # fmt: skip


def _lived(place: Place, acts: tuple[Act, ...], pin: str) -> tuple[Any, Any]:
    """All that is stored of a request with this PIN in every part of it: before it is erased, and after."""
    driver = place.store.driver()
    try:

        def perform(operation: Operation) -> Any:
            (answers,) = driver.perform([place.store.plan([operation], joined=False)])
            assert not isinstance(answers, Exception), answers
            assert not isinstance(answers[0], Exception), answers[0]
            return answers[0]

        about = About(subject=pin, business_key=pin, process_instance=pin, requester=pin, tags={pin: pin})
        terms = Terms(30_000_000, 3_600_000_000, "hold", 0)
        granted = perform(Claim(KEY, fingerprint({"pin": pin}), b"n" * 16, terms, about))
        assert isinstance(granted, Granted)
        perform(Checkpoint(granted.lease, Step(0, f"check {pin}", pin.encode())))
        for act in acts:
            perform(act(granted.lease, pin))
        perform(AddReplays(KEY.digest, 2))
        before = place.everything()
        perform(Erase(KEY.digest, "request 17", KEY.operation))
        return before, place.everything()
    finally:
        driver.close()


@places
@pytest.mark.parametrize("acts", ENDS.values(), ids=ENDS.keys())
def test_two_requests_that_differ_leave_the_same_bytes(
    clock: Clock, request: pytest.FixtureRequest, make: Callable[..., Place], acts: tuple[Act, ...]
) -> None:
    before_one, left_of_one = _lived(make(clock, request), acts, FIRST)
    before_other, left_of_other = _lived(make(clock, request), acts, SECOND)
    assert before_one != before_other, "nothing that was stored depends on the request, so this proves nothing"
    assert left_of_one == left_of_other


@places
@pytest.mark.parametrize("acts", ENDS.values(), ids=ENDS.keys())
def test_neither_the_texts_nor_the_fingerprint_are_stored_any_more(
    clock: Clock, request: pytest.FixtureRequest, make: Callable[..., Place], acts: tuple[Act, ...]
) -> None:
    before, left = (_flat(stored) for stored in _lived(make(clock, request), acts, FIRST))
    secrets = {FIRST.encode(), fingerprint({"pin": FIRST}), KEY.scope.encode(), KEY.value.encode()}
    assert {secret for secret in secrets if secret in before} == secrets, (
        "it was not stored before, so this proves nothing"
    )
    assert {secret for secret in secrets if secret in left} == set()


def _flat(stored: Any) -> bytes:
    """Everything in it, as bytes one after the other."""
    match stored:
        case dict():
            return b"|".join(_flat(part) for pair in stored.items() for part in pair)
        case list() | tuple():
            return b"|".join(map(_flat, stored))
        case bytes() | bytearray() | memoryview():
            return bytes(stored)
    return str(stored).encode()
