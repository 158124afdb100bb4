"""An order placed once: goods reserved, card charged, order booked, through a crash in the middle.

python payment.py o-1                 places the order
python payment.py o-1 --crash         the same, but the process is killed right after the card was charged
"""

import json
import os
import signal
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

from semel import Policy, Semel, errors

PAYMENT = Policy(
    keep_for=timedelta(days=90),
    lease_for=timedelta(seconds=2),  # short, so that the tutorial does not wait; the default is 30 s
    wait_for=timedelta(seconds=10),
)
BOOKS = Path("provider.jsonl")

semel = Semel("sqlite:///shop.db", policy=PAYMENT)
shop = sqlite3.connect("shop.db")


def provider_charge(key: str, cents: int) -> str:
    """What the payment provider does: the same key again charges nothing and gives the first charge."""
    entries = [json.loads(line) for line in BOOKS.read_text().splitlines()] if BOOKS.exists() else []
    for entry in entries:
        if entry["key"] == key:
            return str(entry["id"])
    charge_id = f"ch_{len(entries) + 1}"
    with BOOKS.open("a") as books:
        books.write(json.dumps({"id": charge_id, "key": key, "cents": cents}) + "\n")
    return charge_id


def reserve(order_id: str) -> None:
    print("  reserving goods")
    shop.execute("INSERT INTO reservation VALUES (?)", (order_id,))


def charge(key: str, cents: int) -> str:
    print("  charging the card")
    charge_id = provider_charge(key, cents)
    if "--crash" in sys.argv:
        print("  killed!", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return charge_id


def book(order_id: str, charge_id: str) -> None:
    print("  booking the order")
    shop.execute("INSERT INTO booking VALUES (?, ?)", (order_id, charge_id))


@semel.once(key="order_id", operation="place-order")
def place_order(order_id: str, cents: int) -> str:
    attempt = semel.current()
    print(f"attempt {attempt.number}, in doubt: {attempt.in_doubt}")
    with shop:
        attempt.step("reserve", reserve, order_id, within=shop)
    charge_id = attempt.step("charge", charge, attempt.derive("charge"), cents)
    with shop:
        attempt.step("book", book, order_id, charge_id, within=shop)
    return charge_id


def main() -> None:
    with shop:
        shop.execute("CREATE TABLE IF NOT EXISTS reservation (order_id TEXT)")
        shop.execute("CREATE TABLE IF NOT EXISTS booking (order_id TEXT, charge_id TEXT)")
    with semel:
        try:
            result = place_order.result(sys.argv[1], 1250)
        except errors.TryLater as error:
            sys.exit(f"{error.code}: ask again in {error.retry_after.total_seconds():.0f} s")
    print(result.value, "replayed" if result.replayed else "ran")
    shop.close()


if __name__ == "__main__":
    main()
