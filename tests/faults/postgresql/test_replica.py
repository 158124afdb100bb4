"""F40: a replica answers "absent" for what the primary has just recorded, so it is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from semel.core.operations import Granted
from semel.errors import StoreUnavailable
from semel.stores.postgresql import PostgresStore
from tests.decorated import CallStyle
from tests.faults.callers import Caller
from tests.faults.users import Colour, User, claim
from tests.servers import process
from tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow


class Replica(PostgresqlServer):
    """A server that follows another."""

    def follow(self, primary: PostgresqlServer) -> None:
        """Copy the data of the primary, and go on from there."""
        program = Path(self.programs["initdb"]).with_name("pg_basebackup")
        self.prepare_with([str(program), "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
                           "-d", primary.endpoint.url])  # fmt: skip

    def prepare(self) -> None:
        """The data is there already."""


@pytest.fixture(scope="module")
def primary(start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]]) -> Iterator[PostgresqlServer]:
    with start_postgresql() as server:
        if not Path(server.programs["initdb"]).with_name("pg_basebackup").exists():
            pytest.skip("this PostgreSQL comes without pg_basebackup")
        yield server


@pytest.fixture(scope="module")
def replica(primary: PostgresqlServer) -> Iterator[Replica]:
    with User(PostgresStore(primary.endpoint.url), "threads") as user:
        user.completed("first")
    folder = primary.folder.with_name("replica")
    folder.mkdir()
    process.hand_over(folder)
    replica = Replica(primary.programs, folder, primary.options, primary.client)
    replica.follow(primary)
    replica.launch()
    yield replica
    replica.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_replica_is_refused_before_anything_is_claimed(replica: Replica, colour: Colour) -> None:
    with (
        User(PostgresStore(replica.endpoint.url), colour) as user,
        pytest.raises(StoreUnavailable, match=r"replica.*Nothing ran.*primary"),
    ):
        user.one(claim("k"), Granted)


def test_a_replica_does_not_even_answer_what_it_has(replica: Replica, colour: Colour) -> None:
    with (
        Caller(PostgresStore(replica.endpoint.url), colour) as caller,
        pytest.raises(StoreUnavailable, match="replica"),
    ):
        caller.read("first")


def test_no_handler_runs_on_a_replica(replica: Replica, colour: Colour, call_style: CallStyle) -> None:
    ran: list[int] = []
    with Caller(PostgresStore(replica.endpoint.url), colour, call_style) as caller, pytest.raises(StoreUnavailable):
        caller.run("k", lambda attempt: ran.append(attempt.number))
    assert ran == []


def test_a_primary_that_became_a_replica_takes_no_claim(primary: PostgresqlServer, colour: Colour) -> None:
    with User(PostgresStore(primary.new_database()), colour) as user:
        user.completed("before")
        primary.admin("ALTER SYSTEM SET default_transaction_read_only = on")
        primary.admin("SELECT pg_reload_conf()")
        try:
            while primary.admin("SHOW default_transaction_read_only") != [("on",)]:
                pass
            with pytest.raises(StoreUnavailable, match="primary"):
                user.one(claim("k"), Granted)
        finally:
            let_it_be_written(primary)


def let_it_be_written(primary: PostgresqlServer) -> None:
    """Let it be written again."""
    primary.admin("ALTER SYSTEM RESET default_transaction_read_only")
    primary.admin("SELECT pg_reload_conf()")
    while primary.admin("SHOW default_transaction_read_only") != [("off",)]:
        pass
