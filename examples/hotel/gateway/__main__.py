"""`python -m examples.hotel.gateway --ledger FILE`: the gateway as a process, on the loopback interface only.

What always holds: the first line on stdout is the address, and connections are accepted from then on. SIGTERM, Ctrl-C
and the end of `--parent-fd` stop it with exit code 0; a charge that is still delayed then writes nothing.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from examples.hotel.gateway.app import make_app
from examples.hotel.gateway.faults import Droppable, Faults
from examples.hotel.gateway.ledger import Ledger, LedgerUnusable

HOST = "127.0.0.1"


def main() -> None:
    """Serve until told to stop."""
    options = _options()
    # uvicorn stops cleanly on these and then raises them again for whoever was there before: that is this handler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        ledger = Ledger(options.ledger)
        listener = _listen(options.port)
    except (LedgerUnusable, OSError) as error:
        sys.exit(f"The gateway did not start: {error}")
    with listener:
        print(f"http://{HOST}:{listener.getsockname()[1]}", flush=True)
        asyncio.run(_serve(ledger, listener, options.delay, options.parent_fd))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.hotel.gateway", description="A small payment gateway.")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--ledger", type=Path, required=True, help="the append-only file; made if absent")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each new charge takes")
    parser.add_argument("--parent-fd", type=int, help="a pipe; the gateway stops at its end of file")
    return parser.parse_args()


def _listen(port: int) -> socket.socket:
    # Listening before the address is printed: who reads the line may connect at once.
    listener = socket.create_server((HOST, port), backlog=512)
    # asyncio leaves Nagle's algorithm on for a listener that it is given, and each answer would take 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _serve(ledger: Ledger, listener: socket.socket, delay: float, parent: int | None) -> None:
    config = uvicorn.Config(
        make_app(ledger, Faults(delay)),
        http=Droppable,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    if parent is not None:
        _watch(parent, server)
    await server.serve(sockets=[listener])


def _watch(parent: int, server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(parent, 1024):
            loop.remove_reader(parent)
            server.should_exit = True

    loop.add_reader(parent, readable)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
