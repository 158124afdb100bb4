"""The benchmarks run and write what they measured. How fast anything is, is never asserted."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench import mariadb_server, postgresql_server, redis_server
from bench.__main__ import app, measure
from bench.catalogue import CASES, missing
from bench.harness import Effort
from bench.report import as_data
from bench.site import Unavailable, in_this_process
from tests.servers.plugin import verdict

TINY = Effort(rounds=1, scale=0.01, rows=20, tries=1)
DURABLE = {"fsync": "on", "synchronous_commit": "on", "innodb_flush_log_at_trx_commit": 1, "appendonly": "yes"}
COUNTED = ("round-trips", "redis-round-trips", "tiered", "within")
"""Cases whose counts depend on no machine."""
IN_PROCESS = [name for name, case in CASES.items() if case.site is in_this_process]
ON_SERVERS = [name for name in CASES if name not in IN_PROCESS]
MEMORY = Path("/dev/shm")  # noqa: S108 - what is put there has a name that cannot be guessed
PATIENCE = 600  # a bound for the hopeless, not a measure
Judged = Callable[[str], dict[str, Any]]

pytestmark = pytest.mark.timeout(PATIENCE)


@pytest.fixture(scope="session")
def run_on_standing_servers() -> Iterator[Judged]:
    """Measures a case on servers that all of them share, in memory where there is such a folder."""
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    started = set[Any]()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place)

        def run(name: str) -> dict[str, Any]:
            site = CASES[name].site
            server = site if site in (mariadb_server.server, redis_server.server) else postgresql_server.server
            if server not in started:
                try:
                    stack.enter_context(server(place, TINY.rows))
                except Unavailable as problem:
                    raise verdict(str(problem)) from None
                started.add(server)
            return case_of(as_data(*measured_and_not(name, place)), name)

        yield run


def measured_and_not(name: str, place: Path) -> tuple[Any, ...]:
    """What a report is made of."""
    measured, left_out = measure(Console(quiet=True), [CASES[name]], TINY, place)
    return measured, TINY, {}, {}, left_out


def written(name: str, folder: Path) -> dict[str, Any]:
    """What the command wrote."""
    output = folder / "figures.json"
    size = [f"--{option}={getattr(TINY, option)}" for option in ("rounds", "scale", "rows", "tries")]
    result = CliRunner().invoke(app, [name, *size, "--output", str(output), "--folder", str(folder)])
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return data


def case_of(data: dict[str, Any], name: str) -> dict[str, Any]:
    """One case; without it, a skip that says what is missing, or a failure in CI."""
    if name in data["left_out"]:
        raise verdict(data["left_out"][name])
    case: dict[str, Any] = json.loads(json.dumps(data["cases"][name]))
    return case


def skip_without_peer(name: str) -> None:
    """Peers are installed beside the benchmarks alone."""
    if missing(CASES[name]):
        pytest.skip(f"{missing(CASES[name])} is not installed here; `make bench` has it")


def is_whole(name: str, case: dict[str, Any]) -> bool:
    """Whether there is a figure for all that was to be measured, each beside its baseline."""
    figures = case["variants"]
    return (
        set(figures) == {variant.name for variant in CASES[name].variants}
        and bool(case["facts"]) == (CASES[name].facts is not None)
        and bool(figures or case["facts"])
        and all(figure["microseconds"]["median"] > 0 for figure in figures.values())
        and all((figure["against"] is None) == (figure["ratio"] is None) for figure in figures.values())
    )


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_case_runs_and_writes_its_figures(name: str, tmp_path: Path) -> None:
    skip_without_peer(name)
    data = written(name, tmp_path)
    assert data["machine"]["python"]
    assert data["durability"]["synchronous"] == 2
    case = case_of(data, name)
    assert is_whole(name, case)
    assert not case["settings"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_SERVERS)
def test_a_case_on_a_server_has_its_figures_and_says_how_durable_they_are(
    name: str, run_on_standing_servers: Judged
) -> None:
    skip_without_peer(name)
    case = run_on_standing_servers(name)
    assert is_whole(name, case)
    settings = case["settings"]
    assert DURABLE.keys() & settings.keys()
    assert {setting: settings[setting] for setting in DURABLE.keys() & settings.keys()}.items() <= DURABLE.items()
    if name in COUNTED:
        assert [fact for fact in case["facts"] if fact["met"] is not True] == []


@pytest.mark.parametrize(
    "name",
    [
        "sqlite-replay",
        pytest.param("redis-round-trips", marks=pytest.mark.slow),
        pytest.param("sweep", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_behind(name: str, tmp_path: Path) -> None:
    before = children()
    case_of(written(name, tmp_path), name)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert children() <= before


def children() -> set[str]:
    """The processes that this one has started and that are still there."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {number for task in tasks for number in task.read_text(encoding="ascii").split()}


def test_an_unknown_case_is_refused_with_the_names_there_are() -> None:
    result = CliRunner().invoke(app, ["sqlite-65"])
    assert result.exit_code == 2
    assert "sqlite-64" in result.output
