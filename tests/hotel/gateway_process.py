"""The payment gateway as a process that tests start, kill and start again on the same port.

What always holds: the port stays reserved while the gateway is down, so callers are refused and nobody else gets it;
the gateway ends with the test, even if the test run is killed.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

ROOT = Path(__file__).parents[2]
BODY = {"amount": "240.00", "currency": "EUR", "card": "tok_ok", "reference": "R001"}
PATIENCE = 120.0  # for a loaded machine; what is waited for comes at once or never


class GatewayProcess:
    """`with GatewayProcess(tmp_path / "ledger") as gateway`: a gateway that is up, at `gateway.url`."""

    def __init__(self, ledger_file: Path, *options: str) -> None:
        self.ledger_file = ledger_file
        self.log_file = ledger_file.with_name(f"{ledger_file.name}.log")
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._options = options
        self._port = 0
        self._write_end = -1
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        # Bound and never listening: Linux lets the gateway bind the port beside it, because both reuse the address.
        reserved = self._kept.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        self._port = reserved.getsockname()[1]
        try:
            self.start()
        except BaseException:
            self._kept.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._kept.close()

    def start(self) -> None:
        """Start it, if it is not running."""
        if self.running:
            return
        self.kill()
        read_end, self._write_end = os.pipe()
        try:
            with self.log_file.open("ab") as log:
                self.process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "examples.hotel.gateway"),
                        *("--port", str(self._port), "--ledger", str(self.ledger_file)),
                        *("--parent-fd", str(read_end), *self._options),
                    ],
                    cwd=ROOT,
                    pass_fds=[read_end],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        finally:
            os.close(read_end)
        try:
            self.url = self._first_line()
        except BaseException:
            self.kill()
            raise

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it with SIGKILL, if it is running, and wait until it is gone."""
        if self.process is None:
            return
        self.process.kill()
        self._collect()

    def stop(self) -> int:
        """End it with SIGTERM; the exit code."""
        return self._ended_by(lambda process: process.send_signal(signal.SIGTERM))

    def leave(self) -> int:
        """End the pipe that stands for the parent; the exit code."""
        return self._ended_by(lambda process: self._close_pipe())

    def wait(self) -> int:
        """Wait until it has ended by itself; the exit code."""
        return self._ended_by(lambda process: None)

    def restart(self) -> None:
        """Kill it and start it on the same port with the same ledger. Faults are forgotten."""
        self.kill()
        self.start()

    def ledger(self) -> list[dict[str, Any]]:
        """Every line of the ledger that is complete."""
        *lines, _ = self.ledger_file.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines]

    def events(self, key: str) -> list[str]:
        """What the ledger says happened under `key`, in order."""
        return [line["event"] for line in self.ledger() if line["key"] == key]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request on a connection of its own."""
        return httpx.request(method, self.url + path, timeout=PATIENCE, trust_env=False, **options)

    def charge(self, key: str | None, **changed: object) -> httpx.Response:
        """Ask for `BODY` with some fields changed."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.ask("POST", "/charges", json={**BODY, **changed}, headers=headers)

    def find(self, key: str) -> httpx.Response:
        """Ask where `key` stands."""
        return self.ask("GET", f"/charges/{key}")

    def refund(self, key: str) -> httpx.Response:
        """Give the money back, or close the key."""
        return self.ask("POST", f"/charges/{key}/refund")

    def log(self) -> str:
        """What it has written to stderr, over all starts."""
        return self.log_file.read_text(errors="replace")

    def faults(self, **wanted: float) -> dict[str, float]:
        """Set the faults that are named; all of them as they are now."""
        answer = self.ask("POST", "/faults", json=wanted)
        answer.raise_for_status()
        faults: dict[str, float] = answer.json()
        return faults

    def wait_for_charges(self, number: int) -> None:
        """Wait until so many charges are under way; set a delay first, which holds them there."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.faults()["under_way"]) != number:
            assert time.monotonic() < deadline, f"{found} charges are under way, not {number}"
            time.sleep(0.01)

    def _ended_by(self, action: Callable[[subprocess.Popen[bytes]], None]) -> int:
        assert self.process is not None, "the gateway is not running"
        action(self.process)
        code = self.process.wait(PATIENCE)
        self._collect()
        return code

    def _collect(self) -> None:
        assert self.process is not None
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._close_pipe()
        self.process = None

    def _close_pipe(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline().decode().strip() if ready else ""
        assert line.startswith("http://"), f"the gateway did not start: {self.log()}"
        return line
