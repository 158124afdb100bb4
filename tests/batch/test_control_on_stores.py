"""What is decided about a batch holds on real databases, whose time is moved on: pauses, retention, what is left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from semel.stores.mysql.store import MysqlStore
from semel.stores.postgresql.store import PostgresStore
from semel.stores.sqlite.store import SqliteStore
from semel.testing.clock import VirtualClock
from tests.batch.desk import KINDS, Desk
from tests.batch.test_control import (
    test_a_batch_that_was_cancelled_and_has_expired_does_not_stop_the_next_one_of_its_id,
    test_a_batch_that_was_paused_for_long_goes_on_and_repeats_nothing,
    test_an_id_may_be_begun_anew_though_other_batches_have_expired_as_well,
    test_nothing_of_a_cancelled_batch_waits_for_a_person_once_it_has_expired,
)
from tests.batch.test_doubts import (
    test_a_batch_expires_once_its_doubts_are_resolved,
    test_a_run_runs_what_did_not_happen,
)
from tests.batch.test_loading import (
    test_a_load_that_was_given_up_goes_by_itself,
    test_an_input_that_is_refused_leaves_no_batch,
)
from tests.batch.test_together import (
    test_failures_of_all_processes_count_for_max_failed,
    test_processes_share_one_rate,
    test_what_is_decided_elsewhere_is_seen_while_the_rate_is_waited_for,
)
from tests.servers.records import emptied

__all__ = [
    "test_a_batch_expires_once_its_doubts_are_resolved",
    "test_a_batch_that_was_cancelled_and_has_expired_does_not_stop_the_next_one_of_its_id",
    "test_a_batch_that_was_paused_for_long_goes_on_and_repeats_nothing",
    "test_a_load_that_was_given_up_goes_by_itself",
    "test_a_run_runs_what_did_not_happen",
    "test_an_id_may_be_begun_anew_though_other_batches_have_expired_as_well",
    "test_an_input_that_is_refused_leaves_no_batch",
    "test_failures_of_all_processes_count_for_max_failed",
    "test_nothing_of_a_cancelled_batch_waits_for_a_person_once_it_has_expired",
    "test_processes_share_one_rate",
    "test_what_is_decided_elsewhere_is_seen_while_the_rate_is_waited_for",
]
pytestmark = [pytest.mark.slow, pytest.mark.anyio]
MOVING: dict[str, Any] = {"postgresql": PostgresStore, "mariadb": MysqlStore}


@pytest.fixture(params=["sqlite", *MOVING])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[VirtualClock], Any]:
    """Makes a store that shows the time of a clock."""
    if request.param == "sqlite":
        return lambda clock: SqliteStore(tmp_path / "semel.db", clock=clock.store_clock)
    databases = request.getfixturevalue(request.param)
    url = emptied(databases, databases.url)
    return lambda clock: MOVING[request.param](url, clock=clock.store_clock)


@pytest.fixture(params=KINDS)
async def desk(request: pytest.FixtureRequest, make_store: Callable[[VirtualClock], Any]) -> AsyncIterator[Desk]:
    clock = VirtualClock()
    made = Desk(request.param, lambda: make_store(clock))
    made.clock = clock
    yield made
    await made.close()
