"""A shop whose console is looked at: records of every kind, batches, events, and texts that mean harm."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from semel import AsyncSemel, DidNotHappen, Policy, Semel, errors
from semel.batch import Batches
from semel.events import Backoff, Consumer, Event, Outbox, Relay

HOSTILE: Final = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'`{{7*7}}"
BIDI: Final = "order-\u202egnp.exe\u2066"
BIG: Final = 12345678901234567890123456789
_SEED: Final = 7
_SPREAD_MINUTES: Final = 90


class Declined(Exception):
    """The card was declined."""


class Unreachable(Exception):
    """Nobody knows whether it happened."""


FINAL: Final = Policy(final_errors=(Declined,), keep_for=timedelta(days=7))
RETRIED: Final = Policy(retry_errors=(Declined,))
HOLD: Final = Policy(in_doubt="hold", keep_for=timedelta(days=7))


def fill(path: Path, *, records: int = 120) -> None:
    """Make a store with something of everything."""
    with Semel(path) as semel:
        fill_store(semel, records=records)
    _spread(path)


def fill_store(semel: Semel, *, records: int = 120) -> None:
    """The same in any store; all of it happens now."""
    _run_many(semel, records)
    _run_special(semel)
    _keep_letters(semel)
    _run_batches(semel)


def _run(semel: Semel, key: str, outcome: Any = None, *, operation: str = "charge", **settings: Any) -> None:
    def handler() -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    try:
        semel.run(key, handler, operation=operation, fingerprint=None, **settings)
    except (Declined, Unreachable, errors.SemelError):
        return


def _run_many(semel: Semel, records: int) -> None:
    """What a shop does all day, with duplicates."""
    chance = random.Random(_SEED)
    for number in range(records):
        operation = chance.choice(("charge", "charge", "book_room", "send_mail"))
        scope = chance.choice(("acme", "globex"))
        about = {"business_key": f"order-{number // 3}", "subject": f"guest-{number % 17}", "requester": "web"}
        outcome: Any = {"id": f"ch_{number}", "cents": 1250 + number}
        policy = FINAL
        if number % 19 == 0:
            outcome = Declined("insufficient funds")
            policy = FINAL if number % 2 else RETRIED
        for _ in range(1 + (number % 5 == 0) * chance.randrange(1, 5)):
            _run(semel, f"o-{number}", outcome, operation=operation, scope=scope, about=about, policy=policy)


def _run_special(semel: Semel) -> None:
    """What is in doubt, hostile, large, part of a process, or already decided about."""
    process = {
        "process_instance": "proc-7",
        "business_key": "claim-7",
        "tags": {"activity": "SUB_06", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"},
    }
    for number in range(3):
        about = {"business_key": f"claim-{number}", "subject": "patient-7"}
        _run(semel, f"pay-{number}", Unreachable("read timed out"), scope="acme", policy=HOLD, about=about)
    _run(semel, "ship-1", Unreachable("connection reset"), operation="ship", scope="globex", policy=HOLD)
    _run(semel, HOSTILE, {HOSTILE: HOSTILE}, operation="import", scope="acme", about={"subject": HOSTILE})
    _run(semel, BIDI, Unreachable(HOSTILE), operation="import", scope="acme", policy=HOLD)
    _run(
        semel, "big", {"balance": BIG, "share": 0.1, "note": "äöü €"}, operation="balance", scope="acme", about=process
    )
    _run(semel, "claim-7", {"paid": True}, operation="submit_claim", scope="acme", about=process)
    _run(semel, "claim-7", Declined("refused"), operation="post_payment", scope="acme", about=process, policy=FINAL)
    _run(semel, "again", Unreachable("timeout"), operation="ship", scope="acme", policy=HOLD)
    semel.resolve(
        "again", DidNotHappen(), operation="ship", scope="acme", reason="the carrier has no parcel", by="olga"
    )
    _run(semel, "again", {"parcel": 9}, operation="ship", scope="acme", policy=HOLD)


def _keep_letters(semel: Semel) -> None:
    consumer = Consumer(semel, "billing", max_attempts=1, scope="acme", backoff=Backoff(first=timedelta(0)))

    @consumer.on("order.placed")
    def placed(event: Event) -> None:
        raise Declined(f"no account {event.subject}")

    for number in range(4):
        event = Event(
            type="order.placed", source="/shop", id=f"e-{number}", subject=f"order-{number}", data={"n": number}
        )
        consumer.handle(event)
    consumer.handle(Event(type="order.placed", source="/shop", id="e-x", subject=HOSTILE, data={HOSTILE: HOSTILE}))


def keep_letters(semel: Semel, subject: str) -> None:
    """Three more letters about one subject."""
    consumer = Consumer(semel, "billing", max_attempts=1, scope="acme", backoff=Backoff(first=timedelta(0)))

    @consumer.on("order.placed")
    def placed(event: Event) -> None:
        raise Declined(f"no account {event.subject}")

    for number in range(3):
        consumer.handle(
            Event(type="order.placed", source="/shop", id=f"{subject}-{number}", subject=subject, data={"n": number})
        )


def _run_batches(semel: Semel) -> None:
    for scope, id_, count, bad, most in (
        ("acme", "payroll-2026-11", 240, 12, 5),
        ("acme", "payroll-2026-10", 180, 3, None),
        ("globex", HOSTILE, 4, 0, None),
    ):
        items = [
            {"id": f"p-{number}", "fails": number % (count // bad) == 0 if bad else False} for number in range(count)
        ]
        batch = Batches(semel, scope).start(id_, items, operation="bulk_payment", item_id="id", metadata={"month": 11})

        def pay(data: Any) -> None:
            if data["fails"]:
                raise Declined("account closed")

        batch.run(pay, concurrency=1, page=20, max_failed=most, final_errors=(Declined,))


class _Refuses:
    """A broker that takes no event of one kind."""

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [Declined("no such exchange") if event.type == "order.lost" else None for event in events]


async def park_events(path: Path, key: str = "order-0") -> None:
    """Have some events parked, the first two in the order of a key, and leave some waiting."""
    async with AsyncSemel(path) as semel:
        outbox = Outbox(semel)
        for number, kind in enumerate(("order.lost", "order.paid", "order.placed")):
            event = Event(type=kind, source="/shop", id=f"o-{number}", subject=f"order-{number}", data={"n": number})
            await outbox.add(event, ordering_key=key if number < 2 else None, scope="acme", autonomous=True)
        relay = Relay(outbox, _Refuses(), max_attempts=1)
        await relay.run_once()
        for number in range(3):
            event = Event(type="order.late", source="/shop", id=f"l-{number}", subject="late", data=None)
            await outbox.add(event, scope="acme", autonomous=True)


def _spread(path: Path) -> None:
    """Let it have happened over the last hour and a half."""
    chance = random.Random(_SEED)
    with closing(sqlite3.connect(path)) as rows, rows:
        for (digest,) in rows.execute("SELECT digest FROM semel_record ORDER BY created_us, digest").fetchall():
            minutes = _SPREAD_MINUTES * (1 - chance.random() ** 1.6)
            earlier, took = int(minutes * 60e6), int(10 ** chance.uniform(3.2, 6.3))
            rows.execute("UPDATE semel_search SET created_us = created_us - ? WHERE digest = ?", (earlier, digest))
            rows.execute(
                "UPDATE semel_history SET life = life - ?, started_us = started_us - ?, ended_us = ended_us - ? "
                "WHERE digest = ?",
                (earlier, earlier, earlier, digest),
            )
            rows.execute(
                "UPDATE semel_record SET created_us = created_us - ?, started_us = started_us - ?, "
                "updated_us = updated_us - ?, completed_us = completed_us - ? + ?, replayed_us = replayed_us - ? "
                "WHERE digest = ?",
                (earlier, earlier, earlier, earlier, took, earlier, digest),
            )
