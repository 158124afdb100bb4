"""Workers on a server killed at every position, and the server itself: nothing is lost, doubled or wedged.

On Redis alone nothing joins a transaction, so what is repeated is listed one by one with its reason. `tiers` is
PostgreSQL behind Redis: either of the two is killed in turn.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.kill.grounds.ground import ground_of
from tests.kill.grounds.private import KINDS, private_ground
from tests.kill.program import break_server_and_check, demand_a_pass, demand_no_harm, kill_and_check
from tests.servers.databases import Databases

KILLS = 2000 if FULL else 100
FEW = 2000 if FULL else 30  # enough to hit every position once
OUTAGES = 50 if FULL else 2  # of tiers each server once
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


@pytest.mark.parametrize("kind", ["redis", "tiers"])
def test_killed_workers_lose_nothing_and_every_repetition_is_explained(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Figures
) -> None:
    with private_ground(kind, lambda name: request.getfixturevalue(f"start_{name}")) as private:
        outcome = kill_and_check(tmp_path, private.ground, FEW, seed=1)
    record_property("figures", outcome.text)
    demand_a_pass(outcome, FEW)
    assert bool(outcome.verdict.cached) == (kind == "tiers")


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_loses_nothing_that_it_acknowledged(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Figures
) -> None:
    with private_ground(kind, lambda name: request.getfixturevalue(f"start_{name}")) as private:
        outcome = break_server_and_check(tmp_path, private, OUTAGES, seed=3)
    record_property("figures", outcome.text)
    demand_no_harm(outcome)
    assert outcome.verdict.replays > 0
    assert bool(outcome.verdict.cached) == (kind == "tiers")
