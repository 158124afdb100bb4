"""Bytes on a socket: what no client library would send, and what a server really answered."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from tests.http.asking import ALICE
from tests.http.gate import PATIENCE


def head(method: str, path: str, *lines: str, length: int | None = None) -> bytes:
    """The head of a request."""
    given = [f"{method} {path} HTTP/1.1", "Host: site", f"Authorization: {ALICE}", *lines]
    if length is not None:
        given.append(f"Content-Length: {length}")
    return "\r\n".join((*given, "", "")).encode()


@dataclass
class Answered:
    """One answer, as it stood on the wire."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        """Every line of a header."""
        return [value for known, value in self.headers if known == name]


class Wire:
    """A connection to a site."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self.socket.sendall(data)

    def answer(self, *, bodyless: bool = False) -> Answered:
        """Read one answer."""
        status, headers = self.start()
        return Answered(status, headers, b"" if bodyless else self._body(dict(headers)))

    def start(self) -> tuple[int, list[tuple[str, str]]]:
        """Read the head of an answer: its status and its headers."""
        status = int(self._reader.readline().split()[1])
        headers = []
        while line := self._reader.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        return status, headers

    def read(self, least: int) -> bytes:
        """Read so many bytes of a body, framing included."""
        return self._reader.read(least)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(iter(self._chunk, b""))
        return self._reader.read(int(headers.get("content-length", "0")))

    def _chunk(self) -> bytes:
        size = int(self._reader.readline(), 16)
        chunk = self._reader.read(size)
        self._reader.readline()
        return chunk

    def end(self) -> bytes:
        """What still comes until the server closes."""
        return self._reader.read()

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Leave."""
        self._reader.close()
        self.socket.close()
