"""A meter that adds up: each reading is an event, which arrives as often as the network likes.

python meter.py e-1 5.0               delivers the reading e-1 of 5 kWh
python meter.py e-1 5.0 --crash       the same, but the process is killed after it added, before it commits
python meter.py --total               shows the sum
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from semel import Semel
from semel.events import Consumer, Event


class Reading(msgspec.Struct):
    """What the meter tells."""

    kwh: float


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Begin; commit at the end, or roll back."""
    with closing(sqlite3.connect("meter.db")) as connection, connection:
        yield connection


semel = Semel("sqlite:///meter.db")
consumer = Consumer(semel, "billing", transaction=transaction)


@consumer.on("energy.metered")
def add(event: Event, data: Reading, session: sqlite3.Connection) -> None:
    print(f"adding {data.kwh} kWh")
    session.execute("UPDATE total SET kwh = kwh + ?", (data.kwh,))
    if "--crash" in sys.argv:
        print("killed!", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    with transaction() as session:
        session.execute("CREATE TABLE IF NOT EXISTS total (kwh REAL)")
        session.execute("INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total)")
    if "--total" in sys.argv:
        with transaction() as session:
            print(session.execute("SELECT kwh FROM total").fetchone()[0], "kWh")
        return
    event = Event(id=sys.argv[1], type="energy.metered", source="/meters/7", data={"kwh": float(sys.argv[2])})
    with semel:
        disposition = consumer.handle(event)
    print(f"{disposition.status}: {disposition.action}")


if __name__ == "__main__":
    main()
