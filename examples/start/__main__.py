"""`python -m examples.start`: all services, and one page with buttons that make trouble for them, until Ctrl-C.

What always holds: nothing is printed as the address before everything answers. When this ends, however it ends, every
process that it started ends; the next start finds no process, no port and no file of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from examples.launching.children import DidNotStart
from examples.launching.launcher import address_of, greet, keep_all, listen, run_until_stopped, supervise
from examples.launching.logs import LINES, VARIABLE, set_up_logging
from examples.launching.postgresql import ServerMissing
from examples.start.console import start_console
from examples.start.everything import NAMES, Everything
from examples.start.folders import own_folder
from examples.start.operations import Operations
from examples.start.pages import Pages
from examples.start.runs import Runs
from examples.start.stores import SqliteStores, Stores, start_postgresql
from semel.errors import SemelError

TRY = (
    "Open it, click on Send it fifty times, and read the line that appears.",
    "Then lose replies, kill processes and stop the database: nothing happens twice.",
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    port: int
    on: Literal["sqlite", "postgresql"]


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.start", description="Everything, and ways to break it.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument(
        "--on",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="what the services run on: files, or a private server that is started and ends with this",
    )
    os.environ.setdefault(VARIABLE, LINES)  # for all that is started here, too
    set_up_logging()
    try:
        asyncio.run(run_until_stopped(_run(Options(**vars(parser.parse_args())))))
    except* (DidNotStart, ServerMissing, OSError, ValueError, SQLAlchemyError, SemelError) as errors:
        sys.exit(f"It did not start: {errors.exceptions[0]}")


async def _run(options: Options) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(own_folder())
        page = stack.enter_context(listen(options.port))
        sockets = [stack.enter_context(listen(page.getsockname()[1] + 1)) for _ in (*NAMES, "console")]
        await _serve(options, folder, page, sockets)


async def _serve(options: Options, folder: Path, page: socket.socket, sockets: list[socket.socket]) -> None:
    *services, console = sockets
    async with supervise() as supervision:
        stores: Stores = SqliteStores(folder)
        if options.on == "postgresql":
            stores = await start_postgresql(supervision, NAMES)
        hospital = address_of(services[NAMES.index("hospital")])
        links = {"hospital": {"The process": f"{hospital}/instances/{{process_instance}}"}}
        started, looking = await asyncio.gather(
            Everything(supervision, stores, folder, services).start(),
            # It opens the stores at its first request, when the services have made them.
            start_console(supervision, console, {name: stores.url(name) for name in NAMES}, links),
        )
        runs = Runs([one.service for one in started])
        supervision.stack.push_async_callback(runs.close)
        operations = Operations(address_of(console))
        supervision.stack.push_async_callback(operations.close)
        consoles = {name: f"{address_of(console)}/{name}/" for name in NAMES}
        app = Pages(runs, stores.name, consoles, operations.look).make_app()
        children = [*stores.children, looking, *(child for one in started for child in one.children)]
        async with _serving(app, page):
            greet("Start at", page.getsockname()[1], options.port, TRY)
            await keep_all(children)


class _Server(uvicorn.Server):
    """uvicorn, leaving Ctrl-C to the launcher, and saying when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def _serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the page in this process while the block runs."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.ready.wait()
        yield
    finally:
        server.should_exit = True
        await task


if __name__ == "__main__":
    main()
