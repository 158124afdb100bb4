"""ministack, which answers as DynamoDB would: `with ministack.running() as server: ...`.

What always holds: nobody but this machine reaches it, it keeps everything in memory, and it is gone when the block is
left. It lives in an environment of its own, because it demands one very botocore.
"""

import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tests.servers import process, programs, room
from tests.servers.databases import Endpoint
from tests.servers.programs import Programs
from tests.servers.room import Room
from tests.servers.server import HOST, ServerBroken, free_port, is_free
from tests.servers.service import Service

REGION = "eu-west-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "semel", "AWS_SECRET_ACCESS_KEY": "semel"}
"""What a server of our own is content with; a client does not send a request unsigned."""
_TRIES = 5
_IN_ONE_REQUEST = 25
"""How many items DynamoDB deletes by one request."""
_POLL = 0.05
_ENVIRONMENT = programs.UNPACKED / "ministack"


class MinistackServer:
    """One private instance in a folder of its own."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.port = 0
        self.pid = 0

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / "server.log"

    def launch(self) -> None:
        """Start on a port that is free, and wait until it answers."""
        for last in (False,) * (_TRIES - 1) + (True,):
            self.port = free_port()
            try:
                self.start()
            except ServerBroken:
                # Somebody may have taken the port since it was looked at.
                if last or is_free(self.port):
                    raise
            else:
                return

    def start(self) -> None:
        """Start and wait until it answers. It does not mind being root, and its Python may be closed to others."""
        self.pid = process.spawn([self.programs["ministack"]], output=self.log, environment=self._environment())
        room.register(self.folder, self.pid, signal.SIGTERM)
        deadline = time.monotonic() + process.LONG
        while not self._answers():
            if not process.is_alive(self.pid) or time.monotonic() > deadline:
                self.kill()
                raise ServerBroken(f"ministack did not start; the end of its log:\n{self._end_of_log()}")
            time.sleep(_POLL)

    def kill(self) -> None:
        """End it at once, with all it kept."""
        room.end(self.folder, kill=True)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "dynamodb,sqs,events",
            "IOT_MTLS_ENABLED": "0",
        }

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, self.port)):
                return False
        # Its own log says so: another program could have the port.
        return f"available on port {self.port}" in self.log.read_text(errors="replace")

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"


def client(url: str) -> Any:
    """A client for the one who prepares tests."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "dynamodb",
        endpoint_url=url or None,
        region_name=REGION,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"] if url else None,
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"] if url else None,
        config=Config(retries={"total_max_attempts": 1}),
    )


@dataclass
class Tables:
    """A running server, seen by somebody who needs tables on it."""

    endpoint: Endpoint
    made: list[str] = field(default_factory=list)

    @cached_property
    def client(self) -> Any:
        """For looking past the store."""
        return client(self.endpoint.url)

    @cached_property
    def url(self) -> str:
        """A table of one's own, made on first use."""
        return self.new_table()

    @cached_property
    def shared_url(self) -> str:
        """A table with keys of a service, made on first use."""
        return self.new_table(pk="pk", sk="sk")

    def new_table(self, **keys: str) -> str:
        """Make an empty table and return its URL; `keys` are those of a service whose table it is."""
        from semel.stores.dynamodb import DynamoStore

        url = self.new_url(**keys)
        DynamoStore(url).admin().migrate()
        return url

    def new_url(self, **keys: str) -> str:
        """The URL of a table that is not there yet."""
        name = f"semel_{secrets.token_hex(6)}"
        self.made.append(name)
        where = {**keys, "region": REGION, **({"endpoint": self.endpoint.url} if self.endpoint.url else {})}
        return f"dynamodb://{name}?{urlencode(where, quote_via=quote)}"

    def empty(self, url: str) -> None:
        """Delete every item of a table, as many with each request as one may carry."""
        asked = dict(parse_qsl(urlsplit(url).query))
        keys = [asked[name] for name in ("pk", "sk") if name in asked] or ["digest"]
        deletions = [{"DeleteRequest": {"Key": {name: item[name] for name in keys}}} for item in self.items(url)]
        while deletions:
            some = {urlsplit(url).netloc: deletions[:_IN_ONE_REQUEST]}
            left = self.client.batch_write_item(RequestItems=some)["UnprocessedItems"]
            deletions[:_IN_ONE_REQUEST] = left.get(urlsplit(url).netloc, [])

    def items(self, url: str) -> list[dict[str, Any]]:
        """Every item of a table, as it is stored."""
        pages = self.client.get_paginator("scan").paginate(TableName=urlsplit(url).netloc, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def drop_all(self) -> None:
        """Drop every table that was made here."""
        while self.made:
            try:
                self.client.delete_table(TableName=self.made.pop())
            except self.client.exceptions.ResourceNotFoundException:
                continue


class Ministack(Service[Tables]):
    """How tests come by it."""

    name = "ministack"
    variable = "SEMEL_TEST_DYNAMODB_URL"

    def start(self, room: Room) -> Endpoint:
        server = start(room)
        return Endpoint(server.url, str(server.log))

    def connect(self, endpoint: Endpoint) -> Tables:
        # Without an address it is the service itself, by the SDK's own configuration.
        return Tables(endpoint if endpoint.url.startswith("http") else Endpoint(""))


@contextmanager
def running() -> Iterator[MinistackServer]:
    """A private server for the length of the block, in a room of its own.

    Raises:
        ServerMissing: there is none on this machine, and none could be installed.
    """
    own = Room.new()
    try:
        yield start(own)
    finally:
        own.close()


def start(where: Room) -> MinistackServer:
    """Start one in this room."""
    server = MinistackServer(programs.obtain("ministack", _look), where.folder("ministack"))
    server.launch()
    return server


def _look() -> Programs | None:
    path = _ENVIRONMENT / "bin" / "ministack"
    return Programs({"ministack": path}) if path.exists() else None
