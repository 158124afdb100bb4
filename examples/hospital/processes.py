"""The processes of the hospital: the insurer, the books, workers, and the pages on a socket."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from examples.hospital.instances import Instances
from examples.hospital.settings import Settings
from examples.launching.children import Child
from examples.launching.launcher import Supervision, address_of, listen, start_all


@dataclass(frozen=True)
class HospitalProcesses:
    """What runs, and where everything is."""

    settings: Settings
    servers: list[Child]
    workers: list[Child]

    @property
    def all(self) -> list[Child]:
        """Every one of them."""
        return [*self.servers, *self.workers]


def prepare(url: str) -> None:
    """Make the tables."""
    instances = Instances(url)
    try:
        instances.create_tables()
    finally:
        instances.close()


async def start(
    supervision: Supervision, pages: socket.socket, *, url: str, folder: Path, delay: float, workers: int = 1
) -> HospitalProcesses:
    """Start the hospital on a database that was prepared; it answers on `pages`, and others take `delay` seconds."""
    insurer, books = (supervision.stack.enter_context(listen(0)) for _ in range(2))
    settings = Settings(url, address_of(insurer), address_of(books), folder / "codes.db")
    variables = {"SEMEL_POLICY__LEASE_FOR": "PT5S", **settings.to_environment(), "DELAY": str(delay)}
    sockets, pipe = {"serving": pages, "outside.insurer": insurer, "outside.books": books}, supervision.watched
    serving = []
    for name, listener in sockets.items():
        fd, own = listener.fileno(), {**variables, "LEDGER": str(folder / f"{name}.db")}
        serving.append(Child(f"examples.hospital.{name}", "--fd", str(fd), pipe=pipe, fds=[fd], variables=own))
    working = [
        Child("examples.hospital.working", "--name", f"worker-{number}", pipe=pipe, variables=variables)
        for number in range(1, workers + 1)
    ]
    await start_all([*serving, *working], supervision)
    return HospitalProcesses(settings, serving, working)
