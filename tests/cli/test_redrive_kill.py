"""`semel events redrive` of all letters, killed in the middle: the same command goes on, each effect is there once."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from semel import Semel
from semel.events import Consumer, Event
from tests.cli.conftest import command, environment
from tests.effort import FULL
from tests.processes import run_bounded

ITEMS = 400 if FULL else 9
KILLS = (ITEMS // 3, 1, 40) if FULL else (ITEMS // 3,)
"""At which of its events each process dies. The next one has to wait for what the dead one had claimed."""


def write_letters(path: Path) -> list[str]:
    """Dead letters of events; gives the ids of these."""
    ids = [f"e-{number}" for number in range(ITEMS)]
    with Semel(path) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1)

        @consumer.on("paid")
        def book(event: Event) -> None:
            raise OSError("no route to the ledger")

        for id_ in ids:
            consumer.handle(Event(type="paid", source="/shop", id=id_))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE booked (event TEXT)")
    return ids


def booked(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [event for (event,) in connection.execute("SELECT event FROM booked ORDER BY rowid")]


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("engine", ["threads", "loop"])
@pytest.mark.parametrize("where", ["inside", "written", "committed"])
def test_redriving_all_goes_on_after_its_process_was_killed(tmp_path: Path, where: str, engine: str) -> None:
    path = tmp_path / "semel.db"
    ids = write_letters(path)

    def redrive(at: int) -> subprocess.CompletedProcess[str]:
        arguments = ["events", "redrive", "tests.cli.dying_consumer:consumer", "--id", "b", "--before", "0.001s"]
        told = {"STORE": str(path), "ENGINE": engine, "WHERE": where, "AT": str(at)}
        return run_bounded(
            command([*arguments, "--because", "the ledger is back", "--by", "olga", "--yes"]),
            120,
            env=environment(**{f"DYING_{name}": value for name, value in told.items()}),
        )

    done = 0
    for at in KILLS:
        killed = redrive(at)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done += at if where == "committed" else at - 1
        assert len(set(booked(path))) == len(booked(path)) == done, "it died where it was told to"
    for _ in range(2):  # the second time it is over
        ended = redrive(0)
        assert f"{ITEMS} done, 0 refused, 0 failed" in ended.stdout, ended.stderr
        assert ended.returncode == 0
        assert sorted(booked(path)) == sorted(ids)  # what the dead one had claimed may come after the others
    with Semel(path) as semel:
        assert list(Consumer(semel, "billing").dead_letters()) == []
