"""A gate: where a handler in another process waits, so that a test acts while it runs and never by the clock."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Self

PATIENCE = 60.0
"""Seconds after which a handler that never came is a failure; nothing waits so long otherwise."""


@dataclass
class Visitor:
    """A handler that waits."""

    connection: socket.socket

    @property
    def address(self) -> tuple[str, int]:
        """Where it comes from."""
        address: tuple[str, int] = self.connection.getpeername()
        return address

    def go(self) -> None:
        """Let it go on."""
        self.connection.sendall(b".")
        self.connection.close()


@dataclass
class Gate:
    """A listening socket of the test."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=64))

    @property
    def port(self) -> int:
        """Where handlers come to."""
        port: int = self.listener.getsockname()[1]
        return port

    def visitor(self) -> Visitor:
        """The next handler that comes; waits for it."""
        self.listener.settimeout(PATIENCE)
        connection, _ = self.listener.accept()
        return Visitor(connection)

    def hear(self) -> str:
        """What the next one that comes has to tell; waits for it."""
        with self.visitor().connection as connection, connection.makefile("r") as told:
            return told.readline().strip()

    def is_empty(self) -> bool:
        """Whether nobody else has come."""
        self.listener.settimeout(0)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
