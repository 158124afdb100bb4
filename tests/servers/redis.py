"""Redis for tests, crash tests and benchmarks: `with redis.running(fsync=True) as server: ...`.

What always holds: nobody but this machine reaches the server, and it is gone when the block is left. On a server that
is not ours only keys are touched whose names were made here.
"""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.servers import programs
from tests.servers.databases import Endpoint, Session
from tests.servers.room import Room
from tests.servers.server import HOST, Options, Server, arguments, free_port, running_by
from tests.servers.service import Service

_NAMES = ("redis-server",)
_DATABASES = 64


class RedisClient:
    """Speaks to Redis; a statement is a command with spaces between its words."""

    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        yield lambda *statements: [(said(url, *sql.split()),) for sql in statements]

    def create(self, name: str) -> str:
        return "PING"

    def drop(self, name: str) -> str:
        return "PING"


def said(url: str, *words: Any) -> Any:
    """What the server says to one command, in its own words."""
    import redis

    with redis.Redis.from_url(url.partition("?")[0], protocol=2) as client:
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            client.connection_pool.release(connection)


@dataclass
class Keys:
    """A running server, seen by somebody who needs keys of its own there."""

    endpoint: Endpoint
    prefix: str = field(default_factory=lambda: f"semel-{secrets.token_hex(6)}")

    @cached_property
    def plain_url(self) -> str:
        """The database of this worker: a walk over all keys meets few of others."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        ours = bool(self.endpoint.log)
        return urlsplit(self.endpoint.url)._replace(path=f"/{int(worker) % _DATABASES if ours else 0}").geturl()

    @property
    def url(self) -> str:
        """The same, with a pattern of keys that nobody else uses."""
        return f"{self.plain_url}?{urlencode({'pattern': self.prefix + ':{operation}:{digest}'})}"

    def said(self, *words: Any) -> Any:
        """What the server says to one command."""
        return said(self.plain_url, *words)

    def names(self) -> list[bytes]:
        """The keys that were made here."""
        import redis

        with redis.Redis.from_url(self.plain_url, protocol=2) as client:
            return list(client.scan_iter(match=f"{self.prefix}:*", count=1000))

    def empty(self) -> None:
        """Remove the keys that were made here."""
        import redis

        with redis.Redis.from_url(self.plain_url, protocol=2) as client:
            if keys := list(client.scan_iter(match=f"{self.prefix}:*", count=1000)):
                client.unlink(*keys)


class RedisServer(Server):
    """One private Redis. With `fsync` every write is on disk before it is acknowledged."""

    stop_signal = signal.SIGTERM

    @cached_property
    def bus(self) -> int:
        """Where other nodes of a cluster reach it."""
        return free_port()

    def prepare(self) -> None:
        self.prepare_with(["mkdir", "-p", str(self.data)])

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "bind": HOST,
            "dir": self.data,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always" if self.options.fsync else "no",
            "databases": _DATABASES,
            "repl-diskless-sync-delay": 0,
        }
        if "cluster-enabled" in self.options.settings:
            settings["cluster-port"] = self.bus  # by default it is among those that outgoing connections take
        words = arguments([], settings, self.options.settings)
        return [*self.program(), *(part for word in words for part in word.split("=", 1))]

    def program(self) -> list[str]:
        """What is run; Debian has one program under several names, and it does what it is called."""
        return [str(Path(self.programs["redis-server"]).with_name("redis-server"))]  # what was found is the real one

    def describe(self) -> Endpoint:
        return Endpoint(f"redis://{HOST}:{self.port}/", str(self.folder / "server.log"))

    def where_its_data_is(self) -> str:
        said(self.endpoint.url, "PING")  # unlike CONFIG it is refused while the server still reads its data
        return str(said(self.endpoint.url, "CONFIG", "GET", "dir")[1].decode())

    def refusal(self) -> type[Exception]:
        import redis

        return redis.ConnectionError

    def keys(self) -> Keys:
        """Keys of one's own."""
        return Keys(self.endpoint)


class Redis(Service[Keys]):
    """How tests come by Redis."""

    name = "redis"
    variable = "SEMEL_TEST_REDIS_URL"

    def start(self, room: Room) -> Endpoint:
        return start(room, Options()).endpoint

    def connect(self, endpoint: Endpoint) -> Keys:
        return Keys(endpoint)


def start(room: Room, options: Options) -> RedisServer:
    """Start a server that ends with the room."""
    found = programs.obtain("redis", lambda: programs.find(_NAMES, ["usr/bin"]))
    server = RedisServer(found, room.folder("redis"), options, RedisClient())
    server.launch()
    return server


running = partial(running_by, start)
"""A private server for the length of the block: `running_by` says with which options."""
