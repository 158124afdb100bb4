"""One server process of an example: `python -m … --fd 3`, on a socket that whoever started it listens on.

What always holds: it says "ready" on stdout once it answers. SIGTERM, Ctrl-C and the end of `--parent-fd` stop it with
exit code 0, after the requests that run have been answered.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from examples.launching.logs import set_up_logging


class Server(uvicorn.Server):
    """uvicorn, saying when it is ready."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


def serve(module: str, make: Callable[[], Starlette], *, protocol: type[asyncio.Protocol] | None = None) -> None:
    """Serve what `make` makes until told to stop; `protocol` is uvicorn's own by default."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description="One server process.")
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    parser.add_argument("--parent-fd", type=int, help="a pipe; the server stops at its end of file")
    options = parser.parse_args()
    # uvicorn stops cleanly on these and then raises them again for whoever was there before: that is this handler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(0))
    set_up_logging()
    asyncio.run(_serve(make, protocol, options.fd, options.parent_fd))


async def _serve(
    make: Callable[[], Starlette], protocol: type[asyncio.Protocol] | None, listener: int, parent: int | None
) -> None:
    config = uvicorn.Config(
        make(),
        http=protocol or "auto",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = Server(config)
    if parent is not None:
        asyncio.get_running_loop().add_reader(parent, _parent_is_gone, parent, server)
    with socket.socket(fileno=listener) as listening:
        await server.serve(sockets=[listening])


def _parent_is_gone(parent: int, server: uvicorn.Server) -> None:
    if not os.read(parent, 1):
        asyncio.get_running_loop().remove_reader(parent)
        server.should_exit = True
