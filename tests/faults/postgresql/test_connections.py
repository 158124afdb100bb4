"""Connections of the store: what a fork, a restart, a full pool and a wrong password do to them, and their settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from semel.core.operations import Granted
from semel.core.store import Plan
from semel.errors import StoreUnavailable
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.admin import _LOCK
from semel.stores.sql.dialect import Command
from tests.decorated import CallStyle
from tests.faults.callers import Caller
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import Colour, MakeUser, User, claim
from tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-of-the-operator"
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel' AND datname = current_database()"
LONG_AT_THE_LOCK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'advisory' AND now() - query_start > interval '0.3 s'
"""


def asked(user: User, *texts: str) -> list[Any]:
    """What the store's own session answers to these statements."""
    rows: list[Any] = []

    def plan() -> Plan:
        for text in texts:
            rows.extend((yield Command(text)))
        return []

    user.perform(plan())
    return [tuple(row) for row in rows]


def test_sessions_have_the_settings_that_were_given(make_user: MakeUser) -> None:
    user = make_user(statement_timeout=7, lock_timeout=1.5)
    names = ["statement_timeout", "lock_timeout", "default_transaction_isolation", "application_name"]
    assert asked(user, *(f"SHOW {name}" for name in names)) == [
        ("7s",), ("1500ms",), ("read committed",), ("semel",)
    ]  # fmt: skip


def test_sessions_of_a_schema_look_there_first(make_user: MakeUser, colour: Colour) -> None:
    user = make_user(schema=f"of_{colour}")
    user.completed("k")
    assert asked(user, "SHOW search_path", "SELECT count(*) FROM semel_record") == [(f"of_{colour}",), (1,)]


def test_no_session_is_left_idle_in_a_transaction(user: User, outsider: Outsider) -> None:
    user.completed("k")
    states = outsider.look(SESSIONS.replace("pid", "state"))
    assert states == [("idle",)]


def test_a_closed_store_has_no_sessions(make_user: MakeUser, outsider: Outsider) -> None:
    user = make_user()
    user.completed("k")
    user.close()
    while outsider.look(SESSIONS):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is what happens to people
def test_a_child_does_not_use_the_connections_of_its_parent(url: str, outsider: Outsider) -> None:
    with User(PostgresStore(url), "threads") as user:
        user.completed("before")
        ((parents,),) = outsider.look(SESSIONS)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                ((own,),) = asked(user, "SELECT pg_backend_pid()")
                user.one(claim("child"), Granted)
                os.write(writes, str(own).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writes)
        another = int(os.read(reads, 100) or b"0")
        os.close(reads)
        assert another not in (0, parents)
        assert asked(user, "SELECT pg_backend_pid()") == [(parents,)]


def test_a_full_pool_is_typed(url: str, outsider: Outsider) -> None:
    store = PostgresStore(url, pool_size=1, connect_timeout=0.2, lock_timeout=60)  # it waits for as long as the lock is
    with User(store, "threads") as user, ThreadPoolExecutor(1) as pool:
        user.completed("k")
        outsider.look("UPDATE semel_record SET expires_us = 1")
        outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
        busy = pool.submit(user.one, claim("k"), Granted)
        outsider.until_stores_wait()
        with pytest.raises(StoreUnavailable, match="raise pool_size"):
            user.one(claim("other"), Granted)
        outsider.rollback()
        busy.result()
        user.one(claim("other"), Granted)


def test_too_many_sessions_on_the_server_are_typed(make_user: MakeUser, outsider: Outsider, url: str) -> None:
    name = url.rpartition("/")[2]
    outsider.look("DROP ROLE IF EXISTS crowd")
    outsider.look("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
    try:
        parts = urlsplit(url)
        crowded = parts._replace(netloc=f"crowd@{parts.hostname}:{parts.port}", path=f"/{name}").geturl()
        with pytest.raises(StoreUnavailable, match="connections"):
            make_user(crowded).one(claim("k"), Granted)
    finally:
        outsider.look("DROP ROLE crowd")


@pytest.mark.parametrize("port", [1, None], ids=["nobody answers", "no such role"])
def test_a_password_is_never_in_a_message(make_user: MakeUser, url: str, port: int | None) -> None:
    parts = urlsplit(url)
    wrong = parts._replace(netloc=f"nobody_here:{SECRET}@{parts.hostname}:{port or parts.port}").geturl()
    user = make_user(wrong, connect_timeout=3)
    with pytest.raises(StoreUnavailable) as caught:
        user.one(claim("k"), Granted)
    told, problem = "", caught.value.__cause__
    while problem is not None:
        told, problem = f"{told} {problem!r}", problem.__cause__
    assert SECRET not in f"{caught.value} {caught.value.facts} {told} {user.store.name} {user.store._context.name}"


@pytest.fixture(scope="module")
def server(start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]]) -> Iterator[PostgresqlServer]:
    """A server that may be ended."""
    with start_postgresql(fsync=True) as server:
        yield server


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_calls_after_a_restart_succeed(
    server: PostgresqlServer, colour: Colour, call_style: CallStyle, how: str
) -> None:
    ran: list[int] = []
    with Caller(PostgresStore(server.new_database()), colour, call_style) as caller:
        caller.run("before", lambda attempt: "done")
        if how == "killed":
            server.kill()
            server.start()
        else:
            server.restart()
        for name in ("after", "again"):
            caller.run(name, lambda attempt: ran.append(attempt.number))
        assert caller.run("before", lambda attempt: "again").value == "done"
    assert ran == [1, 1]


def test_a_server_that_is_away_is_typed_and_back_again_is_used(server: PostgresqlServer, colour: Colour) -> None:
    with User(PostgresStore(server.new_database()), colour) as user:
        user.completed("k")
        server.stop()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                user.one(claim("k"), Granted)
        server.start()
        user.one(claim("other"), Granted)


def test_tables_made_by_many_at_once_are_made_once(server: PostgresqlServer, colour: Colour) -> None:
    url, start = server.new_database(), threading.Barrier(6)

    def first(number: int) -> None:
        with User(PostgresStore(url), colour) as user:
            start.wait()
            user.one(claim(f"k-{number}"), Granted)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(first, range(6)))
    assert server.admin("SELECT count(*) FROM semel_record", url) == [(6,)]
    assert server.admin("SELECT count(*) FROM semel_meta WHERE name = 'install_id'", url) == [(1,)]


def test_whoever_comes_second_waits_longer_for_the_tables_than_for_a_row(
    server: PostgresqlServer, colour: Colour
) -> None:
    url = server.new_database()
    with (
        psycopg.connect(url, autocommit=True) as first,
        ThreadPoolExecutor(1) as pool,
        User(PostgresStore(url, lock_timeout=0.1), colour) as user,
    ):
        first.execute("SELECT pg_advisory_lock(%s::bigint)", (_LOCK,))
        second = pool.submit(user.one, claim("k"), Granted)
        while not second.done() and first.execute(LONG_AT_THE_LOCK).fetchone() == (0,):
            pass  # an error before its time would end the wait, and be the result
        first.execute("SELECT pg_advisory_unlock(%s::bigint)", (_LOCK,))
        assert isinstance(second.result(timeout=60), Granted)
