"""Outbox, relay, broker and inbox with all of them killed: every event that was committed has its effect once.

Events are added in transactions that commit in reverse order, ride on completions, are rolled back, and one stands in
a transaction that is open during the whole run. One consumer writes its effects in `transaction=`, where each is
demanded exactly once; the other writes them by itself, where at least once is promised, and a word to whoever repeats.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.kill.events.places import FASTSTREAM
from tests.kill.events.run import SMALL, EventKiller, Plan, demand_each_once
from tests.kill.outages import broker_at_its_effort, killed_broker
from tests.proxy.cut_off import CutOff
from tests.servers.databases import Databases

PLAN = Plan(1000, 200, 50) if FULL else SMALL
PLAN_OF_SQS = Plan(200, 50, 20) if FULL else SMALL
FASTSTREAM_PLAN = Plan(200, 20, 20) if FULL else SMALL
PATIENCE = 7200 if FULL else 600  # a bound for the hopeless, not a measure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]


@pytest.mark.parametrize("kind", ["rabbitmq", "nats", "redis"])
@pytest.mark.parametrize(("runtime", "plan"), [("", PLAN), (FASTSTREAM, FASTSTREAM_PLAN)], ids=["semel", "faststream"])
def test_killed_consumers_relays_and_brokers_lose_no_event_and_double_no_effect(
    *,
    kind: str,
    runtime: str,
    plan: Plan,
    request: pytest.FixtureRequest,
    postgresql: Databases,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    outages = broker_at_its_effort if runtime else killed_broker
    with outages(kind, request) as broker:
        outcome = EventKiller(tmp_path, postgresql.new_database(), f"{runtime}{kind}", broker, plan=plan).run()
    record_property("figures", outcome.text)
    demand_each_once(outcome, plan)


def test_killed_consumers_and_relays_lose_no_event_on_the_way_over_eventbridge_and_sqs(
    start_sqs: Callable[[], AbstractContextManager[CutOff]],
    postgresql: Databases,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The emulator of both forgets everything when it ends, so the connections to it are cut instead."""
    with start_sqs() as broker:
        outcome = EventKiller(tmp_path, postgresql.new_database(), "sqs", broker, plan=PLAN_OF_SQS).run()
    record_property("figures", outcome.text)
    demand_each_once(outcome, PLAN_OF_SQS)
