"""`run` says what was asked, or says that nothing is compared; to leave it open is refused, and nothing runs."""

import asyncio
import sqlite3
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import KeyReused, UsageError


def test_run_without_a_fingerprint_is_refused_before_the_handler_runs() -> None:
    ran: list[str] = []
    with Semel("memory://") as semel, pytest.raises(TypeError, match="fingerprint"):
        semel.run("o-1", lambda: ran.append("ran"), operation="pay")  # type: ignore[call-arg]  # what this is about
    assert ran == []


def test_run_that_is_awaited_without_a_fingerprint_is_refused_before_the_handler_runs() -> None:
    ran: list[str] = []

    async def handler() -> None:
        ran.append("ran")

    async def play() -> None:
        async with AsyncSemel("memory://") as semel:
            with pytest.raises(TypeError, match="fingerprint"):
                await semel.run("o-1", handler, operation="pay")  # type: ignore[call-arg]  # what this is about

    asyncio.run(play())
    assert ran == []


def test_run_in_a_transaction_without_a_fingerprint_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "shop.db"
    with Semel(path) as semel, sqlite3.connect(path) as connection, pytest.raises(TypeError, match="fingerprint"):
        semel.within(connection).run("o-1", lambda: 1, operation="pay")
    connection.close()


def test_open_without_a_fingerprint_is_refused() -> None:
    with Semel("memory://") as semel, pytest.raises(UsageError, match=r"fingerprint= .*; nothing ran"):
        semel.open("o-1", operation="pay")  # type: ignore[call-arg]  # what this is about


def test_none_says_that_nothing_is_compared() -> None:
    with Semel("memory://") as semel:
        semel.run("o-1", lambda: "first", operation="pay", fingerprint=None)
        assert semel.run("o-1", lambda: "second", operation="pay", fingerprint=None).value == "first"


def test_another_fingerprint_is_another_request() -> None:
    with Semel("memory://") as semel:
        semel.run("o-1", lambda: "first", operation="pay", fingerprint={"amount": 10})
        with pytest.raises(KeyReused):
            semel.run("o-1", lambda: "second", operation="pay", fingerprint={"amount": 11})
