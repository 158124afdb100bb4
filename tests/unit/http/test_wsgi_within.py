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
from tests.unit.http.wsgi_world import (
    App,
    ask,
    environ,
    noting,
    raising,
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
        middleware = under(paying("201 Created"), semel, within=ledger.unit)
        result: Any = middleware(environ(), noting(seen, ledger.rows))
        assert (seen, b"".join(result)) == ([1], b"booked it")
        assert (ask(middleware).body, ledger.rows()) == (b"booked it", 1)


def test_an_answer_that_nothing_happened_takes_the_row_back(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        got = ask(under(paying("422 Unprocessable Content"), semel, within=ledger.unit))
        assert (got.status, got.body, ledger.rows(), status(semel)) == (422, b"booked it", 0, None)


def test_an_error_takes_row_and_record_back(ledger: Ledger) -> None:
    with Semel(f"sqlite:///{ledger.path}") as semel:
        app = paying("201 Created", raising(RuntimeError("?")))
        with pytest.raises(RuntimeError):
            ask(under(app, semel, within=ledger.unit))
        assert (ledger.rows(), status(semel)) == (0, None)
