"""Many processes append to one chain at the same time: it never forks, and nothing is lost."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest

from semel import AsyncSemel
from semel.server.audit import Audit
from tests.audit.places import PLACES, Place, make_place
from tests.effort import FULL
from tests.processes import child

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
ROOT = Path(__file__).parents[2]
PROCESSES, EACH = (10, 100) if FULL else (2, 60)
ENGINES = 6 if FULL else 5
"""In each process; each contends with all the others, on a connection of its own."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request.param, request, tmp_path)


async def test_writers_of_several_processes_fork_the_chain_no_time(place: Place) -> None:
    numbers = _append_from_processes(place)
    assert sorted(numbers) == list(range(1, PROCESSES * EACH + 1)), "each number once, and none left out"
    async with AsyncSemel(place.url) as semel:
        audit = Audit(semel)
        report = await audit.verify(scope="shop")
        assert (report.entries, report.faults) == (PROCESSES * EACH, ())
        targets = {entry.target async for entry in audit.entries(scope="shop")}
        assert len(targets) == PROCESSES * EACH


def _append_from_processes(place: Place) -> list[int]:
    """All are told to begin at the same time; gives the numbers that their entries were told to have."""
    with ExitStack() as stack:
        writers = []
        for number in range(PROCESSES):
            command = [sys.executable, "-m", "tests.audit.writer", place.url, f"w{number}", str(EACH), str(ENGINES)]
            writers.append(stack.enter_context(child(command, cwd=ROOT, stdin=PIPE, stdout=PIPE)))
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        told: list[int] = []
        for writer in writers:
            assert writer.stdout is not None
            told += map(int, writer.stdout.readline().split())
        return told
