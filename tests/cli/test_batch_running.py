"""`semel batch run`, `work` and `status --watch` as processes: signals let items end, and a terminal has a bar."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import pty
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batches, item
from semel.cli.commands.events.live import showing
from semel.errors import StoreUnavailable
from tests.cli.conftest import Database, Run, command, environment
from tests.effort import FULL
from tests.processes import child

pytestmark = pytest.mark.slow
LONG = 60.0
FUNCTIONS = """
import os
import sqlite3
import time
from pathlib import Path


def begin():
    return sqlite3.connect("semel.db")


def wait(item) -> str:
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return item.id


def note(item) -> None:
    with Path("did").open("a") as book:
        book.write(item.id + "\\n")
    if item.id == "last":
        os.kill(os.getpid(), 15)
"""


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Database:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return database


def start(place: Database, id_: str, *items: str, operation: str = "pay") -> None:
    with Semel(place.url) as semel:
        Batches(semel).start(id_, [{"id": item} for item in items], operation=operation, item_id="id")


def status_of(place: Database, id_: str) -> Any:
    with Semel(place.url) as semel:
        return Batches(semel).get(id_).status()


@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGTERM] if FULL else [])])
def test_a_signal_lets_the_running_item_end_and_begins_no_other(
    place: Database, tmp_path: Path, number: signal.Signals
) -> None:
    start(place, "b", "i0", "i1", "i2")
    words = ["batch", "run", "functions:wait", "b", place.url, "--concurrency", "1", "--json", "--every", "100ms"]
    with child(command(words), env=environment(), cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not (tmp_path / "begun").exists():
            assert process.stdout.readline(), "it has ended"
        process.send_signal(number)
        # It still tells of itself after the signal: so the signal has been seen, and did not end the item.
        for _ in range(3):
            assert json.loads(process.stdout.readline())["state"] == "running"
        (tmp_path / "go").touch()
        rest = process.stdout.read()
        assert process.wait(LONG) == 130
    assert json.loads(rest.splitlines()[-1])["completed"] == 1
    status = status_of(place, "b")
    assert (status.state, status.completed) == ("running", 1)


def test_a_worker_runs_all_batches_of_an_operation_until_it_is_ended(place: Database, run: Run, tmp_path: Path) -> None:
    start(place, "one", "a", "b")
    start(place, "other", "x", operation="refund")
    start(place, "two", "c", "last")
    done = run("batch", "work", "functions:note", place.url, "--operation", "pay", "--concurrency", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "did").read_text().split() == ["a", "b", "c", "last"]
    assert json.loads(done.stdout.splitlines()[-1])["operation"] == "pay"
    assert status_of(place, "one").state == "completed"
    assert status_of(place, "other").state == "pending"


def test_a_batch_that_stops_does_not_stop_the_others(place: Database, run: Run, tmp_path: Path) -> None:
    start(place, "one", "a", "b")
    with Semel(place.url) as semel:
        item(Batches(semel).get("one"), "a")(lambda: None)()  # so that it is never committed by page
    start(place, "two", "last")
    options = ["--operation", "pay", "--concurrency", "1", "--transaction", "functions:begin", "--commit", "page"]
    done = run("batch", "work", "functions:note", place.url, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "did").read_text().split() == ["last"]
    assert "the batch 'one' stopped here, and is run again in 1 s: Items of the batch" in done.stderr
    assert status_of(place, "two").completed == 1


def test_what_no_batch_can_be_run_with_is_refused_at_the_start(place: Database, run: Run) -> None:
    start(place, "one", "a")
    refused = run("batch", "work", "functions:note", place.url, "--operation", "pay", "--max-failed", "many")
    assert refused.returncode == 2
    assert "max_failed is a number of items" in refused.stderr


def test_a_terminal_is_shown_a_bar_until_the_batch_is_over(place: Database, tmp_path: Path) -> None:
    start(place, "b", *(f"i{n}" for n in range(50)))
    controller, terminal = pty.openpty()
    words = ["batch", "status", "b", place.url, "--watch", "--every", "100ms"]
    output = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with child(command(words), env=environment(TERM="xterm", COLUMNS="100"), cwd=tmp_path, **output) as process:
        os.close(terminal)
        seen = ""
        while "0 of 50" not in seen:
            seen += os.read(controller, 4096).decode(errors="replace")
        with Semel(place.url) as semel:
            Batches(semel).get("b").run(lambda: None)
        while True:
            try:
                more = os.read(controller, 4096)
            except OSError:  # the other end is closed
                break
            seen += more.decode(errors="replace")
        assert process.wait(LONG) == 0
    os.close(controller)
    assert "50 of 50" in seen
    assert "100 %" in seen


def test_loading_shows_a_bar_on_a_terminal(place: Database, tmp_path: Path) -> None:
    start(place, "other", "a")  # so that there is a schema
    (tmp_path / "items.csv").write_text("id\n" + "".join(f"i{n}\n" for n in range(2000)))
    controller, terminal = pty.openpty()
    words = ["batch", "start", "items.csv", place.url, "--id", "b", "--operation", "pay", "--item-id", "id"]
    output = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with child(command(words), env=environment(TERM="xterm", COLUMNS="100"), cwd=tmp_path, **output) as process:
        os.close(terminal)
        seen = ""
        while True:
            try:
                seen += os.read(controller, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        assert process.wait(LONG) == 0
    os.close(controller)
    assert "of about 2,000" in seen
    assert "b: 2,000 items, pending." in seen


@pytest.mark.anyio
async def test_a_run_is_shown_on_after_a_look_that_the_store_did_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    looks, again = itertools.count(), asyncio.Event()

    async def look() -> tuple[dict[str, Any], str]:
        number = next(looks)
        if not number:
            raise StoreUnavailable("it is being started again")
        again.set()
        return {"look": number}, ""

    async with showing(look, every=timedelta(milliseconds=1), as_json=True):
        await asyncio.wait_for(again.wait(), LONG)
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"look": 1}
