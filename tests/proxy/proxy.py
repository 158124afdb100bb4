"""A proxy between a client and a server, which ends, halves or holds what the plan of a test says.

What always holds: without a cut every byte is passed on unchanged and in order. A connection that is cut ends for both
sides in order, with everything that was passed on still delivered, so what a side sees does not depend on timing.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from tests.proxy.plan import Cut, How, Plan
from tests.proxy.wire import BytesWire, Direction, Message, MysqlWire, PostgresqlWire, RedisWire, Wire

HOST = "127.0.0.1"
_WIRES: dict[str, tuple[Callable[[], Wire], int]] = {
    "postgresql": (PostgresqlWire, 5432),
    "postgres": (PostgresqlWire, 5432),
    "mysql": (MysqlWire, 3306),
    "mariadb": (MysqlWire, 3306),
    "redis": (RedisWire, 6379),
    "amqp": (BytesWire, 5672),
    "nats": (BytesWire, 4222),
    "http": (BytesWire, 80),
}


class Seen(NamedTuple):
    """A message that came by, whether or not it was passed on."""

    direction: Direction
    kind: str


class Proxy:
    """Listens beside the server of `url`; clients use `proxy.url` instead."""

    def __init__(self, url: str, *cuts: Cut) -> None:
        at = urlsplit(url)
        self._wire, port = _WIRES[at.scheme.partition("+")[0]]
        self._server = (at.hostname or HOST, at.port or port)
        self._plan = Plan(*cuts)
        self._cuts = list(cuts)
        self._lock = threading.Lock()
        self._seen: list[Seen] = []
        self._connections: list[_Connection] = []
        self._listener = socket.create_server((HOST, 0))
        account = f"{at.netloc.rpartition('@')[0]}@" if "@" in at.netloc else ""
        self.url = at._replace(netloc=f"{account}{HOST}:{self._listener.getsockname()[1]}").geturl()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def plan(self, *cuts: Cut) -> None:
        """Replace the plan; counting starts again."""
        with self._lock:
            self._plan = Plan(*cuts)
            self._cuts.extend(cuts)

    @property
    def seen(self) -> list[Seen]:
        """What came by, in order; a message is listed before it is passed on."""
        with self._lock:
            return list(self._seen)

    def forget(self) -> None:
        """Empty the list of what was seen."""
        with self._lock:
            self._seen.clear()

    def sever(self) -> None:
        """End every connection that is open now; new ones are accepted."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end()

    def close(self) -> None:
        """End everything and wait for the threads; a message that is still held is dropped."""
        self.sever()
        for cut in self._cuts:
            cut.release.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def note(self, direction: Direction, message: Message) -> Cut | None:
        """List a message, and return what the plan has for it."""
        with self._lock:
            self._seen.append(Seen(direction, message.kind))
            return self._plan.at(direction, message)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                # The server is down: the client finds its connection ended, as it would behind any load balancer.
                client.close()
                continue
            with self._lock:
                self._connections.append(_Connection(self, self._wire(), client, server))


class _Connection:
    """Two sockets and a thread for each direction."""

    def __init__(self, proxy: Proxy, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._wire = wire
        self._sockets = {Direction.TO_SERVER: (client, server), Direction.TO_CLIENT: (server, client)}
        self._ended = False
        self._last = threading.Lock()
        self._awaits_reply: Cut | None = None
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads = [
            threading.Thread(target=self._pump, args=(direction,), name=direction.value, daemon=True)
            for direction in Direction
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Tell both sides that nothing more will come."""
        self._ended = True
        for source, _ in self._sockets.values():
            # What the other side still sends is read and thrown away: a socket closed with unread data would reset the
            # connection, and the reset can overtake data that was passed on before.
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End at once and wait for the threads."""
        for source, _ in self._sockets.values():
            with contextlib.suppress(OSError):
                source.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _pump(self, direction: Direction) -> None:
        source, target = self._sockets[direction]
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._ended:
                    self._take(direction, target, data)
        # The half-closed state is passed on like everything else.
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        # Whoever comes second clears up.
        if not self._last.acquire(blocking=False):
            source.close()
            target.close()

    def _take(self, direction: Direction, target: socket.socket, data: bytes) -> None:
        if direction is Direction.TO_CLIENT and (cut := self._awaits_reply):
            self._finish(cut)
            return
        for message in self._wire.feed(direction, data):
            cut = self._proxy.note(direction, message)
            if cut:
                self._apply(cut, target, message)
            else:
                target.sendall(message.data)
            if self._ended:
                return

    def _apply(self, cut: Cut, target: socket.socket, message: Message) -> None:
        cut.reached.set()
        match cut.how:
            case How.DROP:
                self._finish(cut)
            case How.SPLIT:
                target.sendall(message.data[: len(message.data) // 2])
                self._finish(cut)
            case How.DROP_REPLY:
                # Set before the request leaves: the reply may be faster than this thread.
                self._awaits_reply = cut
                target.sendall(message.data)
            case How.HOLD:
                cut.release.wait()
                if not self._ended:
                    target.sendall(message.data)
                cut.done.set()

    def _finish(self, cut: Cut) -> None:
        self.end()
        cut.done.set()
