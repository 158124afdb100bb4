"""Many users want the last rooms, a server and the gateway are killed, and some never come back: nothing is oversold.

What always holds: the verdict is that of the database and of the gateway's ledger, and it complains about a run whose
kills hit nothing.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import FULL
from tests.hotel.load.run import Run
from tests.hotel.load.verdict import complaints, figures

SELECTED = {
    "small": [("postgresql", 24, 0), ("mariadb", 24, 2)],
    "full": [(server, 200, overbooking) for server in ("postgresql", "mariadb") for overbooking in (0, 2)],
}
"""On which server how many users come, and how many more rooms are sold than there are."""

Figures = Callable[[str, object], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(params=SELECTED["full" if FULL else "small"], ids=lambda run: "-".join(map(str, run)))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A run on an empty database of its server."""
    server, users, overbooking = request.param
    url = str(request.getfixturevalue(server).new_database())
    return Run(url, tmp_path, users=users, overbooking=overbooking, say=print)


def test_exactly_as_many_are_confirmed_as_may_be_sold(run: Run, record_property: Figures) -> None:
    ended = asyncio.run(run())
    record_property("figures", figures(ended))
    assert not complaints(ended), "\n".join(complaints(ended))
