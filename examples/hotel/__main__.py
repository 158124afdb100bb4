"""`python -m examples.hotel`: the gateway and the servers as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

import argparse
import asyncio
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from examples.hotel.children import Child, DidNotStart
from examples.hotel.launching import (
    greet,
    listen,
    make_folder,
    run_until_stopped,
    start_all,
    start_gateway,
    watched_pipe,
)
from examples.hotel.parts import opened
from examples.hotel.sample import add_sample
from examples.hotel.settings import Settings
from semel.errors import SemelError

TRY = (
    "Double-click on Reserve, or on Pay, as fast as you like: there is one reservation, and one charge.",
    "Refresh, go back, close the tab in the middle of a payment, and come back: it goes on where it was.",
    "Switch the bad network on, so that answers get lost on the way: nothing happens twice.",
)


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.hotel", description="A hotel that cannot oversell.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument("--workers", type=int, default=1, help="how many server processes")
    parser.add_argument(
        "--database", help="sqlite:///hotel.db, postgresql://… or mysql://…; a file in .hotel/ by default"
    )
    options = parser.parse_args()
    try:
        asyncio.run(run_until_stopped(_run(options.port, options.workers, options.database)))
    except (DidNotStart, OSError, ValueError, SQLAlchemyError, SemelError) as error:
        sys.exit(f"The hotel did not start: {error}")


async def _run(port: int, workers: int, database: str | None) -> None:
    folder = make_folder(".hotel")
    settings = Settings.from_environment()
    url = database or os.environ.get("HOTEL_DATABASE") or f"sqlite:///{folder / 'hotel.db'}"
    async with opened(replace(settings, database=url)) as parts:
        await parts.prepare()
        await add_sample(parts.database, settings.clock)
    with listen(port) as listener:
        await _supervise(listener, folder / "ledger.jsonl", workers, url, asked_for=port)


async def _supervise(listener: socket.socket, ledger: Path, workers: int, url: str, *, asked_for: int) -> None:
    async with watched_pipe() as (watched, stack):
        gateway, address = await start_gateway(ledger, watched, stack)
        variables = {"HOTEL_DATABASE": url, "HOTEL_GATEWAY": address}
        fd = listener.fileno()
        servers = [
            Child("examples.hotel.serving", "--fd", str(fd), pipe=watched, fds=[fd], variables=variables)
            for _ in range(workers)
        ]
        await start_all(servers, stack)
        greet("The hotel is open at", listener.getsockname()[1], asked_for, TRY)
        await asyncio.gather(*(child.keep() for child in (gateway, *servers)))


if __name__ == "__main__":
    main()
