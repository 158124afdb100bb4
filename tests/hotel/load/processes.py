"""The processes of a run, servers that can be killed; and the sweeper.

What always holds: a server is up when it is listed, and a killed one refuses connections: its port stays reserved, and
nobody else listens on it. All of them end with the run, even if the run itself is killed.
"""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.hotel import sweeper
from examples.hotel.parts import opened
from examples.hotel.settings import Settings

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[3]
PATIENCE = 240.0
SWEEPS = 5


@dataclass
class ServerProcess:
    """One server of the hotel on a port of its own."""

    number: int
    port: int
    process: Process
    log_file: Path
    killed: bool = False

    async def kill(self) -> None:
        """End it as a crash would."""
        self.killed = True
        self.process.kill()
        await self.process.wait()

    def log(self) -> str:
        """What it has written to stderr."""
        return self.log_file.read_text(errors="replace")


@asynccontextmanager
async def serving(count: int, folder: Path, variables: Mapping[str, str]) -> AsyncIterator[list[ServerProcess]]:
    """So many servers with these settings, up and answering."""
    with ExitStack() as kept:
        watched, held = os.pipe()  # the servers end at its end of file
        kept.callback(os.close, watched)
        kept.callback(os.close, held)
        servers: list[ServerProcess] = []
        try:
            for number in range(count):
                server = await _started(number, folder, variables, watched, kept)
                servers.append(server)
            await asyncio.gather(*(_ready(server) for server in servers))
            yield servers
        finally:
            for server in servers:
                if server.process.returncode is None:
                    server.process.terminate()
            for server in servers:
                await _ended(server.process)


async def _started(
    number: int, folder: Path, variables: Mapping[str, str], watched: int, kept: ExitStack
) -> ServerProcess:
    # Bound and never listening: the port is nobody else's while the server is dead, and a connection is refused.
    reserved = kept.enter_context(socket.socket())
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    port = reserved.getsockname()[1]
    log_file = folder / f"server-{number}.log"
    # Closed here at once: a listener that outlives its server would take connections that nobody answers.
    with socket.create_server((HOST, port), backlog=512) as listener, log_file.open("wb") as log:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fd = listener.fileno()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.hotel.serving", "--fd", str(fd), "--parent-fd", str(watched)),
            cwd=ROOT,
            env={**os.environ, **variables},
            pass_fds=[fd, watched],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=log,
        )
    return ServerProcess(number, port, process, log_file)


async def _ready(server: ServerProcess) -> None:
    assert server.process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = await server.process.stdout.readline()
    assert line == b"ready\n", f"server {server.number} did not start: {server.log()}"


async def _ended(process: Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()


async def sweep(variables: Mapping[str, str]) -> Counter[str]:
    """Sweep until there is nothing left to do, at first by two sweepers at once; what all of them did.

    Each has its own connections, and none is killed: so they need no processes.
    """
    total = sum(await asyncio.gather(*(_sweep_once(variables) for _ in range(2))), Counter[str]())
    for _ in range(SWEEPS):
        done = await _sweep_once(variables)
        if not done:
            return total
        total += done
    raise AssertionError(f"after {SWEEPS} sweeps there is still something to do: {total}")


async def _sweep_once(variables: Mapping[str, str]) -> Counter[str]:
    async with asyncio.timeout(PATIENCE), opened(Settings.from_environment(variables)) as parts:
        done = asdict(await sweeper.sweep(parts))
    return Counter({name: number for name, number in done.items() if number})
