"""Many users want the last rooms, a server and the gateway are killed, and some never come back: nothing is oversold.

What always holds: the verdict is that of the database and of the gateway's ledger, and it complains about a run whose
kills hit nothing.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hotel.load.run import Run
from tests.hotel.load.verdict import complaints, figures

USERS = 200
FEWER = USERS if os.environ.get("SEMEL_EFFORT") == "full" else 60
Figures = Callable[[str, object], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


RUNS = [
    (server, users, overbooking)
    for server in ("postgresql", "mariadb")
    for users, overbooking in ((USERS, 0), (FEWER, 2))
]


@pytest.fixture(params=RUNS, ids=lambda run: "-".join(map(str, run)))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A run on an empty database of its server."""
    server, users, overbooking = request.param
    url = str(request.getfixturevalue(server).new_database())
    return Run(url, tmp_path, users=users, overbooking=overbooking, say=print)


def test_exactly_as_many_are_confirmed_as_may_be_sold(run: Run, record_property: Figures) -> None:
    ended = asyncio.run(run())
    record_property("figures", figures(ended))
    assert not complaints(ended), "\n".join(complaints(ended))
