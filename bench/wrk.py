"""wrk, a load generator: 64 connections to one uvicorn process, and what it counted.

What always holds: an answer that is not 2xx is an error of the measurement, never a fast answer.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Literal

from bench.site import Unavailable

CONNECTIONS = 64
Kind = Literal["first", "replay", "get"]
_LOAD = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", "10m"]
_SHORTEST = 0.2
"""Seconds; no load is shorter."""

_CREATED = 201
_BODY = '{"amount": 10, "currency": "EUR"}'
_SCRIPT = """
local thread_number = 0
function setup(thread) thread:set("number", thread_number); thread_number = thread_number + 1 end
local sent = 0
local headers = { ["Content-Type"] = "application/json" }
function request()
  sent = sent + 1
  if KIND == "get" then return wrk.format("GET", "/payments") end
  if KIND == "replay" then headers["Idempotency-Key"] = "replay-" .. (sent % KEYS)
  else headers["Idempotency-Key"] = STEM .. "-" .. number .. "-" .. sent end
  return wrk.format("POST", "/payments", headers, BODY)
end
"""


@dataclass
class Server:
    """A uvicorn that is up."""

    port: int
    folder: Path
    turns: int = 0

    def answers(self) -> None:
        """Wait until it answers: the socket takes connections before the server is there."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/payments")
        connection.getresponse().read()
        connection.close()

    def complete(self, keys: int) -> None:
        """Have every key that is replayed later completed: one after the other, so that none is cut off half-way.

        Raises:
            RuntimeError: not every answer was 2xx.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        for number in range(keys):
            headers = {"Content-Type": "application/json", "Idempotency-Key": f"replay-{number}"}
            connection.request("POST", "/payments", _BODY, headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status != _CREATED:
                raise RuntimeError(f"not every answer was 2xx: {answer.status} {told!r}")
        connection.close()

    def seconds_per_request(self, kind: Kind, *, keys: int, seconds: float) -> float:
        """Put it under load for a while.

        Raises:
            RuntimeError: not every answer was 2xx.
        """
        self.turns += 1
        named = {"KIND": f'"{kind}"', "KEYS": str(keys), "STEM": f'"{self.port}-{self.turns}"', "BODY": f"'{_BODY}'"}
        script = self.folder / f"wrk-{self.port}.lua"
        script.write_text("\n".join(f"{name} = {value}" for name, value in named.items()) + _SCRIPT)
        command = [*_LOAD, "-s", str(script), f"http://127.0.0.1:{self.port}/payments"]
        rate, lasting = 0.0, max(seconds, _SHORTEST)
        while not rate:  # on a busy machine a moment may be too short for any answer
            rate, lasting = _rate(_told(command, lasting)), 2 * lasting
        return 1 / rate


def _rate(told: str) -> float:
    """Requests in a second."""
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(f"not every answer was 2xx:\n{told}")
    found = re.search(r"Requests/sec:\s+([0-9.]+)", told)
    assert found, told
    return float(found.group(1))


def _told(command: list[str], seconds: float) -> str:
    """What wrk counted in so long a time. It knows whole seconds alone; interrupted, it tells what it has so far."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as wrk:
        try:
            told, _ = wrk.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            wrk.send_signal(signal.SIGINT)
            told, _ = wrk.communicate()
        assert not wrk.returncode, told
        return told


@contextmanager
def serving(which: str, store: str, folder: Path) -> Iterator[Server]:
    """One uvicorn process with the application."""
    if shutil.which("wrk") is None:
        raise Unavailable("wrk is not installed; it comes with the system's packages (apt-get install wrk).")
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    # uvicorn takes a socket that it is given for a local one and leaves Nagle's algorithm on: 40 ms an answer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    descriptor = listener.fileno()
    arguments = ["bench.http_app:app", "--fd", str(descriptor), "--log-level", "error", "--no-access-log"]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *arguments],
        env={**os.environ, "BENCH_HTTP": which, "BENCH_STORE": store},
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
    )
    try:
        running = Server(listener.getsockname()[1], folder)
        running.answers()
        yield running
    finally:
        process.terminate()
        process.wait()
        listener.close()
