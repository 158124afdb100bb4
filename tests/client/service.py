"""A small honest service on a real socket: it runs each key once, and can be told to fail on the way.

What always holds: an effect is counted exactly when it happens. A key that is known gets the answer of the first time.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Headers = dict[str, str]
POLICY = "/.well-known/idempotency-policy"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: Headers
    body: bytes

    @property
    def key(self) -> str | None:
        """The key, without its quotes."""
        value = self.headers.get("idempotency-key")
        return None if value is None else value.strip('"')


@dataclass(frozen=True)
class Say:
    """Answer so, and run nothing."""

    status: int
    headers: Headers = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class CutBefore:
    """Run it, and end the connection without an answer."""


@dataclass(frozen=True)
class CutInside:
    """Run it, and end the connection in the middle of the answer."""

    chunked: bool = False


@dataclass(frozen=True)
class Hold:
    """Say that it arrived, wait to be let go, then run it."""

    arrived: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


Turn = Say | CutBefore | CutInside | Hold


class Service:
    """What it saw, what it did, and what it is told to do; next `turns` first, then honestly."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.effects: Counter[str] = Counter()
        self.turns: defaultdict[str, deque[Turn]] = defaultdict(deque)
        self.always: dict[str, Say] = {}
        self.policy = Say(404)
        self.on_arrival: Callable[[Seen], None] = lambda seen: None
        self.connections = 0
        self._known: dict[str, Say] = {}
        self._lock = threading.Lock()

    def next(self, path: str, *turns: Turn) -> None:
        """What to do with the next requests to `path`."""
        self.turns[path].extend(turns)

    def asked(self, path: str | None = None) -> list[Seen]:
        """Unsafe requests, in order."""
        return [seen for seen in self.seen if seen.method != "GET" and (path is None or seen.path == path)]

    def keys(self, path: str | None = None) -> list[str | None]:
        """Their keys."""
        return [seen.key for seen in self.asked(path)]

    def turn(self, seen: Seen) -> Turn | None:
        """What to do with this one; None to be honest. To be asked for the policy document is nothing to tell."""
        if seen.path == POLICY:
            return self.policy
        with self._lock:
            self.seen.append(seen)
            line = self.turns[seen.path]
            turn = line.popleft() if line else self.always.get(seen.path)
        self.on_arrival(seen)
        return turn

    def ran(self, seen: Seen) -> Say:
        """Run it once for its key."""
        with self._lock:
            if seen.key is not None and seen.key in self._known:
                return self._known[seen.key]
            self.effects[seen.path] += 1
            answer = Say(201, {"X-Number": str(self.effects[seen.path])}, b'{"path": "%b"}' % seen.path.encode())
            if seen.key is not None:
                self._known[seen.key] = answer
            return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    service: Service

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.service.connections += 1

    def handle_one_request(self) -> None:
        self.close_connection = True
        super().handle_one_request()

    def _any(self) -> None:
        service = self.server.service
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        seen = Seen(self.command, self.path, headers, body)
        match service.turn(seen):
            case None:
                self._say(service.ran(seen))
            case Say() as say:
                self._say(say)
            case Hold(arrived, go):
                arrived.set()
                go.wait(60)
                self._say(service.ran(seen))
            case CutBefore():
                service.ran(seen)
                self.close_connection = True
            case CutInside(chunked):
                self._cut(service.ran(seen), chunked=chunked)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - the names that http.server calls

    def _cut(self, say: Say, *, chunked: bool) -> None:
        self.send_response(say.status)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(say.body)))
        self.end_headers()
        half = say.body[: len(say.body) // 2]
        self.wfile.write(b"%x\r\n%b\r\n" % (len(half), half) if chunked else half)
        self.close_connection = True

    def _say(self, say: Say) -> None:
        self.send_response(say.status)
        for name, value in say.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(say.body)))
        self.end_headers()
        self.wfile.write(say.body)

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def running() -> Iterator[Service]:
    """A service on a free port of the loopback interface."""
    server = _Server(("127.0.0.1", 0), _Handler)
    service = server.service = Service()
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
