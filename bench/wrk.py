"""wrk, a load generator: 64 connections to one uvicorn process, and what it counted.

What always holds: an answer that is not 2xx is an error of the measurement, never a fast answer.
"""

from __future__ import annotations

import os
import re
import shutil
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
  return wrk.format("POST", "/payments", headers, '{"amount": 10, "currency": "EUR"}')
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

    def seconds_per_request(self, kind: Kind, *, keys: int, seconds: float) -> float:
        """Put it under load for a while.

        Raises:
            RuntimeError: not every answer was 2xx.
        """
        self.turns += 1
        named = {"KIND": f'"{kind}"', "KEYS": str(keys), "STEM": f'"{self.port}-{self.turns}"'}
        script = self.folder / f"wrk-{self.port}.lua"
        script.write_text("\n".join(f"{name} = {value}" for name, value in named.items()) + _SCRIPT)
        command = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{max(1, round(seconds))}s", "-s", str(script)]
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{self.port}/payments"], capture_output=True, text=True, check=True
        )
        if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
            raise RuntimeError(f"not every answer was 2xx:\n{done.stdout}")
        found = re.search(r"Requests/sec:\s+([0-9.]+)", done.stdout)
        assert found, done.stdout
        return 1 / float(found.group(1))


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
