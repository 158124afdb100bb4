"""`python -m examples.hotel`: the gateway and the servers as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from examples.hotel.children import Child, DidNotStart
from examples.hotel.parts import opened
from examples.hotel.sample import add_sample
from examples.hotel.settings import Settings
from semel.errors import SemelError

HOST = "127.0.0.1"
TRY = (
    "Double-click on Reserve, or on Pay, as fast as you like: there is one reservation, and one charge.",
    "Refresh, go back, close the tab in the middle of a payment, and come back: it goes on where it was.",
    "Switch the bad network on, so that answers get lost on the way: nothing happens twice.",
)


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.hotel", description="A hotel that cannot oversell.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument("--workers", type=int, default=1, help="how many server processes")
    parser.add_argument(
        "--database", help="sqlite:///hotel.db, postgresql://… or mysql://…; a file in .hotel/ by default"
    )
    options = parser.parse_args()
    try:
        asyncio.run(_until_stopped(options))
    except (DidNotStart, OSError, ValueError, SQLAlchemyError, SemelError) as error:
        sys.exit(f"The hotel did not start: {error}")


async def _until_stopped(options: argparse.Namespace) -> None:
    running = asyncio.create_task(_run(options.port, options.workers, options.database))
    stopped: list[bool] = []

    def stop() -> None:
        stopped.append(True)
        running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        if not stopped:
            raise
        print("Stopped.", flush=True)


async def _run(port: int, workers: int, database: str | None) -> None:
    folder = _folder()
    settings = Settings.from_environment()
    url = database or os.environ.get("HOTEL_DATABASE") or f"sqlite:///{folder / 'hotel.db'}"
    async with opened(replace(settings, database=url)) as parts:
        await parts.prepare()
        await add_sample(parts.database, settings.clock)
    with _listen(port) as listener:
        await _supervise(listener, folder / "ledger.jsonl", workers, url, asked_for=port)


def _folder() -> Path:
    folder = Path.cwd() / ".hotel"
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def _listen(port: int) -> socket.socket:
    for candidate in range(port, min(port + 100, 65536)):
        try:
            listener = socket.create_server((HOST, candidate), backlog=512)
        except OSError:
            continue
        # Said before the servers inherit it: otherwise every answer may wait 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    raise OSError(f"no port from {port} on is free; choose another one with --port.")


async def _supervise(listener: socket.socket, ledger: Path, workers: int, url: str, *, asked_for: int) -> None:
    watched, held = os.pipe()  # the children watch one end; the other closes with this process, whatever ends it
    async with AsyncExitStack() as stack:
        stack.callback(os.close, held)
        stack.callback(os.close, watched)
        gateway = Child("examples.hotel.gateway", "--ledger", str(ledger), pipe=watched)
        stack.push_async_callback(gateway.stop)
        address = await gateway.start()
        gateway.arguments += ["--port", address.rpartition(":")[2]]  # where it is found again after it died

        variables = {"HOTEL_DATABASE": url, "HOTEL_GATEWAY": address}
        fd = listener.fileno()
        servers = [
            Child("examples.hotel.serving", "--fd", str(fd), pipe=watched, fds=[fd], variables=variables)
            for _ in range(workers)
        ]
        for server in servers:
            stack.push_async_callback(server.stop)
        await asyncio.gather(*(server.start() for server in servers))
        _greet(listener.getsockname()[1], asked_for)
        await asyncio.gather(*(child.keep() for child in (gateway, *servers)))


def _greet(port: int, asked_for: int) -> None:
    address = f"http://{HOST}:{port}"
    other = "" if port == asked_for else f"Port {asked_for} is taken, so this is port {port}. "
    lines = (*TRY, f"{other}Ctrl-C stops everything.")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.padding import Padding

        console = Console(highlight=False)
        console.print(f"\n  The hotel is open at [bold cyan link={address}]{address}[/]\n")
        for line in lines:
            console.print(Padding(line, (0, 2)), style="dim")
        console.print()
    else:
        print(f"The hotel is open at {address}", *lines, sep="\n", flush=True)


if __name__ == "__main__":
    main()
