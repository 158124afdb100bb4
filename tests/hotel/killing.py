"""A real server process that is killed at a known place: while its charge is on the way, or just after it was made."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.hotel.front_desk import FrontDesk, Gateway, Guest


@dataclass
class Interceptor:
    """Stands where the gateway is. It passes a charge on or not, and never answers."""

    address: str
    arrived: asyncio.Event


@asynccontextmanager
async def intercepting(gateway: Gateway, *, passes_on: bool) -> AsyncIterator[Interceptor]:
    arrived, over = asyncio.Event(), asyncio.Event()

    async def intercept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            if passes_on:
                keyed = {"Idempotency-Key": headers["idempotency-key"], "Content-Type": "application/json"}
                async with httpx.AsyncClient() as client:
                    await client.post(f"{gateway.address}/charges", content=body, headers=keyed)
            arrived.set()
            await over.wait()
        finally:
            writer.close()

    server = await asyncio.start_server(intercept, "127.0.0.1", 0)
    async with server:
        yield Interceptor(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", arrived)
        over.set()


@asynccontextmanager
async def serving(desk: FrontDesk, gateway: str, folder: Path) -> AsyncIterator["ServerProcess"]:
    """A server on the database of `desk`, at its time, that pays at `gateway`."""
    offset = folder / "clock"
    offset.write_text(str((desk.clock() - datetime.now(UTC)).total_seconds()))
    variables = {
        "HOTEL_DATABASE": desk.settings.database,
        "HOTEL_GATEWAY": gateway,
        "HOTEL_CLOCK_FILE": str(offset),
        "HOTEL_LEASE_FOR": str(desk.settings.lease_for.total_seconds()),
        "HOTEL_GATEWAY_TIMEOUT": str(desk.settings.gateway_timeout.total_seconds()),
        "HOTEL_RECONCILE_AFTER": "0",
        "HOTEL_SWEEP_EVERY": "0",
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "examples.hotel.serving", "--fd", str(listener.fileno())),
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={**os.environ, **variables},
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            yield ServerProcess(f"http://127.0.0.1:{listener.getsockname()[1]}", process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@dataclass
class ServerProcess:
    address: str
    process: asyncio.subprocess.Process

    def guest(self, guest: Guest) -> Guest:
        """The same browser, at this server."""
        cookies = dict(guest.client.cookies)  # without the name of the host, which is another one here
        return Guest(guest.desk, httpx.AsyncClient(base_url=self.address, cookies=cookies, timeout=120))

    async def killed_once(self, reached: asyncio.Event) -> None:
        """Kill it as soon as it is there."""
        await asyncio.wait_for(reached.wait(), 120)
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
