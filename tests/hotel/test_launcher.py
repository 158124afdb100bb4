"""The launcher: one command that starts everything, and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.servers import server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds, for a loaded machine


@dataclass
class Launched:
    process: subprocess.Popen[str]
    address: str
    said: list[str]

    def children(self) -> dict[int, str]:
        """The processes it has started, and what they run."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid): Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in listed}

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """How it ends on a signal, and what it says to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@contextmanager
def launched(folder: Path, *arguments: str) -> Iterator[Launched]:
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.hotel", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOTEL_LEASE_FOR": str(PATIENCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(5)]
        address = re.search(r"http://\S+", said[0])
        assert address, process.stderr.read() if process.stderr else ""
        yield Launched(process, address[0], said)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def free_port() -> str:
    # Not one of those that connections of other processes are given: it has to be free still when the hotel asks.
    return str(server.free_port())


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _book(address: str) -> dict[str, object]:
    """A guest from the first page to the last."""
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        client.post("/sign-in", json={"name": "Ada"}).raise_for_status()
        today = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86_400))
        tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86_400))
        stay = {"hotel_id": "H1", "room_type": "double", "check_in": today, "check_out": tomorrow}
        draft = client.post("/reservations", json=stay, headers={"Idempotency-Key": "r"})
        path = draft.headers["location"]
        client.post(f"{path}/confirm-details", json={"guest_name": "Ada", "email": "a@b"}).raise_for_status()
        paid = client.post(f"{path}/pay", json={"card": "tok_ok"}, headers={"Payment-Idempotency-Key": "p"})
        return dict(paid.json())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_stops_cleanly(tmp_path: Path, free_port: str, number: signal.Signals) -> None:
    with launched(tmp_path, "--port", free_port, "--workers", "2") as hotel:
        assert hotel.address == f"http://127.0.0.1:{free_port}"
        assert _book(hotel.address)["status"] == "CONFIRMED"
        children = hotel.children()
        assert len(children) == 3
        assert hotel.end(number) == (0, "")
        assert all(_is_gone(pid) for pid in children)
    assert (tmp_path / ".hotel" / ".gitignore").read_text() == "*\n"


def test_what_was_booked_is_there_after_a_restart(tmp_path: Path, free_port: str) -> None:
    for number in ("R001", "R002"):
        with launched(tmp_path, "--port", free_port) as hotel:
            assert _book(hotel.address)["id"] == number


def test_its_children_end_when_it_is_killed(tmp_path: Path, free_port: str) -> None:
    with launched(tmp_path, "--port", free_port) as hotel:
        children = hotel.children()
        hotel.process.kill()
        _until(lambda: all(_is_gone(pid) for pid in children))


def test_a_child_that_dies_is_started_again(tmp_path: Path, free_port: str) -> None:
    with launched(tmp_path, "--port", free_port) as hotel:
        before = hotel.children()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert hotel.process.stdout is not None
        assert "started again" in hotel.process.stdout.readline()
        _until(lambda: len(hotel.children().keys() - before.keys()) == len(before))
        assert _book(hotel.address)["status"] == "CONFIRMED"
        assert hotel.end(signal.SIGINT) == (0, "")


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with launched(tmp_path, "--port", str(port)) as hotel:
            assert hotel.address != f"http://127.0.0.1:{port}"
            assert f"Port {port} is taken" in hotel.said[-1]
            assert httpx.get(f"{hotel.address}/health", timeout=PATIENCE).status_code == 204


def test_a_database_that_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none/hotel.db"
    ended = subprocess.run(
        [sys.executable, "-m", "examples.hotel", "--database", url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert ended.stderr.startswith("The hotel did not start: ")
