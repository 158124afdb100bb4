"""The pool of processes under the simulator: however a run ends, none of its processes is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from semel_lab.simulate.verify import PieceFailed, WorkerDied, WorkerPool
from tests.processes import child, group_members
from tests.simulate import pool_tasks

ROOT = Path(__file__).parents[2]
LONGEST = 60.0


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def until(question: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST
    while not question():
        assert time.monotonic() < deadline, f"not within {LONGEST} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def working() -> Iterator[tuple[WorkerPool, set[int]]]:
    """A pool, and its processes."""
    with WorkerPool(2) as pool:
        yield pool, set(pool.results([pool_tasks.process_id] * 20))


def test_the_work_is_done_by_other_processes(working: tuple[WorkerPool, set[int]]) -> None:
    _, processes = working
    assert processes
    assert os.getpid() not in processes


def test_without_workers_the_work_is_done_in_this_process() -> None:
    with WorkerPool(0) as pool:
        assert list(pool.results([pool_tasks.process_id] * 3)) == [os.getpid()] * 3


def test_each_piece_is_done_once(working: tuple[WorkerPool, set[int]]) -> None:
    pool, _ = working
    assert len(list(pool.results([pool_tasks.process_id] * 50))) == 50


def test_a_closed_pool_begins_nothing_more() -> None:
    for workers in (0, 1):
        with WorkerPool(workers) as pool:
            results = pool.results([pool_tasks.process_id] * 3)
            next(results)
            pool.close()
            assert list(results) == [], f"{workers} workers went on after the pool was closed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_leaves_the_pool_ends_work_that_would_go_on_for_ever(error: type[BaseException]) -> None:
    processes: set[int] = set()

    def leave_in_the_middle() -> None:
        with WorkerPool(2) as pool:
            processes.update(pool.results([pool_tasks.process_id] * 20))
            results = pool.results([pool_tasks.process_id, pool_tasks.work_for_ever])
            next(results)
            raise error

    with pytest.raises(error):
        leave_in_the_middle()
    assert processes
    assert [process for process in processes if is_alive(process)] == []


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (pool_tasks.fail, "ZeroDivisionError: by nothing"),
        (pool_tasks.fail_unpicklably, "Unpicklable: only one argument"),
    ],
)
def test_an_error_of_a_piece_comes_through_with_its_traceback(piece: Callable[[], int], text: str) -> None:
    with WorkerPool(1) as pool, pytest.raises(PieceFailed, match=text) as raised:
        list(pool.results([piece]))
    assert "pool_tasks.py" in str(raised.value)


def test_a_process_that_dies_in_its_piece_is_an_error() -> None:
    with WorkerPool(2) as pool, pytest.raises(WorkerDied, match="exit code 3"):
        list(pool.results([pool_tasks.die, pool_tasks.work_for_ever]))


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_one_that_started_it(ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.simulate.pool_tasks"]
    with child(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("["), process.stderr.read()
        until(lambda: len(group_members(process.pid)) > 1, "the processes of the pool are there")
        process.send_signal(ending)
        process.wait(LONGEST)
        until(lambda: group_members(process.pid) == {}, f"all processes ended after {ending.name}")
