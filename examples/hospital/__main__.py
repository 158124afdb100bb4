"""`python -m examples.hospital`: insurer, books, workers and pages as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from examples.hospital.instances import Instances
from examples.hospital.settings import Settings
from examples.hotel.children import Child, DidNotStart
from examples.hotel.launching import greet, listen, make_folder, run_until_stopped, start_all, watched_pipe
from semel.errors import SemelError

TRY = (
    "Start a claim, and start it again: one claim at the insurer, one payment in the books.",
    "Kill the worker while a task runs: the next one goes on, and nothing is done twice.",
    "Lose the insurer's reply, then start a claim: nobody knows, and it is asked again under the same key.",
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    port: int
    workers: int
    database: str | None
    delay: float


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.hospital", description="A claim that is submitted once.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument("--workers", type=int, default=1, help="how many processes that run claims")
    parser.add_argument("--database", help="sqlite:///hospital.db or postgresql://…; a file in .hospital/ by default")
    parser.add_argument("--delay", type=float, default=2.0, help="seconds that insurer and books take to answer")
    try:
        asyncio.run(run_until_stopped(_run(Options(**vars(parser.parse_args())))))
    except (DidNotStart, OSError, ValueError, SQLAlchemyError, SemelError) as error:
        sys.exit(f"The hospital did not start: {error}")


async def _run(options: Options) -> None:
    folder = make_folder(".hospital")
    with listen(options.port) as pages, listen(0) as insurer, listen(0) as books:
        url = options.database or os.environ.get("HOSPITAL_DATABASE") or f"sqlite:///{folder / 'hospital.db'}"
        settings = Settings(url, _address(insurer), _address(books), folder / "codes.db")
        instances = Instances(url)
        try:
            instances.create_tables()
        finally:
            instances.close()
        await _supervise(options, settings, folder, (pages, insurer, books))


async def _supervise(
    options: Options, settings: Settings, folder: Path, sockets: tuple[socket.socket, socket.socket, socket.socket]
) -> None:
    variables = {"SEMEL_POLICY__LEASE_FOR": "PT5S", **settings.to_environment(), "DELAY": str(options.delay)}
    names = ("serving", "outside.insurer", "outside.books")
    async with watched_pipe() as (watched, stack):
        servers = []
        for name, listener in zip(names, sockets, strict=True):
            fd, own = listener.fileno(), {**variables, "LEDGER": str(folder / f"{name}.db")}
            servers.append(Child(f"examples.hospital.{name}", "--fd", str(fd), pipe=watched, fds=[fd], variables=own))
        workers = [
            Child("examples.hospital.working", "--name", f"worker-{number}", pipe=watched, variables=variables)
            for number in range(1, options.workers + 1)
        ]
        await start_all([*servers, *workers], stack)
        greet("The hospital is open at", sockets[0].getsockname()[1], options.port, TRY)
        await asyncio.gather(*(child.keep() for child in (*servers, *workers)))


def _address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    main()
