"""F48, F49: several processes on one file. Each key runs once, and no busy error escapes."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from semel.core.operations import Granted
from semel.core.store import Plan
from semel.stores.sqlite import SqliteStore
from tests.faults.sqlite.processes import run, start
from tests.faults.sqlite.programs import claim


def test_what_another_process_writes_after_our_look_does_not_fail_our_write(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    store = SqliteStore(path)
    driver = store.driver()

    def overtaken(plan: Plan) -> Plan:
        look = yield next(plan)
        run("write_once", path, "somebody-else")
        return (yield from _rest(plan, plan.send(look)))

    (reply,) = driver.perform([overtaken(store.plan([claim("mine")], joined=False))])
    driver.close()
    assert isinstance(reply, list)
    assert isinstance(reply[0], Granted)


def _rest(plan: Plan, command: object) -> Plan:
    while True:
        try:
            command = plan.send((yield command))
        except StopIteration as stop:
            return list(stop.value)


@pytest.mark.slow
def test_four_processes_run_each_key_once_and_none_sees_a_busy_error(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    processes = [start("contend", path, 150, stdin=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ran: Counter[str] = Counter()
    for process in processes:
        printed, complained = process.communicate(timeout=100)
        assert process.returncode == 0, complained
        ran.update(printed.split())
    assert ran == Counter({f"shared-{index}": 1 for index in range(150)})


def test_processes_that_open_a_new_file_together_agree_on_one_schema(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    processes = [start("write_once", path, f"first-{number}") for number in range(4)]
    for process in processes:
        _, complained = process.communicate(timeout=60)
        assert process.returncode == 0, complained
    store = SqliteStore(path, migrate=False)
    driver = store.driver()
    (reply,) = driver.perform([store.plan([claim("after")], joined=False)])
    driver.close()
    assert isinstance(reply, list)
    assert isinstance(reply[0], Granted)
