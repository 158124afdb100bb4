"""The process that serves an app for a run: `python -m semel_lab.conform.server_process asgi|wsgi MODULE:APP SOCKET`.

What always holds: it ends when its standard input does, so it never outlives the run that started it.
"""

from __future__ import annotations

import importlib
import operator
import os
import socket
import sys
import threading
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from semel.extras import requires

_FAILED: Final = 2
_CHUNK: Final = 1024


class _Handler(WSGIRequestHandler):
    """Without a line for every request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the standard library
        """Say nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for every connection, on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(("127.0.0.1", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()
        self.setup_environ()


def main(arguments: list[str]) -> int:
    """Serve until somebody ends it."""
    kind, name, place = arguments
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    sys.path.insert(0, str(Path.cwd()))
    try:
        app = _found(name)
        listener = socket.socket(fileno=int(place))
        return _serve_asgi(app, listener) if kind == "asgi" else _serve_wsgi(app, listener)
    except Exception as error:  # noqa: BLE001 - whatever the app raises is said in one line to the one who started us
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return _FAILED


def _found(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute or "app")(importlib.import_module(module))


def _serve_asgi(app: Any, listener: socket.socket) -> int:
    with requires("semel conform --app", "uvicorn"):
        import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    server.run(sockets=[listener])
    return 0 if server.started else _FAILED


def _serve_wsgi(app: Any, listener: socket.socket) -> int:
    with _Server(listener) as server:
        server.set_app(app)
        server.serve_forever()
    return 0


def _end_with_the_run() -> None:
    # Not through sys.stdin: this thread would hold its lock when the interpreter ends, which is fatal, and the message
    # about an app that cannot be served would be followed by one about that.
    while os.read(sys.stdin.fileno(), _CHUNK):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
