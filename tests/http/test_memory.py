"""Memory stays flat: over many requests, each with a key of its own, and over crowds of duplicates that wait.

What is looked at is the memory that belongs to the server's processes alone, after everything was answered. A process
grows by itself at first (caches of code, pools of memory that are filled once), so a warm-up comes before the first
look. SQLite keeps the pages of the database that it used last, up to 16 MiB, and that is not held against the site.

What a process keeps by mistake for each request, a task, a record, a key in a dict, takes 100 bytes and more. Requests
without a key take 13 bytes each by themselves, as seen over 60,000: the allocator's. So at full effort `EACH` and a
little `NOISE` is all they may take. In the 3,000 requests of the small effort the noise weighs more, and what is found
is whoever keeps some 700 bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.http import crowd
from tests.http.asking import new_key
from tests.http.conftest import STORES, Start
from tests.http.resident import KIB, MIB, resident
from tests.http.sites import Running

FULL = os.environ.get("SEMEL_EFFORT") == "full"
WARM_UP, REQUESTS = (50_000, 150_000) if FULL else (2_000, 3_000)
ROUND = 1_000
CONNECTIONS = 16
EACH = 50
NOISE = 4 * MIB if FULL else 2 * MIB
PAGES = 16 * MIB
AROUND_A_PAGE = 1.3  # what SQLite and the allocator take for a page of the file, as seen: 1.25
WAITING = {"starlette-uvicorn": 2_000 if FULL else 200, "flask-gunicorn": 29}  # of 32 threads, two do something else
PER_WAITING = {"starlette-uvicorn": 40 * KIB, "flask-gunicorn": 120 * KIB}  # a connection and its buffers; a stack
CROWDS = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 300)]

Figures = Callable[[str, object], None]
names = pytest.mark.parametrize("name", WAITING)
stores = pytest.mark.parametrize("store", STORES if FULL else STORES[:1])


def ask(site: Running, requests: int) -> None:
    """So many requests, each with a key of its own; each has its effect.

    The effects are forgotten after every round: the application reads all of them each time, and its memory would grow.
    """
    for _ in range(requests // ROUND):
        answers = crowd.ask_all(site.port, "/null", (new_key() for _ in range(ROUND)), CONNECTIONS)
        assert Counter(answers) == {(200, b"null"): ROUND}
        assert site.effects() == ROUND
        (site.folder / "effects").unlink()


def pages(folder: Path) -> int:
    """How much of the database SQLite may hold by now."""
    file = folder / "records.db"
    return min(file.stat().st_size, PAGES) if file.exists() else 0


@names
@stores
def test_memory_stays_flat_over_many_keys(start: Start, name: str, store: str, record_property: Figures) -> None:
    site = start(name, store)
    ask(site, WARM_UP)
    warm, known = resident(site), pages(site.folder)
    ask(site, REQUESTS)
    grown, held = resident(site) - warm, round((pages(site.folder) - known) * AROUND_A_PAGE)
    said = f"{warm // KIB:,} KiB after {WARM_UP:,} requests; {REQUESTS:,} more took {grown // KIB:,} KiB"
    record_property(
        "figures", f"{said}, {held // KIB:,} of them SQLite's pages: {(grown - held) / REQUESTS:.0f} B each"
    )
    assert grown - held < EACH * REQUESTS + NOISE


async def wait_together(site: Running, duplicates: int) -> tuple[int, int]:
    """So many wait for one, and all are answered; gives the memory before they came, and while they waited."""
    key = new_key()
    connections = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(duplicates + 2)]
    (first, begin), (asked, ask_now), *others = connections
    begin.write(crowd.request("/patient", key))
    visitor = await asyncio.to_thread(site.gate.visitor)
    before = resident(site)
    for _, writer in others:
        writer.write(crowd.request("/patient", key))
        await writer.drain()
    ask_now.write(crowd.request("/null", new_key()))  # it came last: once it is answered, the others were taken
    assert await crowd.answer(asked) == (200, b"null")
    waiting = resident(site)
    visitor.go()
    answers = [await crowd.answer(reader) for reader in (first, *(reader for reader, _ in others))]
    assert list(Counter(answers).values()) == [duplicates + 1]
    assert answers[0][0] == 201
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()
    return before, waiting


@names
@stores
def test_memory_comes_back_after_crowds_of_duplicates(
    start: Start, name: str, store: str, record_property: Figures
) -> None:
    duplicates = WAITING[name]
    site = start(name, store, limits={"waiters_per_key": duplicates})
    ask(site, ROUND)
    before, waiting = asyncio.run(wait_together(site, duplicates))
    each = (waiting - before) // duplicates
    for _ in range(CROWDS):
        asyncio.run(wait_together(site, duplicates))
    settled = resident(site)
    for _ in range(CROWDS):
        asyncio.run(wait_together(site, duplicates))
    left = resident(site) - settled
    said = f"{duplicates:,} waited together and took {(waiting - before) // KIB:,} KiB, {each:,} B each"
    record_property("figures", f"{said}; {CROWDS} crowds took {left // KIB:,} KiB more than {CROWDS} before them")
    assert site.effects() == 2 * (2 * CROWDS + 1)
    assert site.gate.is_empty()
    assert each < PER_WAITING[name]
    assert left < EACH * duplicates * CROWDS + MIB
