"""What launchers share: one command that starts processes, says where they answer, and stops them on Ctrl-C."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.launching.children import Child

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Supervision:
    """What children are started with.

    Attributes:
        watched: the end of a pipe that they watch; the other end closes with this process.
        stack: ends what was started, the latest first.
    """

    watched: int
    stack: AsyncExitStack


async def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` until it ends, or until a signal says to stop."""
    running = asyncio.create_task(work)
    stopped: list[bool] = []

    def stop() -> None:
        if not stopped:  # the second Ctrl-C of an impatient person must not cut off what the first one ends
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


def make_folder(name: str) -> Path:
    """A folder for what is kept here, which git does not see."""
    folder = Path.cwd() / name
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder


def listen(port: int) -> socket.socket:
    """A socket on that port, or on the next one that is free."""
    for candidate in range(port, min(port + 100, 65536)):
        try:
            listener = socket.create_server((HOST, candidate), backlog=512)
        except OSError:
            continue
        # Said before the servers inherit it: otherwise every answer may wait 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    raise OSError(f"no port from {port} on is free; choose another one with --port.")


@asynccontextmanager
async def supervise() -> AsyncIterator[Supervision]:
    """What children are started with; when this is left, they have ended."""
    watched, held = os.pipe()
    async with AsyncExitStack() as stack:
        stack.callback(os.close, held)
        stack.callback(os.close, watched)
        yield Supervision(watched, stack)


async def start_all(children: Sequence[Child], supervision: Supervision) -> None:
    """Start children side by side; they are stopped with the supervision."""
    for child in children:
        supervision.stack.push_async_callback(child.stop)
    await asyncio.gather(*(child.start() for child in children))


async def keep_all(children: Sequence[Child]) -> None:
    """Start each of them again whenever it ends, until cancelled."""
    await asyncio.gather(*(child.keep() for child in children))


def address_of(listener: socket.socket) -> str:
    """Where whoever serves on a socket answers."""
    return f"http://{HOST}:{listener.getsockname()[1]}"


def greet(what: str, port: int, asked_for: int, lines: Sequence[str]) -> None:
    """Say where it answers, and what to do there."""
    address = f"http://{HOST}:{port}"
    other = "" if port == asked_for else f"Port {asked_for} is taken, so this is port {port}. "
    lines = (*lines, f"{other}Ctrl-C stops everything.")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.padding import Padding

        console = Console(highlight=False)
        console.print(f"\n  {what} [bold cyan link={address}]{address}[/]\n")
        for line in lines:
            console.print(Padding(line, (0, 2)), style="dim")
        console.print()
    else:
        print(f"{what} {address}", *lines, sep="\n", flush=True)
