"""Workers, and the whole service, are killed in the middle of a bulk; in the end each payment was charged once."""

import asyncio
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.effort import FULL
from tests.payments.killing import ROOT, working
from tests.payments.till import Till, as_csv, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE = 120.0  # seconds, for a loaded machine
COUNT = 200 if FULL else 30


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.anyio
@pytest.mark.parametrize("any_database", ["postgresql", "sqlite"] if FULL else ["postgresql"], indirect=True)
@pytest.mark.parametrize("some_are_charged", [True, False] if FULL else [True])
async def test_a_worker_that_is_killed_leaves_nothing_paid_twice(any_till: Till, some_are_charged: bool) -> None:
    shop, gateway = await any_till.shop(), any_till.gateway
    address = await shop.bulk(rows(COUNT))
    gateway.faults(delay=600)
    with working(any_till.settings):
        await asyncio.to_thread(gateway.process.wait_for_charges, any_till.settings.concurrency)
        if some_are_charged:
            # These are made, and it learns of some of them; the next ones are held, so that it cannot finish.
            gateway.faults(delay=0)
            gateway.faults(delay=600)
            await _until(lambda: bool(any_till.charges()))
    gateway.faults(delay=0)
    await asyncio.to_thread(gateway.process.wait_for_charges, 0)
    await any_till.end_leases()
    assert (await shop.get(address))["state"] == "running"
    await any_till.run_bulks()
    told = await shop.get(address)
    assert (told["state"], told["completed"]) == ("completed", COUNT)
    assert sorted(any_till.charges().values()) == [1] * COUNT


class Service:
    """All of it, as `python -m examples.payments` starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / ".payments" / "payments.db"
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        variables = {"PYTHONPATH": str(ROOT), "PAYMENTS_LEASE_FOR": str(PATIENCE), "PAYMENTS_POLL_EVERY": "0.2"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.payments", "--port", "8100"],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found
        self.address = found[0]

    def kill(self) -> None:
        """SIGKILL for each process: nobody can let anything end."""
        process, self.process = self.process, None
        if process is None:
            return
        children = self._children(process.pid)
        os.kill(process.pid, signal.SIGSTOP)  # so that it starts none of them again
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate(timeout=PATIENCE)
        self._end_leases()

    def kill_worker(self) -> None:
        """SIGKILL for the worker alone; the launcher starts another one."""
        assert self.process is not None
        children = self._children(self.process.pid)
        (worker,) = (pid for pid, command in children.items() if "examples.payments.working" in command)
        os.kill(worker, signal.SIGKILL)
        assert self.process.stdout is not None
        while "started again" not in self.process.stdout.readline():
            pass
        self._end_leases()

    @staticmethod
    def _children(pid: int) -> dict[int, str]:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {int(one): Path(f"/proc/{one}/cmdline").read_text() for one in listed}

    def _end_leases(self) -> None:
        if self.database.exists():
            with sqlite3.connect(self.database, timeout=PATIENCE) as connection:
                connection.execute("UPDATE semel_record SET lease_us = created_us WHERE status = 'running'")
            connection.close()

    def charges(self) -> Counter[str]:
        """How often each payment was charged."""
        lines = (self.folder / ".payments" / "ledger.jsonl").read_text().splitlines()
        return Counter(re.findall(r'"event": "charged".*"reference": "(\w+)"', "\n".join(lines)))


@contextmanager
def service_in(folder: Path) -> Iterator[Service]:
    service = Service(folder)
    try:
        service.start()
        yield service
    finally:
        service.kill()


def _wait(client: httpx.Client, path: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while not condition(told := client.get(path, headers={"Accept": "application/json"}).json()):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    found: dict[str, Any] = told
    return found


def test_a_service_whose_processes_are_killed_pays_each_line_once(tmp_path: Path) -> None:
    count = 300 if FULL else 40
    with service_in(tmp_path) as service, httpx.Client(timeout=PATIENCE) as client:
        client.post(f"{service.address}/sign-in", data={"name": "Shop"})
        headers = {"Idempotency-Key": "k", "Content-Type": "text/csv"}
        # The last of them are slow, so that there is something left when it is killed.
        file = as_csv([*rows(count - 4), *((f"slow-{n}", "1.00", "c", "tok_slow") for n in range(4))])
        sent = client.post(f"{service.address}/bulk", content=file, headers=headers)
        path = sent.headers["location"]
        for number in range(6 if FULL else 1):
            before = client.get(service.address + path, headers={"Accept": "application/json"}).json()["completed"]
            goal = min(before + random.randint(1, 20), count)  # a slow machine may not look before most are paid
            _wait(client, service.address + path, lambda told, goal=goal: told["completed"] >= goal)  # type: ignore[misc]
            if number % 2 == 0:
                service.kill_worker()
            else:
                service.kill()
                service.start()
        told = _wait(client, service.address + path, lambda told: told["state"] == "completed")
        # The file is sent again, as somebody does who has seen it fall over.
        again = client.post(f"{service.address}/bulk", content=file, headers=headers)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
        assert told["completed"] == count
    assert sorted(service.charges().values()) == [1] * count
