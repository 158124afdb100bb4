"""PostgreSQL killed, and standing still, under load: refusals without asking, runs recorded, and all goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Literal

import pytest

from semel.core.circuit import Limits
from semel.stores.postgresql import PostgresStore
from tests.decorated import CallStyle
from tests.faults.crowd import Crowd, until
from tests.faults.users import Colour
from tests.servers.postgresql import PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CALLERS = 16
LIMITS = Limits(slow_call=1.0)
Way = Literal["killed", "frozen"]


@pytest.fixture(scope="module")
def server(start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]]) -> Iterator[PostgresqlServer]:
    with start_postgresql(fsync=True) as server:  # a kill must not take back what was committed
        yield server


def take_away(server: PostgresqlServer, way: Way) -> None:
    server.kill() if way == "killed" else server.freeze()


def bring_back(server: PostgresqlServer, way: Way) -> None:
    server.start() if way == "killed" else server.thaw()


@pytest.mark.parametrize("way", ["killed", "frozen"])
def test_a_server_that_goes_and_comes_back(
    server: PostgresqlServer, colour: Colour, call_style: CallStyle, way: Way
) -> None:
    store = PostgresStore(server.url, statement_timeout=2, connect_timeout=2)
    keys = [f"{colour} {call_style} {way} {number}" for number in range(4)]
    with Crowd(store, colour, LIMITS, CALLERS, call_style) as crowd:
        runs = crowd.begin(keys)
        crowd.press()
        until(lambda: crowd.ended > CALLERS, "calls under load")
        take_away(server, way)
        try:
            until(lambda: "store_open" in crowd.ears.changes, "the store is left alone")
            refused = crowd.refusals(500)
            crowd.goes_on.set()
        finally:
            bring_back(server, way)
        results = [run.result(60) for run in runs]
        ended = crowd.ended
        until(lambda: crowd.ended > ended + CALLERS, "calls go on by themselves")
        crowd.leave()
        again = [crowd.run(key) for key in keys]
    assert crowd.ran_unrecorded == 0
    assert not any(error.ran for error in refused)
    assert all(timedelta(0) < error.retry_after <= LIMITS.max_backoff for error in refused)
    assert [(result.value, result.replayed) for result in results] == [("recorded", False)] * len(keys)
    assert [(result.value, result.replayed) for result in again] == [("recorded", True)] * len(keys)
    assert crowd.ears.changes[-1] == "store_closed"
