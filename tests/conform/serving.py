"""Serves a `Service` on a free port of the loopback interface, from threads of this process."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conform.service import HEADER, Asked, Service


class Server(ThreadingHTTPServer):
    """As many connections at once as a burst has copies."""

    request_queue_size = 128
    service: Service

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up before it read is what some cases are made of."""


class Handler(BaseHTTPRequestHandler):
    """Hands a request to the service, whatever its method."""

    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.service.connection(+1)

    def finish(self) -> None:
        self.server.service.connection(-1)
        super().finish()

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        asked = Asked(
            self.command,
            self.path,
            tuple(self.headers.get_all(HEADER) or ()),
            self.headers.get("Authorization") or "",
            body,
            len(body) == length,
            lambda: _left(self.connection),
        )
        told = self.server.service.answer(asked)
        self.send_response(told.status)
        for name, value in told.fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(told.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(told.body)

    do_GET = do_HEAD = do_OPTIONS = do_POST = answer  # noqa: N815 - named by the standard library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the standard library
        """Say nothing."""


def _left(connection: socket.socket) -> bool:
    """Whether the client hung up; looks for a moment, as the news may be on its way."""
    readable, _, _ = select.select([connection], [], [], 0.1)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """The URL of the service, for as long as it is served."""
    with Server(("127.0.0.1", 0), Handler) as server:
        server.service = service
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
