"""The WSGI middleware in a transaction: row and answer commit together, or neither does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.http import transaction
from semel.http.wsgi import EndWithheld
from semel.testing.clock import VirtualClock
from tests.unit.http.wsgi_world import (
    App,
    ask,
    environ,
    noting,
    raising,
    served,
    status,
    under,
)


@dataclass
class Ledger:
    """Rows and records in one file."""

    path: Path

    @contextmanager
    def unit(self, request: Any) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def rows(self) -> int:
        connection = sqlite3.connect(self.path)
        try:
            return int(connection.execute("SELECT count(*) FROM payment").fetchone()[0])
        finally:
            connection.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "shop.db")
    with ledger.unit(None) as connection:
        connection.execute("CREATE TABLE payment (cents INTEGER)")
    return ledger


def paying(status: str, then: Callable[[], object] = lambda: None) -> App:
    def chunks() -> Iterator[bytes]:
        transaction().execute("INSERT INTO payment VALUES (10)")
        yield b"booked "
        then()
        yield b"it"

    return App(status=status, answer=chunks)


def test_row_and_answer_are_committed_before_anything_leaves(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        seen: list[int] = []
        middleware = under(paying("201 Created"), semel, transaction=ledger.unit)
        result: Any = middleware(environ(), noting(seen, ledger.rows))
        assert (seen, b"".join(result)) == ([1], b"booked it")
        assert (ask(middleware).body, ledger.rows()) == (b"booked it", 1)


def test_an_answer_that_nothing_happened_takes_the_row_back(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        got = ask(under(paying("422 Unprocessable Content"), semel, transaction=ledger.unit))
        assert (got.status, got.body, ledger.rows(), status(semel)) == (422, b"booked it", 0, None)


def test_an_error_takes_row_and_record_back(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        app = paying("201 Created", raising(RuntimeError("?")))
        with pytest.raises(RuntimeError):
            ask(under(app, semel, transaction=ledger.unit))
        assert (ledger.rows(), status(semel)) == (0, None)


def test_a_stream_without_an_end_is_taken_back_at_max_runtime(ledger: Ledger) -> None:
    clock = VirtualClock()

    def chunks() -> Iterator[bytes]:
        transaction().execute("INSERT INTO payment VALUES (10)")
        while True:
            clock.advance(60)
            yield b"more "

    with Semel(f"sqlite:///{ledger.path}", clock=clock) as semel:
        with pytest.raises(EndWithheld, match="max_runtime"):
            ask(under(App(answer=chunks), semel, transaction=ledger.unit))
        assert (ledger.rows(), status(semel)) == (0, None)


def test_an_answer_that_contradicts_its_length_is_taken_back(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        app = paying("201 Created")
        app.headers = [*app.headers, ("Content-Length", "11")]
        got = served(under(app, semel, transaction=ledger.unit), environ())
        assert (got.status, b"ask again with the same key" in got.body) == (500, True)
        assert (ledger.rows(), status(semel)) == (0, None)
