"""`python -m examples.hotel`: the gateway and the servers as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

import argparse
import asyncio
import os
import sys

from sqlalchemy.exc import SQLAlchemyError

from examples.hotel.processes import prepare, start
from examples.launching.children import DidNotStart
from examples.launching.launcher import greet, keep_all, listen, make_folder, run_until_stopped, supervise
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
    url = database or os.environ.get("HOTEL_DATABASE") or f"sqlite:///{folder / 'hotel.db'}"
    await prepare(url)
    with listen(port) as listener:
        async with supervise() as supervision:
            hotel = await start(supervision, listener, url=url, ledger=folder / "ledger.jsonl", servers=workers)
            greet("The hotel is open at", listener.getsockname()[1], port, TRY)
            await keep_all(hotel.all)


if __name__ == "__main__":
    main()
