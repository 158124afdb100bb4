"""Workers of Celery and its broker killed: every order is paid once, whichever of them was killed where."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.kill.celery.run import CeleryKiller, Plan, demand_each_once
from tests.kill.celery.workers import At
from tests.kill.outages import broker_at_its_effort
from tests.servers.databases import Databases

PLAN = Plan(200, 20) if FULL else Plan(len(At), 1)
PATIENCE = 7200 if FULL else 600  # a bound for the hopeless, not a measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]


@pytest.mark.parametrize("kind", ["rabbitmq", "redis"])
def test_killed_workers_and_brokers_of_celery_lose_no_order_and_pay_none_twice(
    kind: str,
    request: pytest.FixtureRequest,
    postgresql: Databases,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    with broker_at_its_effort(kind, request) as broker:
        outcome = CeleryKiller(tmp_path, postgresql.new_database(), kind, broker, plan=PLAN).run()
    record_property("figures", outcome.text)
    demand_each_once(outcome, PLAN, kind)
