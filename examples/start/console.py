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
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from examples.launching.children import Child
from examples.launching.launcher import HOST, Supervision, start_all
from examples.launching.serving import serve
from examples.start.operations import LATEST_PATH
from semel import AsyncSemel
from semel.errors import SemelError
from semel.server import User, console_app
from semel.server.actions import Actions, make_actions
from semel.server.attention import needs_of

STORES: Final = "START_STORES"
LINKS: Final = "START_LINKS"
YOU: Final = User("you", roles={"admin"})
LATEST: Final = 3
_READ: Final = 20
"""How many are read to find the latest that are not semel's own, such as the claims of a relay."""
_LONGEST: Final = 40


async def start_console(
    supervision: Supervision, listener: socket.socket, stores: Mapping[str, str], links: Mapping[str, Mapping[str, str]]
) -> Child:
    """Start it on these stores, by the names of their services; it answers on `listener`, and links back to them."""
    fd = listener.fileno()
    child = Child(
        "examples.start.console",
        *("--fd", str(fd)),
        pipe=supervision.watched,
        fds=[fd],
        variables={
            STORES: json.dumps(dict(stores)),
            LINKS: json.dumps({name: dict(one) for name, one in links.items()}),
        },
    )
    await start_all([child], supervision)
    return child


def make_app(stores: Mapping[str, str], links: Mapping[str, Mapping[str, str]]) -> Starlette:
    """The consoles of these stores, each below its name, and what is seen of all of them at a glance."""
    engines = {name: AsyncSemel(url) for name, url in stores.items()}
    actions = {name: make_actions(semel) for name, semel in engines.items()}

    def find_user(request: Request) -> User:
        return YOU

    async def tell_latest(request: Request) -> Response:
        return JSONResponse({name: told for name in engines if (told := await _summarize(actions[name])) is not None})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for semel in engines.values():
            await semel.close()

    consoles = [
        Mount(f"/{name}", console_app(semel, user=find_user, links=links.get(name))) for name, semel in engines.items()
    ]
    # Else a page of another site, whose name was made to lead here, could ask and act as the administrator.
    only_here = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)
    return Starlette(routes=[Route(LATEST_PATH, tell_latest), *consoles], lifespan=lifespan, middleware=[only_here])


async def _summarize(actions: Actions) -> dict[str, Any] | None:
    """The latest operations of a store, and how many need a person; None where it is away."""
    try:
        page = await actions.list(YOU, limit=_READ, newest_first=True)
        needs = await needs_of(actions, YOU)
    except SemelError:
        return None
    shown = [record for record in page.records if not record.key.operation.startswith("semel:")][:LATEST]
    return {
        "needs": needs.number,
        "latest": [
            {
                "status": str(record.status),
                "operation": record.key.operation,
                "key": _shorten(record.key.value),
                "replays": record.replays,
                "reference": record.reference,
            }
            for record in shown
        ],
    }


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


if __name__ == "__main__":
    serve("examples.start.console", lambda: make_app(json.loads(os.environ[STORES]), json.loads(os.environ[LINKS])))
