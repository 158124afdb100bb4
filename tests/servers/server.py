"""A private SQL server on the loopback interface: prepared, started, killed, started again.

What always holds: `start` returns only when this very server answers in its own protocol, and `url` stays the same
over `kill` and `restart`.
"""

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tests.servers import process, room
from tests.servers.databases import Client, Databases, Endpoint
from tests.servers.programs import Programs
from tests.servers.room import Room

HOST = "127.0.0.1"
_TRIES = 5
_POLL = 0.02
Kind = TypeVar("Kind", bound="Server")


class ServerBroken(Exception):
    """A server did not start; the message holds the end of its log."""


@dataclass(frozen=True)
class Options:
    """How a server is started. Without `fsync` it is quick, and a power cut would lose commits; a kill does not."""

    fsync: bool = False
    max_connections: int = 200
    log_statements: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the server by their own names; they win over all others."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Server(Databases, ABC):
    """One instance in a folder of its own."""

    stop_signal: ClassVar[signal.Signals]
    seconds_to_start: ClassVar[float] = process.LONG

    def __init__(self, programs: Programs, folder: Path, options: Options, client: Client) -> None:
        self.programs = programs
        self.folder = folder
        self.options = options
        self.port = 0
        self.pid = 0
        super().__init__(client, Endpoint("", str(folder / "server.log")))

    @property
    def data(self) -> Path:
        """The folder of the server's data."""
        return self.folder / "data"

    def launch(self) -> None:
        """Prepare the data and start for the first time, on a port that is free."""
        self.prepare()
        for last in (False,) * (_TRIES - 1) + (True,):
            self.port = free_port()
            self.endpoint = self.describe()
            try:
                self.start()
            except ServerBroken:
                # Somebody may have taken the port since it was looked at.
                if last or is_free(self.port):
                    raise
            else:
                return

    def start(self) -> None:
        """Start and wait until it answers."""
        self.pid = process.spawn(
            self.command(), output=self.folder / "server.log", environment=self.environment(), **process.account()
        )
        room.register(self.folder, self.pid, self.stop_signal)
        deadline = time.monotonic() + self.seconds_to_start
        while not self._answers():
            if not process.is_alive(self.pid) or time.monotonic() > deadline:
                room.end(self.folder, kill=True)
                raise ServerBroken(f"{type(self).__name__} did not start; the end of its log:\n{self._end_of_log()}")
            time.sleep(_POLL)

    def kill(self) -> None:
        """End all its processes at once, in the middle of whatever they do."""
        room.end(self.folder, kill=True)

    def freeze(self) -> None:
        """Have all its processes stand still, with every connection open."""
        process.freeze(self.pid)

    def thaw(self) -> None:
        """Have them go on."""
        process.thaw(self.pid)

    def stop(self) -> None:
        """End it in order."""
        room.end(self.folder)

    def restart(self) -> None:
        """Start again on the same data and port; stops it first if it runs."""
        self.stop()
        self.start()

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs."""
        return process.is_alive(self.pid)

    def environment(self) -> dict[str, str]:
        """Only what is needed: variables such as PGPORT must not reach it."""
        return {
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.folder),
            **self.programs.environment,
            **self.options.environment,
        }

    def prepare_with(self, command: list[str]) -> None:
        """Run the program that makes the data folder."""
        done = subprocess.run(
            command,
            cwd="/",
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            **process.account(),
        )
        (self.folder / "prepare.log").write_text(done.stdout)
        if done.returncode:
            raise ServerBroken(f"The data of {type(self).__name__} could not be made:\n{done.stdout[-2000:]}")

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """The server and its arguments."""

    @abstractmethod
    def describe(self) -> Endpoint:
        """Where it is reached once it runs."""

    @abstractmethod
    def where_its_data_is(self) -> str:
        """Ask the server that answers for its data folder: it could be somebody else's."""

    @abstractmethod
    def refusal(self) -> type[Exception]:
        """What the client raises while nobody answers."""

    def _answers(self) -> bool:
        try:
            said = self.where_its_data_is()
        except self.refusal():
            return False
        return Path(said) == self.data

    def _end_of_log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "(no log)"


@contextmanager
def running_by(
    start: Callable[[Room, Options], Kind],
    *,
    fsync: bool = False,
    max_connections: int = 200,
    log_statements: bool = False,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Kind]:
    """A private server for the length of the block, in a room of its own.

    Raises:
        ServerMissing: there is none on this machine, and none could be installed.
    """
    own = Room.new()
    try:
        yield start(own, Options(fsync, max_connections, log_statements, settings or {}, environment or {}))
    finally:
        own.close()


def arguments(prefix: list[str], defaults: Mapping[str, Any], chosen: Mapping[str, str]) -> list[str]:
    """Settings as arguments: `["-c"]` gives `-c name=value`, `[]` gives `--name=value`."""
    dashes = "" if prefix else "--"
    return [part for name, value in {**defaults, **chosen}.items() for part in (*prefix, f"{dashes}{name}={value}")]


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    # Below the range that outgoing connections take theirs from: the port must still be free after a kill.
    chance = random.SystemRandom()
    while not is_free(port := chance.randrange(20_000, 32_000)):
        pass
    return port


def is_free(port: int) -> bool:
    """Whether nobody listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
