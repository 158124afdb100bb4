"""A worker of Temporal in a process of its own, which is killed: `python -m tests.workflow.temporal_worker …`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Worker

from semel import AsyncSemel
from semel.workflow.engines.temporal import activity
from tests.workflow.ledger import Ledger
from tests.workflow.temporal_clinic import PayOnce
from tests.workflow.temporal_workflows import RevenueCycle


async def work(address: str, queue: str, folder: Path, *, hangs: bool) -> None:
    """Work until killed. One that hangs says so in a file, once the bank was asked."""
    client = await Client.connect(address)
    semel = AsyncSemel(f"sqlite:///{folder}/semel.db")
    pay = PayOnce(semel, Ledger(folder / "bank.db"))
    if hangs:

        async def hang() -> None:
            (folder / "hangs").touch()
            await asyncio.Event().wait()

        pay.after = hang
    activities = [activity(pay, name="payment")]
    # Without a cache the server does not wait ten seconds for the one that died to go on with its workflow.
    async with Worker(
        client, task_queue=queue, workflows=[RevenueCycle], activities=activities, max_cached_workflows=0
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), hangs=sys.argv[4] == "hangs"))
