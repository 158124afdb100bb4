"""Workers die at any item, on any side of its commit: every effect is there once, and nobody has to do anything."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batches
from tests.batch.worker import PAGE, committing, connect
from tests.effort import FULL
from tests.processes import child, run_bounded
from tests.servers.records import emptied

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 300)]
ITEMS = 10_000 if FULL else 240
KILLS = 50 if FULL else 3
SERVER_KILLS = 20 if FULL else 2
TABLE = "CREATE TABLE IF NOT EXISTS batch_effect (item varchar(40) NOT NULL)"
TWICE = "SELECT item, count(*) FROM batch_effect GROUP BY item HAVING count(*) <> 1"
COUNT = "SELECT count(*) FROM batch_effect"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Callable[[str], list[Any]]]:
    """A URL with an empty table of effects, and a look at it."""
    if request.param == "sqlite":
        path = tmp_path / "semel.db"

        def look(sql: str) -> list[Any]:
            with closing(sqlite3.connect(path)) as connection:
                return connection.execute(sql).fetchall()

        look(TABLE)
        return f"sqlite:///{path}", look
    databases = request.getfixturevalue(request.param)
    url = emptied(databases, databases.url)
    databases.admin_each([TABLE, "DELETE FROM batch_effect"], url)
    return url, lambda sql: databases.admin_each([sql], url)


def command(url: str, commit: str, kind: str, where: str, at: int) -> list[str]:
    return [sys.executable, "-m", "tests.batch.worker", url, commit, kind, where, str(at)]


def lives(chance: random.Random, commit: str) -> list[str]:
    """Where each of the workers dies that are killed: at random items all over the batch.

    Together they live for fewer items than there are, so that each of them reaches its own. What a life says is not all
    that its worker does: its other threads commit, too, before it is gone.
    """
    beside = 4 * (PAGE if commit == "page" else 1)
    deaths = sorted(chance.sample(range(1, ITEMS - KILLS * beside), KILLS))
    lengths = [end - begin for begin, end in zip([0, *deaths], deaths, strict=False)]
    chance.shuffle(lengths)
    told = []
    for length in lengths:
        where = chance.choice(["before", "after", "committed"])
        is_pages = commit == "page" and where == "committed"
        told.append(f"{where}:{max(1, length // PAGE) if is_pages else length}")
    return told


@pytest.mark.covering
@pytest.mark.parametrize("commit", ["item", "page"])
@pytest.mark.parametrize(
    ("kind", "workers"),
    [("sync", 1), ("sync", 2), ("sync", 8), ("async", 2)] if FULL else [("sync", 2), ("async", 2)],
)
def test_every_effect_is_there_once_whoever_dies_where(
    place: tuple[str, Callable[[str], list[Any]]], commit: str, kind: str, workers: int
) -> None:
    """Of so many workers each that dies is followed by another one; the last one ends what is left."""
    url, look = place
    chance = random.Random(f"{commit}{workers}")
    with Semel(url) as semel:
        batch = Batches(semel).start("kill", ({"id": f"i{n}"} for n in range(ITEMS)), operation="pay", item_id="id")
        crew = [sys.executable, "-m", "tests.batch.crew", url, commit, kind, str(workers), *lives(chance, commit)]
        began = time.monotonic()
        ended = run_bounded(crew, 3000 if FULL else 200)
        assert ended.stdout.split() == [str(-signal.SIGKILL)] * KILLS, ended.stderr
        left = batch.status().remaining
        assert left, "the last worker died before the end"
        done = run_bounded(command(url, commit, kind, "never", 0), 250 if not FULL else 3000)
        assert done.returncode == 0, done.stderr
        seconds = time.monotonic() - began
        status = batch.status()
        assert (status.state, status.completed, status.failed) == ("completed", ITEMS, 0)
        assert [result.value for result in batch.results(type=str)] == [f"i{n}" for n in range(ITEMS)]
    assert look(TWICE) == []
    assert look(COUNT)[0][0] == ITEMS
    tried = f"{KILLS} kills, {ITEMS} items, {left} after the last kill"
    print(f"{tried}, {workers} {kind} workers, commit={commit}: {seconds:.0f} s")


def look_at(url: str, sql: str) -> Any:
    """What a statement gives, on a connection of its own."""
    with closing(connect(url)) as connection, committing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else None


@pytest.mark.covering
@pytest.mark.parametrize("commit", ["item", "page"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_every_effect_is_there_once_and_no_item_has_failed_when_the_server_dies(
    commit: str, kind: str, database: str, request: pytest.FixtureRequest
) -> None:
    """Two workers go on by themselves as soon as the server is back: an outage is no fault of an item."""
    with request.getfixturevalue(f"start_{database}")(fsync=True) as server, ExitStack() as stack:
        url = server.new_database()
        look_at(url, TABLE)
        with Semel(url) as semel:
            Batches(semel).start("kill", ({"id": f"i{n}"} for n in range(ITEMS)), operation="pay", item_id="id")
        commits, told = os.pipe()
        working = command(url, commit, kind, "gate", 0)
        running = [stack.enter_context(child(working, stdin=subprocess.PIPE, stdout=told)) for _ in range(2)]
        os.close(told)
        with os.fdopen(commits, "rb", buffering=0) as line_by_line:
            assert [line_by_line.readline() for _ in running] == [b"ready\n"] * 2
            for process in running:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            for _ in range(SERVER_KILLS):
                for _ in range(ITEMS // (PAGE if commit == "page" else 1) // (SERVER_KILLS + 1)):
                    assert line_by_line.readline(), "the workers ended before the server was killed"
                server.kill()
                server.start()
            assert [process.wait(600) for process in running] == [0, 0]
        with Semel(url) as semel:
            status = Batches(semel).get("kill").status()
        assert (status.state, status.completed, status.failed) == ("completed", ITEMS, 0)
        assert look_at(url, TWICE) == []
        assert look_at(url, COUNT) == [(ITEMS,)]
