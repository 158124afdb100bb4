"""One worker process: callers as threads, one `Semel` on the shared file. Started by the director, ended by it too.

What always holds: the worker ends when its stdin does, so it never outlives the director, however that ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from semel.api import Semel
from semel.core.policy import Policy
from semel.engine.call_flow import Result
from semel.errors import LeaseLost, SemelError, TryLater
from semel_lab.demo.ledger import Provider
from semel_lab.demo.messages import Answered, Ask, Charged, Event, Ready, Runs, Unanswered, ask_of, encode
from semel_lab.demo.scenario import LEASE, OPERATION, SHOP

POLICY = Policy(
    lease_for=timedelta(seconds=LEASE),
    wait_for=timedelta(seconds=30),
    keep_for=timedelta(hours=1),
    in_doubt="rerun",
)
_GIVE_UP = 60.0
_SLOW_REPLY = 120.0
_LAST_WORDS = 5.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the caller of a payment gets."""

    payment: str
    amount: Decimal
    charge: str


def payments(semel: Semel, provider: Provider, worker: str, say: Callable[[Event], None]) -> Callable[[Ask], None]:
    """What one caller does with an `Ask`: ask for the payment until there is an answer."""

    @semel.once(key="payment", scope="shop", operation=OPERATION, ignore=("ask",))
    def charge(shop: str, payment: str, amount: Decimal, ask: Ask) -> Receipt:  # noqa: ARG001 - the scope
        attempt = semel.current()
        say(Runs(payment, attempt.number, attempt.in_doubt))
        time.sleep(ask.before)
        # Outside our database: only the derived key, the same on every attempt, can make this happen once.
        key = attempt.derive("charge")
        entry = provider.charge(key, payment, str(amount), worker=worker, attempt=attempt.number)
        say(Charged(payment, attempt.number, entry.charge, entry.kind == "recognised"))
        # The reply to the first attempt of the fateful payment never comes: the worker is killed waiting for it.
        time.sleep(_SLOW_REPLY if ask.fateful and attempt.number == 1 else ask.after)
        return Receipt(payment, amount, entry.charge)

    def call(ask: Ask) -> None:
        came = datetime.now(UTC)
        try:
            result = _patiently(lambda: charge.result(SHOP, ask.payment, Decimal(ask.amount), ask))
        except SemelError as error:
            say(Unanswered(ask.call, ask.payment, error.code, error.message))
        except Exception as error:  # noqa: BLE001 - the director has to hear of it, whatever it is
            say(Unanswered(ask.call, ask.payment, type(error).__name__, str(error)))
        else:
            record = result.record
            ended = None if record is None else record.completed_at
            waited = result.replayed and ended is not None and ended > came
            say(Answered(ask.call, ask.payment, result.value.charge, result.replayed, waited))

    return call


def _patiently(call: Callable[[], Result[Receipt]]) -> Result[Receipt]:
    """Ask again with the same key where semel says so, as any client should."""
    give_up = time.monotonic() + _GIVE_UP
    while True:
        try:
            return call()
        except (TryLater, LeaseLost) as error:
            if time.monotonic() > give_up:
                raise
            time.sleep(min(getattr(error, "retry_after", timedelta(seconds=0.1)).total_seconds(), 1.0))


def main(name: str, records: str, ledger: str) -> None:
    """Serve the asks that come in on stdin, until it ends."""
    # What the director reads is written line by line, past Python's buffers; whatever else prints goes to the log.
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(event: Event) -> None:
        os.write(channel, encode(event) + b"\n")  # shorter than a pipe's buffer, so lines never mix

    semel = Semel(Path(records), policy=POLICY)
    call = payments(semel, Provider(Path(ledger)), name, say)
    say(Ready(os.getpid()))
    for line in sys.stdin.buffer:
        threading.Thread(target=call, args=(ask_of(line),), daemon=True).start()
    threading.Timer(_LAST_WORDS, os._exit, (1,)).start()
    semel.close()
    os._exit(0)  # handlers that are still running have nobody to answer


if __name__ == "__main__":
    main(*sys.argv[1:])
