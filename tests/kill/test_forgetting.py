"""A Redis that forgets what it acknowledged: the report says so of every key, and of every effect that it repeated.

These runs are not what anybody should deploy. They show that a zero in the others means something.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.kill.grounds.failover import failing_over
from tests.kill.grounds.private import private_ground
from tests.kill.program import Outcome, break_server_and_check
from tests.servers.redis import RedisServer
from tests.servers.redis_sentinel import Watched

PATIENCE = 600  # a bound for the hopeless, not a measure
OUTAGES = 3  # somebody asks again for what was forgotten in one of them, however slow the machine is
SHOWN = None if os.environ.get("SEMEL_EFFORT") == "full" else 30

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

Figures = Callable[[str, object], None]


def demand_that_forgetting_is_told(outcome: Outcome) -> None:
    """Every harm that was done has its reason, and the reason is that something was forgotten."""
    assert outcome.verdict.forgotten > 0
    assert any("forgotten by redis in outage" in line and "was repeated" in line for line in outcome.verdict.explained)
    assert outcome.run.wedged == []
    assert outcome.verdict.problems == []


def test_a_server_without_a_log_forgets_and_every_duplicate_is_explained(
    start_redis: Callable[..., AbstractContextManager[RedisServer]], tmp_path: Path, record_property: Figures
) -> None:
    start = partial(start_redis, settings={"appendonly": "no"})
    with private_ground("redis", lambda _: start) as private:
        outcome = break_server_and_check(tmp_path, private, OUTAGES, seed=5)
    record_property("figures", "\n".join(outcome.text.splitlines()[:SHOWN]))
    demand_that_forgetting_is_told(outcome)
    assert outcome.run.missing != []  # the audit finds what nobody asks for again


def test_a_failover_that_forgets_the_last_writes_is_found_in_the_report(
    start_redis_sentinel: Callable[..., AbstractContextManager[Watched]], tmp_path: Path, record_property: Figures
) -> None:
    with failing_over(start_redis_sentinel()) as private:
        outcome = break_server_and_check(tmp_path, private, 1, seed=6)
    record_property("figures", "\n".join(outcome.text.splitlines()[:SHOWN]))
    demand_that_forgetting_is_told(outcome)
