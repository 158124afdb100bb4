"""Programs that fault tests run as processes of their own: `python -m tests.faults.sqlite.programs NAME ARGUMENTS`."""

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from semel.core.key import Key
from semel.core.operations import (
    Answer,
    Claim,
    Complete,
    Found,
    Granted,
    Operation,
    Purge,
    Read,
    Recorded,
    SweepCount,
    Terms,
)
from semel.core.record import About
from semel.errors import StoreUnavailable
from semel.stores.sqlite import SqliteStore, database
from semel.stores.sqlite.driver import SqliteDriver

TERMS = Terms(60_000_000, 3_600_000_000, "rerun", 0)


def claim(value: str) -> Claim:
    return Claim(Key.of(value, operation="charge"), b"f", os.urandom(16), TERMS, About())


class User:
    """A store and a driver, asked for one operation at a time."""

    def __init__(self, path: str, **settings: object) -> None:
        self.store = SqliteStore(path, **settings)  # type: ignore[arg-type]
        self.driver: SqliteDriver = self.store.driver()

    def ask(self, operation: Operation) -> Answer:
        (reply,) = self.driver.perform([self.store.plan([operation], joined=False)])
        if isinstance(reply, Exception):
            raise reply
        (answer,) = reply
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_once(self, value: str) -> bool:
        """Claim and complete; whether this call was the one that ran."""
        granted = self.ask(claim(value))
        if not isinstance(granted, Granted):
            return False
        assert isinstance(self.ask(Complete(granted.lease, b"done")), Recorded)
        return True

    def knows(self, value: str) -> bool:
        found = self.ask(Read(Key.of(value, operation="charge").digest))
        assert isinstance(found, Found)
        return found.record is not None


def contend(path: str, count: str) -> None:
    """Run keys that others run too; prints those this process won."""
    user = User(path)
    sys.stdin.readline()  # all start together
    for index in range(int(count)):
        if user.run_once(f"shared-{index}"):
            print(f"shared-{index}")
    user.driver.close()


def write_once(path: str, value: str) -> None:
    """Run one key and leave, as the last connection that closes the file."""
    user = User(path)
    user.run_once(value)
    user.driver.close()


def purge(path: str, limit: str) -> None:
    """Delete what is expired, batch after batch; prints each."""
    user = User(path)
    while (swept := user.ask(Purge(int(limit)))) != SweepCount(0):
        print(swept, flush=True)
    user.driver.close()


def fork_no_connection(path: str) -> None:
    """No connection is open in the child until it opens its own, and both go on."""
    user = User(path)
    assert user.run_once("before")

    def child() -> None:
        opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
        assert not [name for name in opened if name.startswith(path)], opened
        assert user.run_once("child")
        assert not user.run_once("before")
        assert _locks_held(os.getpid())

    _wait(_fork(child))
    assert user.run_once("parent")
    assert not user.run_once("child")


def fork_one_runner(path: str) -> None:
    """Parent and child ask for the same keys through a driver made before the fork: each key runs once."""
    user = User(path)
    user.knows("x")
    reader, writer = os.pipe()

    def work() -> None:
        for index in range(50):
            if user.run_once(f"k-{index}"):
                os.write(writer, b"%d\n" % index)

    pid = _fork(work)
    work()
    _wait(pid)
    os.close(writer)
    ran = os.read(reader, 100_000).split()
    assert sorted(map(int, ran)) == list(range(50)), ran


def fork_during_a_round(path: str) -> None:
    """A fork waits for the round of another thread; then child and parent both work."""
    inside, leave = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread().name == "busy":
            inside.set()
            leave.wait()
        return 1_700_000_000_000_000

    user = User(path, clock=clock)
    user.knows("x")
    thread = threading.Thread(target=user.run_once, args=("thread",), name="busy")
    thread.start()
    inside.wait()
    os.register_at_fork(before=leave.set)  # runs before the store's own hook, which then waits for the round to end

    def child() -> None:
        assert user.run_once("child")

    _wait(_fork(child))
    thread.join()
    assert user.knows("thread")
    assert user.knows("child")


def fork_during_a_round_that_does_not_end(path: str) -> None:
    """A fork does not wait for ever, and the child answers instead of waiting for a lock that nobody holds there."""
    database._FORK_WAIT = 0.05  # type: ignore[misc]
    inside, leave = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread().name == "busy":
            inside.set()
            leave.wait()
        return 1_700_000_000_000_000

    user = User(path, clock=clock, busy_for=timedelta(milliseconds=50))
    user.knows("x")
    thread = threading.Thread(target=user.run_once, args=("thread",), name="busy")
    thread.start()
    inside.wait()

    def child() -> None:
        with suppress(StoreUnavailable):
            user.run_once("child")

    _wait(_fork(child))
    leave.set()
    thread.join()
    assert user.run_once("parent")
    assert user.knows("thread")


def fork_that_outlives_its_parent(path: str) -> None:
    """The child holds locks of its own: a stranger who opens and closes the file does not take its log away."""
    user = User(path)
    user.run_once("before")
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()

    def child() -> None:
        assert user.run_once("child-1")
        os.write(from_child, b"open")
        os.read(to_child, 4)  # the parent has closed, a stranger was here
        assert user.run_once("child-2")

    pid = _fork(child)
    os.read(to_parent, 4)
    user.driver.close()
    subprocess.run([sys.executable, "-m", "tests.faults.sqlite.programs", "write_once", path, "stranger"], check=True)
    os.write(from_parent, b"go on")
    _wait(pid)
    for value in ("before", "child-1", "stranger", "child-2"):
        assert user.knows(value), value


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stderr.flush()
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
    return pid


def _wait(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"


def _locks_held(pid: int) -> list[str]:
    return [line for line in Path("/proc/locks").read_text().splitlines() if f" {pid} " in line]


def main(name: str, path: str, *arguments: str) -> None:
    globals()[name](path, *arguments)
    if name.startswith("fork"):
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
