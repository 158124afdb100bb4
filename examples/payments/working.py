"""The worker: runs the bulks that are open, beside as many others as there are. `python -m examples.payments.working`.

What always holds: a worker keeps nothing that is not in the database. One that dies leaves leases behind, which end by
themselves; the others go on with its payments, under the same keys.
"""

import argparse
import asyncio
import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.launching.logs import set_up_logging
from examples.payments.bulk import open_left
from examples.payments.bulk_file import BulkLine
from examples.payments.parts import Parts, opened
from examples.payments.paying import Declined, OtherPayment, Paying, PaymentClosed, PaymentOrder, Purpose
from examples.payments.settings import Settings
from examples.payments.sweeping import sweep
from examples.payments.tables import Bulk
from semel import AsyncAttempt
from semel.batch import BatchStatus, Item, Skip
from semel.errors import RecordNotFound

log = logging.getLogger(__name__)
BULKS_AT_ONCE = 4
MAY_FAIL = 10
"""So many payments of a bulk may fail, or a quarter of them if that is more; then it pauses, and somebody looks."""


@dataclass(frozen=True)
class OpenBulk:
    """A bulk to be run, as it was found."""

    account_id: str
    id: str
    opened: int


class Worker:
    """Runs bulks in this process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._paying = Paying(parts)
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def work(self) -> None:
        """Look for bulks and run them, until cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(self._parts.settings.poll_every.total_seconds())
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def run_bulk(self, bulk: OpenBulk) -> BatchStatus:
        """Run one bulk until it ends or is paused, and shut it then."""
        settings = self._parts.settings
        batch = await self._parts.batches(bulk.account_id).get(bulk.id, type=BulkLine)

        async def pay(item: Item, attempt: AsyncAttempt) -> dict[str, Any]:
            line: BulkLine = item.data
            if not line.amount:
                raise Skip("nothing to pay")
            order = PaymentOrder(line.amount, line.customer_id, line.payment_method_id)
            purpose = Purpose(bulk_id=bulk.id, asked_again=await self._when_asked_again(attempt))
            return await self._paying.pay(attempt, bulk.account_id, order, purpose)

        status = await batch.run(
            pay,
            concurrency=settings.concurrency,
            page=settings.page,
            max_failed=max(MAY_FAIL, batch.total // 4),
            max_attempts=settings.max_attempts,
            final_errors=(Declined, PaymentClosed, OtherPayment),
            in_doubt="rerun",  # safe, because a rerun finds the row of its payment and asks the gateway by its key
            lease_for=settings.lease_for,
        )
        if status.state not in ("loading", "pending", "running"):
            await self._shut(bulk)
        return status

    async def _when_asked_again(self, attempt: AsyncAttempt) -> datetime | None:
        """When somebody last asked for a line that had failed to be run again, however they did; None: never."""
        if attempt.fence == 1:
            return None  # nobody has had it in hand before, and so it has not failed
        history = await self._parts.semel.history(attempt.key)
        return max((entry.started for entry in history if entry.kind == "reopened"), default=None)

    async def _look(self) -> None:
        for key in [key for key, task in self._running.items() if task.done()]:
            del self._running[key]
        try:
            found = await find_open(self._parts)
        except Exception:
            log.exception("Bulks cannot be looked for; the next look is soon.")
            return
        for bulk in found:
            key = (bulk.account_id, bulk.id)
            if key not in self._running and len(self._running) < BULKS_AT_ONCE:
                self._running[key] = asyncio.create_task(self._run(bulk))

    async def _run(self, bulk: OpenBulk) -> None:
        try:
            await self.run_bulk(bulk)
        except RecordNotFound:
            await self._shut(bulk)
        except Exception:
            log.exception("The bulk %s stopped here; it is looked for again.", bulk.id)

    async def _shut(self, bulk: OpenBulk) -> None:
        async def shut(session: AsyncSession) -> None:
            # Closes the race with somebody who resumes it meanwhile: they have counted up `opened`.
            chosen = update(Bulk).where(
                Bulk.account_id == bulk.account_id, Bulk.id == bulk.id, Bulk.opened == bulk.opened
            )
            await session.execute(chosen.values(is_open=False))

        await self._parts.database.transact(shut)


async def find_open(parts: Parts, most: int = BULKS_AT_ONCE) -> list[OpenBulk]:
    """The oldest bulks that are open."""
    chosen = select(Bulk).where(Bulk.is_open).order_by(Bulk.created_at).limit(most)
    async with parts.database.reading() as session:
        return [OpenBulk(row.account_id, row.id, row.opened) for row in await session.scalars(chosen)]


async def sweep_for_ever(parts: Parts) -> None:
    """Sweep now and then; a sweep that fails is followed by the next."""
    every = parts.settings.sweep_every
    while every is not None:
        await asyncio.sleep(every.total_seconds())
        try:
            await sweep(parts)
            await open_left(parts)
            await parts.semel.sweep()  # and the same for semel: records and batches whose time is over
        except Exception:
            log.exception("A sweep failed; the next one begins in %s.", every)


async def _run_until_stopped(parent: int | None) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if parent is not None:
        loop.add_reader(parent, _look_at_parent, parent, stopped)
    async with opened(Settings.from_environment()) as parts:
        tasks = [asyncio.create_task(Worker(parts).work()), asyncio.create_task(sweep_for_ever(parts))]
        print("ready", flush=True)
        await stopped.wait()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def _look_at_parent(parent: int, stopped: asyncio.Event) -> None:
    if not os.read(parent, 1):
        asyncio.get_running_loop().remove_reader(parent)
        stopped.set()


def main() -> None:
    """Work until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.payments.working", description="A worker for bulks.")
    parser.add_argument("--parent-fd", type=int, help="a pipe; the worker stops at its end of file")
    set_up_logging()
    asyncio.run(_run_until_stopped(parser.parse_args().parent_fd))


if __name__ == "__main__":
    main()
