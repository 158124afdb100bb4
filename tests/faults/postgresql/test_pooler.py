"""F39: a proxy that pools transactions gives each of them another session. Nothing here relies on one."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

import semel
from semel.core.operations import (
    Complete,
    Fail,
    Granted,
    MarkLapsed,
    Purge,
    Read,
    Recorded,
    Renew,
    Renewed,
    Replay,
    Running,
)
from semel.core.record import Failure
from semel.core.store import Plan
from semel.stores.postgresql import PostgresStore
from semel.stores.sql.dialect import Command
from tests.decorated import CallStyle
from tests.faults.callers import Caller
from tests.faults.postgresql.pooled import bouncer
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import Colour, User, claim, key
from tests.servers.plugin import verdict
from tests.servers.programs import ServerMissing
from tests.servers.room import Room

pytestmark = pytest.mark.slow

SOURCES = Path(semel.__file__).parent / "stores"


@pytest.fixture(scope="module")
def through(place: str, room: Room) -> Iterator[str]:
    """The same database, behind the proxy."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(bouncer(place, room))
        except ServerMissing as missing:
            raise verdict(str(missing), optional=True) from None
        yield url


def test_sessions_change_under_a_connection(through: str, url: str) -> None:
    """Otherwise the tests below would prove nothing."""
    with User(PostgresStore(through, pooled=True), "threads") as user, psycopg.connect(through) as rival:
        before = session_of(user)
        while rival.execute("SELECT pg_backend_pid()").fetchone() != before:
            rival.rollback()
        assert session_of(user) != before


def session_of(user: User) -> tuple[int]:
    """Which session of the server the store is given now."""
    found: list[tuple[int]] = []

    def plan() -> Plan:
        found.extend((yield Command("SELECT pg_backend_pid()")))
        return []

    user.perform(plan())
    return found[0]


def test_of_many_racing_through_two_sessions_each_key_is_granted_once(through: str, url: str, colour: Colour) -> None:
    keys, start = [f"k-{number}" for number in range(24)], threading.Barrier(6)

    def race(_: int) -> list[str]:
        with User(PostgresStore(through, pooled=True), colour) as user:
            start.wait()
            won = []
            for value in keys:
                (answer,) = user.all([claim(value)])
                if isinstance(answer, Granted):
                    user.one(Renew(answer.lease, 60_000_000), Renewed)
                    user.one(Complete(answer.lease, b"done"), Recorded)
                    won.append(value)
                else:
                    assert isinstance(answer, (Running, Replay)), answer
            return won

    with ThreadPoolExecutor(6) as pool:
        won = list(itertools.chain.from_iterable(pool.map(race, range(6))))
    assert sorted(won) == sorted(keys)


def test_lists_of_every_kind_work(through: str, url: str, colour: Colour) -> None:
    with User(PostgresStore(through, pooled=True), colour) as user:
        answers = user.all([claim(f"k-{number}") for number in range(8)])
        leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
        assert len(leases) == 8
        user.all([Renew(lease, 60_000_000) for lease in leases])
        user.all([Complete(lease, b"done") for lease in leases[:4]])
        user.all([Fail(lease, "final", Failure("No", "no"), doubtful=False) for lease in leases[4:]])
        user.all([Read(key(f"k-{number}").digest, waits=True) for number in range(8)])
        user.all([Purge(10)])
        user.all([MarkLapsed(10)])
        replays = user.all([claim(f"k-{number}") for number in range(8)])
        assert [type(answer) for answer in replays] == [Replay] * 8


def test_settings_hold_for_each_transaction(through: str, url: str, colour: Colour, outsider: Outsider) -> None:
    with User(PostgresStore(through, pooled=True, lock_timeout=0.1), colour) as user:
        user.completed("k")
        outsider.look("UPDATE semel_record SET expires_us = 1")
        outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
        with pytest.raises(semel.errors.StoreUnavailable, match="idle in transaction"):
            user.one(claim("k"), Granted)


def test_calls_are_protected(through: str, url: str, colour: Colour, call_style: CallStyle) -> None:
    ran: list[int] = []
    for _ in range(3):
        with Caller(PostgresStore(through, pooled=True), colour, call_style) as caller:
            caller.run("k", lambda attempt: ran.append(attempt.number))
    assert ran == [1]


OF_OTHERS = ("mysql", "multi_statement", "sqlite")
"""In the paths of what PostgreSQL is never sent; `multi_statement.py` is what the libraries of MySQL share."""


def _statements() -> Iterator[tuple[str, str]]:
    for path in sorted([*SOURCES.rglob("*.sql"), *SOURCES.rglob("*.py")]):
        if not any(other in str(path) for other in OF_OTHERS):
            yield path.name, path.read_text()


@pytest.mark.parametrize(
    "what",
    [r"pg_(try_)?advisory_lock", r"\bCREATE TEMP", r"\bDECLARE \w+ CURSOR", r"\bPREPARE \w+ AS", r"\bSET SESSION\b"],
)
def test_no_statement_leaves_something_in_a_session(what: str) -> None:
    # `semel migrate` is for operators: it locks a session for its whole length, and is given the server itself.
    allowed = {"admin.py"} if "advisory" in what else set()
    assert {name for name, text in _statements() if re.search(what, text)} <= allowed


def test_only_the_listener_listens() -> None:
    assert [name for name, text in _statements() if re.search(r"[\"']LISTEN ", text)] == ["listener.py"]
