"""NATS with JetStream for tests, crash tests and benchmarks: `with nats.running() as server: ...`.

What always holds: nobody but this machine reaches the server, and it is gone when the block is left.
"""

import signal
import sys
from functools import partial
from pathlib import Path

from tests.servers import programs
from tests.servers.broker import Broker, BrokerServer, NoStatements
from tests.servers.databases import Endpoint
from tests.servers.room import Room
from tests.servers.server import HOST, Options, running_by
from tests.servers.service import Service

_NAMES = ("nats-server",)


class NatsServer(BrokerServer):
    """One private NATS. With `fsync` every write is on disk before it is acknowledged."""

    stop_signal = signal.SIGTERM

    def prepare(self) -> None:
        self.prepare_with(["mkdir", "-p", str(self.data)])

    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        always = ", sync_interval: always" if self.options.fsync else ""
        lines = {"jetstream": f'{{ store_dir: "{self.data}"{always} }}', **self.options.settings}
        config.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
        return [self.programs["nats-server"], "-a", HOST, "-p", str(self.port), "-n", self.own_name, "-c", str(config)]

    def describe(self) -> Endpoint:
        return Endpoint(f"nats://{HOST}:{self.port}", str(self.folder / "server.log"))


class Nats(Service[Broker]):
    """How tests come by NATS."""

    name = "nats"
    variable = "SEMEL_TEST_NATS_URL"

    def start(self, room: Room) -> Endpoint:
        return start(room, Options()).endpoint

    def connect(self, endpoint: Endpoint) -> Broker:
        return Broker(endpoint)


def start(room: Room, options: Options) -> NatsServer:
    """Start a server that ends with the room."""
    server = NatsServer(programs.obtain("nats", _look), room.folder("nats"), options, NoStatements())
    server.launch()
    return server


def _look() -> programs.Programs | None:
    # It comes with the other packages for tests, beside the Python that runs them.
    return programs.find(_NAMES, ["usr/sbin"]) or programs.in_folder(_NAMES, Path(sys.executable).parent)


running = partial(running_by, start)
"""A private server for the length of the block: `running_by` says with which options."""
