"""A process that begins a bulk action, or goes on with one, and may kill itself: `URL ID WHERE AT ACTION`.

WHERE is `before` an item, or `done`, when its action is carried out and nobody has written down that the item is done.
For events it is also `inside` their handler, before the effect, or `written`, when the effect is written and not
committed. AT is the item of this process at which it dies, 0 for never. The effect of an event is a row in `booked`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import aiosqlite

from semel import AsyncSemel
from semel.events import Consumer, Event
from semel.server import User
from semel.server.actions import Actions, make_actions
from semel.server.bulk import BulkActions, BulkRequest, LetterFilter

ADMIN = User("olga", {"admin"})
ASKED: dict[str, BulkRequest] = {
    "release": BulkRequest(action="release", reason="the bank was down", records={"status": "in_doubt"}),
    "resolve": BulkRequest(
        action="resolve", reason="the bank has them all", records={"status": "in_doubt"}, value={"receipt": 7}
    ),
    "erase": BulkRequest(action="erase", reason="request 17", records={"status": "completed", "operation": "charge"}),
    "redrive": BulkRequest(action="redrive", reason="the ledger is back", letters=LetterFilter("billing")),
    "discard": BulkRequest(action="discard", reason="test data", letters=LetterFilter("billing")),
}


def make_consumer(semel: AsyncSemel, path: str, where: str, meet: Callable[[str], None]) -> Consumer[AsyncSemel]:
    """Books events: in the transaction of their record, or, for a kill `inside`, by itself."""
    lease_for = timedelta(seconds=3)  # longer than that of the bulk action: it comes back while the event is claimed

    @asynccontextmanager
    async def transaction() -> AsyncIterator[aiosqlite.Connection]:
        async with aiosqlite.connect(path, timeout=30) as connection:
            yield connection
            await connection.commit()

    if where == "inside":
        alone = Consumer(semel, "billing", max_attempts=3, in_doubt="rerun", lease_for=lease_for)

        @alone.on("paid")
        async def book_alone(event: Event) -> None:
            meet("inside")
            async with transaction() as connection:
                await connection.execute("INSERT INTO booked (event) VALUES (?)", (event.id,))

        return alone
    consumer = Consumer(semel, "billing", max_attempts=3, transaction=transaction, lease_for=lease_for)

    @consumer.on("paid")
    async def book(event: Event, session: aiosqlite.Connection) -> None:
        await session.execute("INSERT INTO booked (event) VALUES (?)", (event.id,))
        meet("written")

    return consumer


async def main(url: str, id_: str, where: str, at: int, action: str) -> None:
    passed = 0

    def meet(place: str) -> None:
        nonlocal passed
        if place == where and at:
            passed += 1
            if passed == at:
                os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Actions):
        async def resolve(self, *args: Any, **named: Any) -> Any:
            if action != "resolve":
                return await super().resolve(*args, **named)
            return await self._die_after(super().resolve(*args, **named))

        async def release(self, *args: Any, **named: Any) -> Any:
            return await self._die_after(super().release(*args, **named))

        async def erase(self, *args: Any, **named: Any) -> Any:
            return await self._die_after(super().erase(*args, **named))

        async def redrive(self, *args: Any, **named: Any) -> Any:
            return await self._die_after(super().redrive(*args, **named))

        async def discard(self, *args: Any, **named: Any) -> Any:
            return await self._die_after(super().discard(*args, **named))

        async def _die_after(self, work: Awaitable[Any]) -> Any:
            done = await work
            meet("done")
            return done

    async with AsyncSemel(url) as semel:
        made = make_actions(semel)
        consumer = make_consumer(semel, url.removeprefix("sqlite:///"), where, meet)
        bulk = BulkActions(
            Dying(semel, made.audit, consumers=[consumer]),
            # A kill hits whatever is under way, and an effect outside a transaction may have happened unrecorded: for
            # it to die before an effect, nothing else may be under way.
            **({"concurrency": 1} if where == "inside" else {}),
            lease_for=timedelta(seconds=1),
            before_item=lambda _: meet("before"),
        )
        await bulk.start(ADMIN, replace(ASKED[action], id=id_))
        status = await bulk.run("", id_)
        print(status.state, status.completed, status.skipped, status.failed, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
