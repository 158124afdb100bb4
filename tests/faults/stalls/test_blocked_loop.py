"""A handler that blocks its event loop does not cost the other operations of the process their leases."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from semel import Policy, Semel
from semel.errors import InProgress
from tests.decorated import CallStyle, call
from tests.faults.stalls.running import PATIENCE, program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.covering]

NOBODY_ELSE = Policy(when_running="reject")
Urls = tuple[str, ...]


def _sqlite(request: pytest.FixtureRequest) -> Urls:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    return (f"sqlite:///{tmp_path / 'semel.db'}",)


def _database(name: str) -> Callable[[pytest.FixtureRequest], Urls]:
    return lambda request: (request.getfixturevalue(name).new_database(),)


def _redis(request: pytest.FixtureRequest) -> Urls:
    keys = request.getfixturevalue("redis_keys")
    keys.empty()
    return (keys.url,)


def _dynamodb(request: pytest.FixtureRequest) -> Urls:
    return (request.getfixturevalue("dynamodb").new_table(),)


def _tiers(request: pytest.FixtureRequest) -> Urls:
    return (*_database("postgresql")(request), *_redis(request))


STORES: dict[str, Callable[[pytest.FixtureRequest], Urls]] = {
    "sqlite": _sqlite,
    "postgresql": _database("postgresql"),
    "sqlalchemy": _database("postgresql"),  # an AsyncEngine of the caller, which belongs to the loop that is blocked
    "mariadb": _database("mariadb"),
    "redis": _redis,
    "dynamodb": _dynamodb,
    "tiers": _tiers,
}


@pytest.fixture(params=STORES)
def started(request: pytest.FixtureRequest, call_style: CallStyle) -> Iterator[tuple[Semel, "subprocess.Popen[str]"]]:
    """Another engine on the same records, and the process whose event loop is blocked by now."""
    kind = str(request.param)
    urls = STORES[kind](request)
    with Semel(urls[0]) as elsewhere, program("blocking", call_style, kind, *urls) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n", "the process did not come as far as its blocking handler"
        yield elsewhere, process


def _renewals_seen(style: CallStyle, elsewhere: Semel, key: str, wanted: int) -> int:
    """How often the lease was seen to be longer than before, looking until that was so `wanted` times."""
    ends: set[datetime] = set()
    patience = time.monotonic() + PATIENCE
    while len(ends) <= wanted and time.monotonic() < patience:
        with pytest.raises(InProgress):  # else somebody else was granted the key: the lease has lapsed
            call(style, elsewhere, key, lambda: "taken over", operation="stall", policy=NOBODY_ELSE)
        record = elsewhere.read(key, operation="stall")
        assert record is not None, "the record of a running operation is gone"
        ends.add(record.lease_until)
        time.sleep(0.05)
    return len(ends) - 1


def test_a_blocked_loop_costs_nobody_the_lease(
    started: "tuple[Semel, subprocess.Popen[str]]", call_style: CallStyle
) -> None:
    elsewhere, process = started
    seen = [_renewals_seen(call_style, elsewhere, key, 2) for key in ("waits", "blocks")]
    assert seen == [2, 2], "renewals while it was blocked"
    out, _ = process.communicate("go on\n", timeout=PATIENCE)
    assert json.loads(out) == {"waits": "attempt 1", "blocks": "went on", "told": []}, out
    again = call(call_style, elsewhere, "waits", lambda: "ran again", operation="stall")
    assert (again.value, again.replayed) == ("attempt 1", True), "the outcome of the first attempt was not recorded"
