"""RabbitMQ for tests, crash tests and benchmarks: `with rabbitmq.running() as server: ...`.

What always holds: nobody but this machine reaches the server, and it is gone when the block is left, with the daemon
that its runtime starts beside it.
"""

import os
import signal
from functools import cached_property, partial
from pathlib import Path

from tests.servers import programs
from tests.servers.broker import Broker, BrokerServer, NoStatements
from tests.servers.databases import Endpoint
from tests.servers.room import Room
from tests.servers.server import HOST, Options, free_port, running_by
from tests.servers.service import Service

_NAMES = ("rabbitmq-server", "epmd")
_TOGETHER = """
"$1" -port "$2" -address 127.0.0.1 & names=$!
"$3" & server=$!
trap 'kill -TERM $server' TERM
wait $server
code=$?
while kill -0 $server 2>/dev/null; do wait $server; code=$?; done
kill -KILL $names
exit $code
"""
"""Runs both for as long as the server runs. Left to itself, the runtime starts the daemon so that it outlives all."""


MAX_MESSAGE_SIZE = 1_000_000
"""Bytes. A broker's own limit is much larger, and a test that meets it would take long."""


class RabbitmqServer(BrokerServer):
    """One private RabbitMQ. It writes what is durable to disk before it confirms, whatever the options say."""

    stop_signal = signal.SIGTERM
    seconds_to_start = 100.0
    greeting = b"AMQP\x00\x00\x09\x01"

    @cached_property
    def _ports(self) -> tuple[int, int]:
        """Where other nodes, and those who look for nodes, would reach it."""
        return free_port(), free_port()

    def prepare(self) -> None:
        self.prepare_with(["mkdir", "-p", str(self.data)])

    def command(self) -> list[str]:
        settings = {"listeners.tcp.1": f"{HOST}:{self.port}", "log.console": "true"}
        settings |= {"max_message_size": str(MAX_MESSAGE_SIZE), **self.options.settings}
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        (self.folder / "rabbitmq.conf").write_text(lines)
        plugins = "[rabbitmq_management]." if any(name.startswith("management.") for name in settings) else "[]."
        (self.folder / "plugins").write_text(plugins)
        together = ["/bin/sh", "-c", _TOGETHER, "sh"]
        return [*together, self.programs["epmd"], str(self._ports[1]), self.programs["rabbitmq-server"]]

    def environment(self) -> dict[str, str]:
        distribution, names = self._ports
        return {
            **super().environment(),
            "PATH": os.defpath + ":/usr/sbin:/sbin",
            "RABBITMQ_NODENAME": f"{self.own_name}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": HOST,
            # Without this each scheduler spins for work, which takes a processor from everybody else.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def describe(self) -> Endpoint:
        return Endpoint(f"amqp://guest:guest@{HOST}:{self.port}/", str(self.folder / "server.log"))


class Rabbitmq(Service[Broker]):
    """How tests come by RabbitMQ."""

    name = "rabbitmq"
    variable = "SEMEL_TEST_RABBITMQ_URL"

    def start(self, room: Room) -> Endpoint:
        return start(room, Options()).endpoint

    def connect(self, endpoint: Endpoint) -> Broker:
        return Broker(endpoint)


def start(room: Room, options: Options) -> RabbitmqServer:
    """Start a server that ends with the room."""
    server = RabbitmqServer(programs.obtain("rabbitmq", _look), room.folder("rabbitmq"), options, NoStatements())
    server.launch()
    return server


def _look() -> programs.Programs | None:
    # What is called so on the PATH changes the account first; the program itself runs under any.
    folder = Path("/usr/lib/rabbitmq/bin")
    server, names = programs.in_folder(_NAMES[:1], folder), programs.find(_NAMES[1:], ["usr/bin"])
    return programs.Programs({**server.paths, **names.paths}) if server and names else None


running = partial(running_by, start)
"""A private server for the length of the block: `running_by` says with which options."""
