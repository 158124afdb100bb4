"""`semel sweep` on real files: once, again and again, with the hooks of an app."""

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from semel.cli.commands import sweep as sweep_command
from semel.cli.commands.sweep import Ending
from semel.cli.schedule import Schedule
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


def test_one_sweep_deletes_marks_and_reports(database: Database, call: Run) -> None:
    database.expired("old")
    database.completed("young")
    database.running("crashed", timedelta(microseconds=1))
    database.running("alive")
    database.in_doubt("held")
    done = call("sweep", database.url)
    assert done.returncode == 4  # records are held
    assert counts(done.stdout) == {"deleted": 1, "lapsed": 1, "reconciled": 0, "held": 2}
    assert "semel list --stuck" in done.stdout
    assert database.read("crashed").status == "in_doubt"
    assert database.read("alive").status == "running"
    assert counts(call("sweep", database.url).stdout) == {"deleted": 0, "lapsed": 0, "reconciled": 0, "held": 2}


@pytest.mark.parametrize("colour", COLOURS)
def test_the_hooks_of_an_app_are_asked(colour: str, tmp_path: Path, call: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS[colour])
    subprocess.run([sys.executable, "-c", FAIL_ONCE], cwd=tmp_path, env=environment(), check=True, timeout=60)
    assert counts(call("sweep", "semel.db").stdout)["held"] == 1
    done = call("sweep", "--app", "shop:semel")
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
def test_what_is_no_app_is_refused(app: str, words: str, tmp_path: Path, call: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS["sync"])
    done = call("sweep", "--app", app)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_app_brings_its_own_database(tmp_path: Path, call: Run) -> None:
    (tmp_path / "shop.py").write_text(COLOURS["sync"])
    assert call("sweep", "semel.db", "--app", "shop:semel").returncode == 2


@pytest.mark.covering
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


def settings(database: Database, cleanup: str) -> None:
    (database.path.parent / "semel.toml").write_text(f'store = "{database.url}"\n[cleanup]\n{cleanup}\n')


def test_the_limit_of_the_settings_file_bounds_a_sweep(database: Database, call: Run) -> None:
    for number in range(3):
        database.expired(f"o-{number}")
    settings(database, "limit = 2")
    assert [counts(call("sweep").stdout)["deleted"] for _ in range(3)] == [2, 1, 0]


def test_a_schedule_of_the_settings_file_goes_on_until_it_is_ended(database: Database) -> None:
    database.in_doubt("o-1")
    settings(database, 'check_every = "PT0.05S"\nat = "02:00"')
    with child(
        command(["sweep", "--scheduled"]),
        env=environment(PYTHONUNBUFFERED="1"),
        cwd=database.path.parent,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert counts(process.stdout.readline())["held"] == 1
        process.terminate()
        assert process.wait(60) == 0


def test_a_schedule_is_only_gone_by_where_it_is_asked_for(database: Database, call: Run) -> None:
    database.completed("o-1")
    settings(database, 'check_every = "PT0.05S"\nat = "02:00"')
    assert counts(call("sweep").stdout)["held"] == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--scheduled",), "No schedule was found"), (("--scheduled", "--every", "1h"), "--every cannot be given")],
)
def test_a_schedule_that_is_not_there_is_refused(
    database: Database, call: Run, arguments: tuple[str, ...], told: str
) -> None:
    database.completed("o-1")
    settings(database, "limit = 2")
    done = call("sweep", *arguments)
    assert done.returncode == 2
    assert told in done.stderr


HOUR = 3600.0


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in a zone whose clocks change."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("now", "every", "at", "pause"),
    [
        pytest.param("2026-05-05 01:00", None, "02:00", HOUR, id="later today"),
        pytest.param("2026-05-05 02:00", None, "02:00", 24 * HOUR, id="just now: tomorrow"),
        pytest.param("2026-05-05 03:00", None, "02:00", 23 * HOUR, id="tomorrow"),
        pytest.param("2026-03-28 12:00", None, "12:00", 23 * HOUR, id="the clocks go forward"),
        pytest.param("2026-10-24 12:00", None, "12:00", 25 * HOUR, id="the clocks go back"),
        pytest.param("2026-05-05 01:00", 900, None, 900.0, id="every so often"),
        pytest.param("2026-05-05 01:00", 900, "02:00", 900.0, id="both, and the next is of the first kind"),
        pytest.param("2026-05-05 01:50", 900, "02:00", 600.0, id="both, and the next is at the time of day"),
    ],
)
@pytest.mark.usefixtures("central_europe")
def test_the_next_sweep_is_due(now: str, every: float | None, at: str | None, pause: float) -> None:
    schedule = Schedule(
        None if every is None else timedelta(seconds=every), None if at is None else time_of_day.fromisoformat(at)
    )
    assert schedule.pause(datetime.fromisoformat(now).astimezone()) == pause


