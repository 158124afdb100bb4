"""Workers on a server killed at every position, and the server itself: nothing is lost, doubled or wedged."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.kill.grounds.ground import ground_of
from tests.kill.program import break_server_and_check, demand_a_pass, kill_and_check
from tests.servers.databases import Databases
from tests.servers.server import Server

FULL = os.environ.get("SEMEL_EFFORT") == "full"
KILLS = 2000 if FULL else 150
OUTAGES = 20 if FULL else 3
PATIENCE = 7200 if FULL else 600  # a bound for the hopeless, not a measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

Figures = Callable[[str, object], None]
servers = pytest.mark.parametrize("kind", ["postgresql", "mariadb"])


@servers
def test_killed_workers_lose_nothing_and_double_nothing_in_a_transaction(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Figures
) -> None:
    databases: Databases = request.getfixturevalue(kind)
    outcome = kill_and_check(tmp_path, ground_of(databases.new_database()), KILLS, seed=1)
    record_property("figures", outcome.text)
    demand_a_pass(outcome, KILLS)


@servers
def test_a_killed_server_loses_nothing_that_it_acknowledged(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Figures
) -> None:
    start: Callable[..., AbstractContextManager[Server]] = request.getfixturevalue(f"start_{kind}")
    with start(fsync=True) as server:

        def break_server() -> None:
            server.kill()
            server.start()

        outcome = break_server_and_check(tmp_path, ground_of(server.new_database()), OUTAGES, 3, break_server)
    record_property("figures", f"{OUTAGES} kills of the server in {outcome.run.seconds:.1f} s\n{outcome.summary}")
    assert outcome.run.wedged == []
    assert outcome.verdict.problems == []
    assert outcome.verdict.replays > 0
