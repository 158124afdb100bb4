"""An app of this machine, served for the time of a run by a process of its own, on a free port of the loopback.

What always holds: the port is taken before the process starts, so nobody else can get it; the process ends with the
run, and by itself if the run is killed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Literal

from semel_lab.conform.http_client import Answer, Request, Wire
from semel_lab.conform.report import described
from semel_lab.conform.target import TargetInvalid, Unreachable

Kind = Literal["asgi", "wsgi"]

_BACKLOG: Final = 128
_TO_START: Final = 60.0
_TO_STOP: Final = 10.0


@contextmanager
def served(kind: Kind, name: str, log: Path | None = None) -> Iterator[str]:
    """Serve `module:app` and give its URL; what the app prints goes to `log`.

    Raises:
        TargetInvalid: it cannot be imported or started; the message says what it said.
        Unreachable: it does not answer.
    """
    with tempfile.TemporaryFile() if log is None else _log(log) as output:
        process, port = _start(kind, name, output)
        try:
            _await(process, port, name, output)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


def _log(path: Path) -> IO[bytes]:
    try:
        return path.open("w+b")
    except OSError as error:
        message = f"The log cannot be written to {path}: {error.strerror}; nothing was run."
        raise TargetInvalid(message) from error


def _start(kind: Kind, name: str, output: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        place = listener.fileno()
        process = subprocess.Popen(  # noqa: S603 - our own module, under our own Python
            [sys.executable, "-m", "semel_lab.conform.server_process", kind, name, str(place)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(place,),
        )
        return process, int(listener.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, name: str, output: IO[bytes]) -> None:
    # The port listens already, so the first request simply waits until the app is there; if it dies, so does the port.
    reply = Wire("127.0.0.1", port, timeout=_TO_START).exchange(Request("OPTIONS", "/"))
    if isinstance(reply, Answer):
        return
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        message = f"The app {name} does not answer: {described(reply)}; nothing was run."
        raise Unreachable(message) from None
    output.seek(0)
    said = output.read().decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    message = f"The app {name} cannot be served: {said[-1]}; nothing was run."
    raise TargetInvalid(message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()
