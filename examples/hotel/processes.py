"""The processes of the hotel: the payment gateway, and servers on one socket."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from examples.hotel.parts import opened
from examples.hotel.sample import add_sample
from examples.hotel.settings import Settings
from examples.launching.children import Child
from examples.launching.launcher import Supervision, start_all


@dataclass(frozen=True)
class HotelProcesses:
    """What runs, and where the gateway answers."""

    gateway: Child
    gateway_address: str
    servers: list[Child]

    @property
    def all(self) -> list[Child]:
        """Every one of them."""
        return [self.gateway, *self.servers]


async def prepare(url: str) -> None:
    """Make the tables, and fill them if they are new."""
    settings = replace(Settings.from_environment(), database=url)
    async with opened(settings) as parts:
        await parts.prepare()
        await add_sample(parts.database, settings.clock)


async def start(
    supervision: Supervision, listener: socket.socket, *, url: str, ledger: Path, servers: int = 1
) -> HotelProcesses:
    """Start the hotel on a database that was prepared; it answers on `listener`."""
    gateway, address = await start_gateway(ledger, supervision)
    variables, fd = {"HOTEL_DATABASE": url, "HOTEL_GATEWAY": address}, listener.fileno()
    children = [
        Child("examples.hotel.serving", "--fd", str(fd), pipe=supervision.watched, fds=[fd], variables=variables)
        for _ in range(servers)
    ]
    await start_all(children, supervision)
    return HotelProcesses(gateway, address, children)


async def start_gateway(ledger: Path, supervision: Supervision) -> tuple[Child, str]:
    """The payment gateway as a child, and its address."""
    gateway = Child("examples.hotel.gateway", "--ledger", str(ledger), pipe=supervision.watched)
    supervision.stack.push_async_callback(gateway.stop)
    address = await gateway.start()
    gateway.arguments += ["--port", address.rpartition(":")[2]]  # where it is found again after it died
    return gateway, address
