"""The processes of payments: the gateway, servers on one socket, and workers."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from examples.hotel.processes import start_gateway
from examples.launching.children import Child
from examples.launching.launcher import Supervision, start_all
from examples.payments.parts import opened
from examples.payments.settings import Settings


@dataclass(frozen=True)
class PaymentsProcesses:
    """What runs, and where the gateway answers."""

    gateway: Child
    gateway_address: str
    servers: list[Child]
    workers: list[Child]

    @property
    def all(self) -> list[Child]:
        """Every one of them."""
        return [self.gateway, *self.servers, *self.workers]


async def prepare(url: str) -> None:
    """Make the tables."""
    async with opened(replace(Settings.from_environment(), database=url)) as parts:
        await parts.prepare()


async def start(
    supervision: Supervision, listener: socket.socket, *, url: str, ledger: Path, servers: int = 1, workers: int = 1
) -> PaymentsProcesses:
    """Start the service on a database that was prepared; it answers on `listener`."""
    gateway, address = await start_gateway(ledger, supervision)
    variables, fd, pipe = (
        {"PAYMENTS_DATABASE": url, "PAYMENTS_GATEWAY": address},
        listener.fileno(),
        supervision.watched,
    )
    serving = [
        Child("examples.payments.serving", "--fd", str(fd), pipe=pipe, fds=[fd], variables=variables)
        for _ in range(servers)
    ]
    working = [Child("examples.payments.working", pipe=pipe, variables=variables) for _ in range(workers)]
    await start_all([*serving, *working], supervision)
    return PaymentsProcesses(gateway, address, serving, working)
