"""`semel sweep` on real files: once, again and again, with the hooks of an app."""

import re
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Database, Run, command, environment
from tests.processes import child

APP = """
from datetime import timedelta
from semel import AsyncSemel, Happened, Semel

{hook}
    return Happened("found it")

semel = {kind}("sqlite:///semel.db")

@semel.once(key="order", operation="pay", in_doubt="reconcile", reconcile=hook, reconcile_after=timedelta(0))
{function} pay(order: str) -> str:
    raise ValueError("no answer")
"""
FAIL_ONCE = """
import asyncio, contextlib, inspect, shop
with contextlib.suppress(ValueError):
    got = shop.pay("o-1")
    if inspect.isawaitable(got):
        asyncio.run(got)
"""
COLOURS = {
    "sync": APP.format(kind="Semel", hook="def hook(attempt):", function="def"),
    "async": APP.format(kind="AsyncSemel", hook="async def hook(attempt):", function="async def"),
}


def counts(output: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"(deleted|lapsed|reconciled|held) (\d+)", output)}


def test_one_sweep_deletes_marks_and_reports(database: Database, run: Run) -> None:
    database.expired("old")
    database.completed("young")
    database.running("crashed", timedelta(microseconds=1))
    database.running("alive")
    database.in_doubt("held")
    done = run("sweep", database.url)
    assert done.returncode == 4  # records are held
    assert counts(done.stdout) == {"deleted": 1, "lapsed": 1, "reconciled": 0, "held": 2}
    assert "semel list --stuck" in done.stdout
    assert database.read("crashed").status == "in_doubt"
    assert database.read("alive").status == "running"
    assert counts(run("sweep", database.url).stdout) == {"deleted": 0, "lapsed": 0, "reconciled": 0, "held": 2}


@pytest.mark.parametrize("colour", COLOURS)
def test_the_hooks_of_an_app_are_asked(colour: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS[colour])
    subprocess.run([sys.executable, "-c", FAIL_ONCE], cwd=tmp_path, env=environment(), check=True, timeout=60)
    assert counts(run("sweep", "semel.db").stdout)["held"] == 1
    done = run("sweep", "--app", "shop:semel")
    assert done.stderr == ""
    assert counts(done.stdout) == {"deleted": 0, "lapsed": 0, "reconciled": 1, "held": 0}


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("shop", "package.module:object"),
        ("nowhere.shop:semel", "no module nowhere"),
        ("shop:nothing", "has no nothing"),
        ("shop:pay", "not a Semel or AsyncSemel"),
    ],
)
def test_what_is_no_app_is_refused(app: str, words: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS["sync"])
    done = run("sweep", "--app", app)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_app_brings_its_own_database(tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS["sync"])
    assert run("sweep", "semel.db", "--app", "shop:semel").returncode == 2


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("colour", [None, *COLOURS])
def test_it_sweeps_until_it_is_ended(ending: signal.Signals, colour: str | None, database: Database) -> None:
    database.in_doubt("o-1")
    if colour is not None:
        (database.path.parent / "shop.py").write_text(COLOURS[colour])
    place = [database.url] if colour is None else ["--app", "shop:semel"]
    with child(
        command(["sweep", *place, "--every", "50ms"]),
        env=environment(PYTHONUNBUFFERED="1"),
        cwd=database.path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            assert counts(process.stdout.readline())["held"] == 1
        process.send_signal(ending)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_long_pause_does_not_delay_the_end(database: Database) -> None:
    database.completed("o-1")
    with child(
        command(["sweep", database.url, "--every", "1h"]),
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 0


def test_a_busy_database_is_swept_next_time(database: Database) -> None:
    database.completed("o-1")
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with child(
        command(["sweep", f"{database.url}?busy_for=0.1", "--every", "50ms"]),
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "The next sweep tries again." in process.stderr.readline()
        other.close()
        assert counts(process.stdout.readline())["deleted"] == 0
        process.terminate()
        assert process.wait(60) == 0
