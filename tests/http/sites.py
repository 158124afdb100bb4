"""The sites: an application of each framework on a real server, in processes of its own.

What always holds: a site listens on loopback, on a socket that was bound before its server started, so a request may be
sent at once; it is stopped, by the id of its process, when nobody needs it any more. A further framework is a module in
`apps` and a line here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.http import shop
from tests.http.gate import PATIENCE, Gate

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Site:
    """Which application runs on which server."""

    app: str
    server: str

    def command(self, descriptor: int, workers: int) -> list[str]:
        """How its server is started."""
        app = f"tests.http.apps.{self.app}:app"
        return [sys.executable, "-m", *_SERVERS[self.server](app, descriptor, workers)]


def _uvicorn(app: str, descriptor: int, workers: int) -> list[str]:
    return ["uvicorn", app, "--fd", str(descriptor), "--workers", str(workers), "--log-level", "warning"]


def _uvicorn_h11(app: str, descriptor: int, workers: int) -> list[str]:
    return [*_uvicorn(app, descriptor, workers), "--http", "h11"]


def _hypercorn(app: str, descriptor: int, workers: int) -> list[str]:
    return ["hypercorn", app, "--bind", f"fd://{descriptor}", "--workers", str(workers), "--log-level", "warning"]


def _gunicorn(app: str, descriptor: int, workers: int) -> list[str]:
    threads = ["--workers", str(workers), "--threads", "32", "--log-level", "warning", "--graceful-timeout", "3"]
    return ["gunicorn", app, "--bind", f"fd://{descriptor}", *threads]


_SERVERS = {"uvicorn": _uvicorn, "uvicorn-h11": _uvicorn_h11, "hypercorn": _hypercorn, "gunicorn": _gunicorn}

SITES = {
    "starlette-uvicorn": Site("starlette_app", "uvicorn"),
    "starlette-hypercorn": Site("starlette_app", "hypercorn"),
    "stacked-uvicorn": Site("stacked_app", "uvicorn"),
    "fastapi-uvicorn": Site("fastapi_app", "uvicorn"),
    "wsgi-gunicorn": Site("wsgi_app", "gunicorn"),
    "flask-gunicorn": Site("flask_app", "gunicorn"),
    "django-gunicorn": Site("django_app", "gunicorn"),
    "django-uvicorn": Site("django_async_app", "uvicorn"),
    "drf-gunicorn": Site("drf_app", "gunicorn"),
}
MORE_SITES = {
    "starlette-h11": Site("starlette_app", "uvicorn-h11"),
    "fastapi-h11": Site("fastapi_app", "uvicorn-h11"),
    "django-in-asgi-h11": Site("django_in_asgi_app", "uvicorn-h11"),
}
"""For what depends on how a server reads the first line: h11 takes more for a request than others do."""


class Running:
    """A site that is up."""

    def __init__(
        self,
        site: Site,
        store: str,
        folder: Path,
        *,
        workers: int = 1,
        settings: Any = None,
        limits: Any = None,
        file: Path | None = None,
    ) -> None:
        self.site = site
        self.store = store
        self.folder = folder
        self.gate = Gate()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        # uvicorn takes a socket that it is given for a local one and leaves Nagle's algorithm on: 40 ms an answer.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listener.getsockname()[1]
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=PATIENCE,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
        )
        environment = {
            **os.environ,
            shop.STORE: store,
            shop.FOLDER: str(folder),
            shop.GATE: str(self.gate.port),
            shop.SETTINGS: json.dumps(settings or {}),
            shop.LIMITS: json.dumps(limits or {}),
            shop.FILE: str(file or ""),
            "PYTHONPATH": str(ROOT),
        }
        descriptor = self._listener.fileno()
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            site.command(descriptor, workers),
            cwd=ROOT,
            env=environment,
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        """What the server and the application have written."""
        return (self.folder / "log").read_text(errors="replace")

    def effects(self) -> int:
        """How many effects there are."""
        path = self.folder / "effects"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def revoke(self, callers: Sequence[str]) -> None:
        """These have no right any more."""
        (self.folder / "revoked").write_text(" ".join(callers))

    def terminate(self) -> None:
        """Ask the server to end, as whoever deploys it does."""
        self._process.terminate()

    def wait(self) -> int:
        """The exit status of the server, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """Stop the server, and everything that it started."""
        self.client.close()
        try:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._listener.close()
        self.gate.listener.close()
        self._log.close()
