"""What brokers for tests have in common: a server that tells its name, and names for what is made on it.

What always holds: what is made on a broker has a name that was made here, so tests do not meet on it.
"""

import secrets
import socket
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from tests.servers.databases import Endpoint, Session
from tests.servers.server import HOST, Server


@dataclass(frozen=True)
class Broker:
    """A running broker, seen by somebody who needs queues of its own there."""

    endpoint: Endpoint

    @property
    def url(self) -> str:
        """Where it is reached."""
        return self.endpoint.url

    def new_name(self) -> str:
        """A name that nobody else uses, for a queue, an exchange, a stream or a subject."""
        return f"semel-{secrets.token_hex(6)}"


class NoStatements:
    """Brokers know none."""

    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        raise NotImplementedError
        yield

    def create(self, name: str) -> NoReturn:
        raise NotImplementedError

    def drop(self, name: str) -> NoReturn:
        raise NotImplementedError


class BrokerServer(Server):
    """One private broker."""

    greeting = b""
    """What is sent to make it tell its name; nothing, where it does so by itself."""

    @property
    def own_name(self) -> str:
        """What it is called; nobody else is."""
        return f"semel{self.port}x{self.folder.name[-8:].replace('_', 'u').replace('-', 'd')}"

    def broker(self) -> Broker:
        """For clients."""
        return Broker(self.endpoint)

    def where_its_data_is(self) -> str:
        """Its data, if the server that answers has the name of this one."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(self.greeting)
            said = b""
            while self.own_name.encode() not in said:
                if not (part := connection.recv(65_536)):
                    return ""
                said += part
        return str(self.data)

    def refusal(self) -> type[Exception]:
        return OSError

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder."""
