"""What a call costs: one round trip for a claim, one for a completion, one for a replay; as the server saw it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from semel import Semel
from semel.core.operations import Complete, Granted, Recorded, Replay
from semel.stores.postgresql import PostgresStore
from tests.decorated import CallStyle, call
from tests.faults.callers import Caller
from tests.faults.users import Colour, User, claim
from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction
from tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]]) -> Iterator[PostgresqlServer]:
    with start_postgresql(log_statements=True) as server:
        yield server


class Counted:
    """The statements that the server has executed in one database since the last look."""

    def __init__(self, server: PostgresqlServer, url: str) -> None:
        self._server = server
        self._name = url.rpartition("/")[2]
        self._seen = 0

    def new(self) -> list[str]:
        assert self._server.statement_log is not None
        text = self._server.statement_log.read_text()
        lines = re.findall(rf"\] {self._name} LOG:  (?:execute [^:]*|statement): *(.*)", text)
        fresh, self._seen = lines[self._seen :], len(lines)
        return fresh


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    url = server.new_database()
    with User(PostgresStore(url), "threads") as user:
        user.completed("first")
    return url


@pytest.mark.parametrize("length", [1, 20])
def test_each_list_is_one_statement(server: PostgresqlServer, url: str, colour: Colour, length: int) -> None:
    with User(PostgresStore(url), colour) as user:
        user.completed("warm")
        user.all([claim("warm"), claim("warmer")])  # asyncpg asks once per connection what an array is
        counted = Counted(server, url)
        counted.new()
        answers = user.all([claim(f"k-{number}") for number in range(length)])
        leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
        assert (len(leases), len(counted.new())) == (length, 1)
        ended = user.all([Complete(lease, b"done") for lease in leases])
        assert (all(isinstance(answer, Recorded) for answer in ended), len(counted.new())) == (True, 1)
        replays = user.all([claim(f"k-{number}") for number in range(length)])
        assert (all(isinstance(answer, Replay) for answer in replays), len(counted.new())) == (True, 1)


def test_a_call_is_two_statements_and_a_repetition_one(
    server: PostgresqlServer, url: str, colour: Colour, call_style: CallStyle
) -> None:
    with Caller(PostgresStore(url), colour, call_style) as caller:
        caller.run("warm", lambda attempt: "done")
        counted = Counted(server, url)
        counted.new()
        caller.run("k", lambda attempt: "done")
        assert len(counted.new()) == 2
        caller.run("k", lambda attempt: "done")
        assert len(counted.new()) == 1


def test_a_statement_is_one_round_trip(url: str, colour: Colour) -> None:
    with Proxy(url) as proxy, User(PostgresStore(proxy.url), colour) as user:
        for number in range(8):  # client libraries prepare what they send often
            user.completed(f"warm-{number}")
            user.one(claim(f"warm-{number}"), Replay)
        proxy.forget()
        user.completed("k")
        user.one(claim("k"), Replay)
        asked = [one.kind for one in proxy.seen if one.direction is Direction.TO_SERVER]
        answered = [one.kind for one in proxy.seen if one.direction is Direction.TO_CLIENT]
    assert asked.count("Sync") + asked.count("Flush") + asked.count("Query") == 3
    assert answered.count("ReadyForQuery") == 3


def test_within_a_transaction_a_call_adds_two_statements_and_no_commit(
    server: PostgresqlServer, url: str, call_style: CallStyle
) -> None:
    with Semel(PostgresStore(url)) as semel, psycopg.connect(url) as connection:
        call(call_style, semel, "warm", lambda: "done", operation="charge")
        counted = Counted(server, url)

        def said(work: Callable[[], Any]) -> list[str]:
            counted.new()
            with semel.within(connection):
                work()
            connection.commit()
            return [line.split()[0] for line in counted.new()]

        assert said(lambda: call(call_style, semel, "k", lambda: "done", operation="charge")) == [
            "BEGIN",
            "WITH",
            "UPDATE",
            "COMMIT",
        ]
        assert said(lambda: call(call_style, semel, "k", lambda: "done", operation="charge")) == [
            "BEGIN",
            "WITH",
            "COMMIT",
        ]
