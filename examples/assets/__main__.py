"""The asset service in one process, on SQLite: events arrive several times, in any order, and each takes effect once.

python -m examples.assets                     # in .assets/ of the current folder
python -m examples.assets --seed 7            # another order
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from pathlib import Path

from examples.assets.sample import EVENTS, deliveries
from examples.assets.service import make_consumer
from examples.assets.sqlite import SqlitePlant
from semel import AsyncSemel


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


def main() -> None:
    """Read the command line, and deliver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(".assets"), help="where the database is kept")
    parser.add_argument("--seed", type=int, default=1, help="which order the events arrive in")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    asyncio.run(deliver(arguments.folder, arguments.seed))


if __name__ == "__main__":
    main()
