"""The asset service in one process, on SQLite: events arrive several times, in any order, and each takes effect once.

python -m examples.assets                     # in .assets/ of the current folder
python -m examples.assets --seed 7            # another order
python -m examples.assets --serve             # a page with buttons that send events, until Ctrl-C
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from examples.assets.processes import start
from examples.assets.sample import EVENTS, deliveries
from examples.assets.service import make_consumer
from examples.assets.sqlite import SqlitePlant
from examples.launching.children import DidNotStart
from examples.launching.launcher import greet, keep_all, listen, make_folder, run_until_stopped, supervise
from semel import AsyncSemel

TRY = (
    "Register a pump, and meter energy: choose fifty times, and it is added once.",
    "Send a whole life out of order: the end is the same as in order.",
    "Kill the process examples.assets.serving in the middle: it is started again, and what was sent counts once.",
)


async def deliver(folder: Path, seed: int) -> None:
    """Deliver the sample, and show what came of it."""
    plant = SqlitePlant(folder / "assets.db")
    delivered = deliveries(random.Random(seed))
    statuses: Counter[str] = Counter()
    async with AsyncSemel(f"sqlite:///{folder / 'assets.db'}") as semel:
        consumer = make_consumer(semel, plant, plant.transaction)
        for event in delivered:
            disposition = await consumer.handle(event)
            statuses[disposition.status] += 1
            print(f"  {event.id:<4} {event.type:<22} {event.subject or '':<7} {disposition.status}")
    print(f"\n{len(delivered)} deliveries of {len(EVENTS)} events: {describe(statuses)}\n")
    print(f"  {'asset':<8}{'facility':<10}{'kW':>6}  {'state':<12}{'load':>6}{'kWh':>8}")
    for asset, facility, _, capacity, state, load, kwh in plant.read():
        print(f"  {asset:<8}{facility:<10}{capacity:>6}  {state or '-':<12}{load or 0:>6}{kwh or 0:>8}")


def describe(statuses: Counter[str]) -> str:
    """How many deliveries ended in which way."""
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


async def serve(port: int, database: str | None) -> None:
    """Serve the page until cancelled."""
    url = database or f"sqlite:///{make_folder('.assets') / 'assets.db'}"
    with listen(port) as listener:
        async with supervise() as supervision:
            server = await start(supervision, listener, url=url)
            greet("The plant is at", listener.getsockname()[1], port, TRY)
            await keep_all([server])


def main() -> None:
    """Read the command line, and deliver or serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(".assets"), help="where the database is kept")
    parser.add_argument("--seed", type=int, default=1, help="which order the events arrive in")
    parser.add_argument("--serve", action="store_true", help="serve the page, instead of delivering the sample")
    parser.add_argument("--port", type=int, default=8000, help="of the page; the next free one is taken if it is not")
    parser.add_argument("--database", help="of the page: sqlite:///assets.db or postgresql://…; a file in .assets/")
    arguments = parser.parse_args()
    if arguments.serve:
        try:
            asyncio.run(run_until_stopped(serve(arguments.port, arguments.database)))
        except (DidNotStart, OSError, ValueError) as error:
            sys.exit(f"The plant did not start: {error}")
        return
    arguments.folder.mkdir(exist_ok=True)
    asyncio.run(deliver(arguments.folder, arguments.seed))


if __name__ == "__main__":
    main()