@pytest.mark.parametrize(
    ("schedule", "at_once", "goes_on"),
    [
        (Schedule(), True, False),
        (Schedule(every=timedelta(hours=1)), True, True),
        (Schedule(at=time_of_day(2)), False, True),
        (Schedule(every=timedelta(hours=1), at=time_of_day(2)), True, True),
    ],
)
def test_a_time_of_day_alone_is_waited_for(schedule: Schedule, at_once: bool, goes_on: bool) -> None:
    assert (schedule.begins_at_once, schedule.goes_on) == (at_once, goes_on)


class Night(Ending):
    """An end that is asked for after some waits, each of which lets the virtual clock pass."""

    def __init__(self, clock: list[datetime], waits: int) -> None:
        super().__init__()
        self._clock, self._waits = clock, waits
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self._clock[0] += timedelta(seconds=seconds)
        self.asked = len(self.waited) >= self._waits


def test_a_sweep_at_a_time_of_day_waits_for_it_every_day(
    database: Database, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.expired("old")
    clock = [datetime(2026, 3, 1, 23, 30, tzinfo=UTC)]
    night = Night(clock, waits=30)
    monkeypatch.setattr(sweep_command, "now", lambda: clock[0])
    monkeypatch.setattr(sweep_command, "Ending", lambda: night)
    done = call("sweep", database.url, "--at", "02:00", "--zone", "Europe/Berlin")
    assert done.returncode == 0, done.stderr
    assert sum(night.waited[:2]) == 1.5 * 3600
    assert re.findall(r"next sweep (.*)", done.stdout) == [
        "2026-03-02 02:00 CET",
        "2026-03-03 02:00 CET",
        "2026-03-04 02:00 CET",
    ]
    assert re.findall(r"deleted (\d+)", done.stdout) == ["1", "0"]


@pytest.mark.parametrize(
    ("now", "zone", "due"),
    [
        ("2026-03-01T00:30+00:00", "UTC", "2026-03-01T02:00+00:00"),
        ("2026-03-01T02:00+00:00", "UTC", "2026-03-02T02:00+00:00"),
        ("2026-03-01T00:30+00:00", "Europe/Berlin", "2026-03-01T01:00+00:00"),
        ("2026-07-01T00:30+00:00", "Europe/Berlin", "2026-07-02T00:00+00:00"),
        # The clocks go from 02:00 to 03:00, and from 03:00 back to 02:00: once on each of these days.
        ("2026-03-28T12:00+00:00", "Europe/Berlin", "2026-03-29T01:00+00:00"),
        ("2026-10-24T12:00+00:00", "Europe/Berlin", "2026-10-25T00:00+00:00"),
        ("2026-10-25T00:00+00:00", "Europe/Berlin", "2026-10-26T01:00+00:00"),
    ],
)
def test_the_next_time_of_day(now: str, zone: str, due: str) -> None:
    schedule = Schedule(at=time_of_day(2), zone=ZoneInfo(zone))
    assert schedule.due(datetime.fromisoformat(now)).astimezone(UTC) == datetime.fromisoformat(due)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--at", "25:00"], "no time of day"),
        (["--at", "noon"], "no time of day"),
        (["--at", "02:00", "--zone", "Berlin"], "no time zone"),
        (["--zone", "UTC"], "--at, which was not given"),
        (["--at", "02:00", "--every", "1h"], "Give one of them"),
        (["--limit", "0"], "limit"),
    ],
)
def test_times_that_are_none_are_refused(options: list[str], words: str, database: Database, call: Run) -> None:
    done = call("sweep", database.url, *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_sweep_stops_at_its_limit(database: Database, call: Run) -> None:
    for key in ("a", "b", "c"):
        database.expired(key)
    found = [counts(call("sweep", database.url, "--limit", "2").stdout)["deleted"] for _ in range(3)]
    assert found == [2, 1, 0]
