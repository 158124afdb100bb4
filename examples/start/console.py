"""The console of every service as one process: `python -m examples.start.console --fd 3`, each below its name.

What always holds: the services know nothing of it. It reads their stores, and what it changes there is the same as what
the command `semel` does. Whoever reaches it on this machine is an administrator; it listens on the loopback interface
alone.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from examples.launching.children import Child
from examples.launching.launcher import Supervision, start_all
from examples.launching.serving import serve
from semel import AsyncSemel
from semel.server import User, console_app

STORES: Final = "START_STORES"


async def start_console(supervision: Supervision, listener: socket.socket, stores: Mapping[str, str]) -> Child:
    """Start it on these stores, by the names of their services; it answers on `listener`."""
    fd = listener.fileno()
    child = Child(
        "examples.start.console",
        *("--fd", str(fd)),
        pipe=supervision.watched,
        fds=[fd],
        variables={STORES: json.dumps(dict(stores))},
    )
    await start_all([child], supervision)
    return child


def make_app(stores: Mapping[str, str]) -> Starlette:
    """The consoles of these stores, each below its name."""
    engines = {name: AsyncSemel(url) for name, url in stores.items()}

    def find_user(request: Request) -> User:
        return User("you", roles={"admin"})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for semel in engines.values():
            await semel.close()

    routes = [Mount(f"/{name}", console_app(semel, user=find_user)) for name, semel in engines.items()]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    serve("examples.start.console", lambda: make_app(json.loads(os.environ[STORES])))
