"""HTTP/1.1 on a socket of its own: the bytes of a header are sent exactly as given, and an upload can be cut off.

What always holds: every request has a connection to itself and a deadline, and ends as a value, an `Answer` or the
`Silence` of a connection that ended without one. Requests are written by hand, because no client library would send
what the cases have to send; answers are read by h11.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import h11

_CHUNK: Final = 65536
_MOST: Final = 8 * 1024 * 1024

Fields = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: `fields` in this order and with these bytes; Host and Content-Length are added."""

    method: str
    path: str
    fields: Fields = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. Names of fields are in lower case."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def accepted(self) -> bool:
        """Whether the status is of the class 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of success

    def values(self, name: str) -> list[str]:
        """The values of every line of a field."""
        return [value for found, value in self.fields if found == name.lower()]

    def value(self, name: str) -> str | None:
        """The value of a field, or None where there is none."""
        return next(iter(self.values(name)), None)


@dataclass(frozen=True, slots=True)
class Silence:
    """The connection ended, or the time was over, without an answer."""

    why: str


Reply = Answer | Silence


@dataclass(frozen=True, slots=True)
class Wire:
    """The way to one service."""

    host: str
    port: int
    tls: bool = False
    timeout: float = 10.0

    def exchange(self, request: Request, gate: threading.Barrier | None = None) -> Reply:
        """Send a request whole and read the answer; with a gate, send when all others are connected too."""
        try:
            with closing(self.connect()) as connection:
                if gate is not None:
                    _pass(gate, self.timeout)
                _send(connection, self._bytes(request))
                return _read(connection, request.method, time.monotonic() + self.timeout)
        except OSError as error:
            if gate is not None:
                gate.abort()
            return Silence(_words(error))

    def in_turn(self, first: Request, second: Request) -> tuple[Reply, Reply]:
        """Send the first, and the second right behind it on another connection; then read both answers."""
        try:
            with closing(self.connect()) as one, closing(self.connect()) as other:
                _send(one, self._bytes(first))
                _send(other, self._bytes(second))
                later = _read(other, second.method, time.monotonic() + self.timeout)
                return _read(one, first.method, time.monotonic() + self.timeout), later
        except OSError as error:
            return Silence(_words(error)), Silence(_words(error))

    def cut(self, request: Request, sent: bytes) -> Reply:
        """Announce the whole body, send only `sent`, hang up, and read what the service says to that.

        Hanging up is closing the sending half where TLS does not forbid it, so that the end of the connection tells
        when the service is done with what it got.
        """
        announced = len(request.body) if len(request.body) > len(sent) else len(sent) + 16
        try:
            with closing(self.connect()) as connection:
                connection.sendall(self._head(request, announced) + sent)
                if self.tls:
                    return Silence("hung up")
                connection.shutdown(socket.SHUT_WR)
                return _read(connection, request.method, time.monotonic() + self.timeout)
        except OSError as error:
            return Silence(_words(error))

    def leave(self, request: Request) -> None:
        """Send a request whole and close the connection without reading anything."""
        try:
            with closing(self.connect()) as connection:
                connection.sendall(self._bytes(request))
        except OSError:
            return  # the retry that follows shows what became of it

    def connect(self) -> socket.socket:
        """A new connection.

        Raises:
            OSError: there is nobody.
        """
        plain = socket.create_connection((self.host, self.port), timeout=self.timeout)
        if not self.tls:
            return plain
        try:
            return ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def _bytes(self, request: Request) -> bytes:
        return self._head(request, len(request.body)) + request.body

    def _head(self, request: Request, length: int) -> bytes:
        usual = self.port == (443 if self.tls else 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{request.method} {request.path} HTTP/1.1".encode("ascii"),
            f"Host: {host if usual else f'{host}:{self.port}'}".encode("ascii"),
            b"Connection: close",
            *(name.encode("ascii") + b": " + value for name, value in request.fields),
        ]
        if length or request.method not in ("GET", "HEAD", "OPTIONS"):
            lines.append(f"Content-Length: {length}".encode("ascii"))
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _pass(gate: threading.Barrier, timeout: float) -> None:
    try:
        gate.wait(timeout)
    except threading.BrokenBarrierError:
        return  # one of the others found no connection; the rest are sent all the same


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return  # a service may refuse by its head alone; its answer is still there to be read


def _read(connection: socket.socket, method: str, deadline: float) -> Reply:
    reader = h11.Connection(h11.CLIENT)
    # Tells h11 what it will read the answer to. The real request was written by hand, so these bytes go nowhere.
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "x"), ("Connection", "close")]))
    reader.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = bytearray()
    try:
        while True:
            match reader.next_event():
                case h11.Response() as head:
                    pass
                case h11.Data(data=data):
                    body += data
                    if len(body) > _MOST:
                        return Silence(f"the body is over {_MOST} bytes")
                case h11.EndOfMessage() if head is not None:
                    return _answer(head, bytes(body))
                case h11.NEED_DATA:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return Silence("no answer in time")
                    connection.settimeout(left)
                    reader.receive_data(connection.recv(_CHUNK))
                case h11.InformationalResponse():
                    continue
                case _:
                    return Silence("the connection was closed without an answer")
    except h11.RemoteProtocolError as error:
        return Silence(f"no whole HTTP answer came: {error}")


def _answer(head: h11.Response, body: bytes) -> Answer:
    fields = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
    return Answer(head.status_code, fields, body)


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error) or type(error).__name__).lower()
