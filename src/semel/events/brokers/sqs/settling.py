"""What SQS is told of messages: which are deleted, and when the others are to be delivered again. Ten by one request.

- A request may fail in part. What failed for a moment is told again, and nothing else is: a handle that is no longer
  valid means that somebody else was given the message, and what is not deleted comes again.
- The visibility of a message that is not ours any more is not changed: it would be somebody else's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from semel.errors import UsageError
from semel.events.brokers.aws import is_passing_code, translating
from semel.events.brokers.listening import log
from semel.events.brokers.sqs.messages import Held, in_tens

_TRIES: Final = 5
_PAUSE: Final = 0.2


@dataclass(slots=True, eq=False)
class _Order:
    """Delete a message, or have it delivered again after so many seconds."""

    held: Held
    after: float | None
    tries: int = 0


class Settler:
    """Tells SQS of messages soon, and of many together.

    Args:
        client: of SQS.
        url: of the queue.
        forget: is called with each message that SQS was told of, or cannot be told of.

    Attributes:
        has_failed: is given the error by which SQS refuses what it is told.
    """

    def __init__(self, client: Any, url: str, forget: Callable[[Held], None]) -> None:
        self._client = client
        self._url = url
        self._forget = forget
        self._orders: list[_Order] = []
        self._task: asyncio.Task[None] | None = None
        self.has_failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def delete(self, held: Held) -> None:
        """The message is done with."""
        self._add(_Order(held, None))

    def deliver_after(self, held: Held, seconds: float) -> None:
        """Have it delivered again, not before."""
        self._add(_Order(held, seconds))

    async def finish(self) -> None:
        """Tell what was not told yet."""
        if self._task is not None:
            await self._task

    def _add(self, order: _Order) -> None:
        self._orders.append(order)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._orders:
            await asyncio.sleep(0)  # what becomes ready at the same time is told together
            orders, self._orders = self._orders, []
            deletions = [order for order in orders if order.after is None]
            changes = [order for order in orders if order.after is not None]
            failed = await asyncio.gather(
                *(self._send(some, self._send_deletions) for some in in_tens(deletions)),
                *(self._send(some, self._send_changes) for some in in_tens(changes)),
            )
            again = [order for orders in failed for order in orders]
            self._orders[:0] = again
            if again:
                await asyncio.sleep(_PAUSE)

    async def _send(
        self, orders: Sequence[_Order], send: Callable[[Sequence[_Order]], Awaitable[Sequence[_Order]]]
    ) -> list[_Order]:
        """Tell SQS of up to ten messages; gives those that it has to be told of again."""
        again: Sequence[_Order] = ()
        try:
            again = await send(orders)
        except ConnectionError:
            again = orders
        except UsageError as error:
            if not self.has_failed.done():
                self.has_failed.set_exception(error)
        for order in again:
            order.tries += 1
        left = [order for order in again if order.tries < _TRIES]
        for order in orders:
            if order not in left:
                self._forget(order.held)
        return left

    async def _send_deletions(self, orders: Sequence[_Order]) -> Sequence[_Order]:
        entries = [{"Id": str(place), "ReceiptHandle": order.held.handle} for place, order in enumerate(orders)]
        with translating("SQS"):
            reply = await self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
        return _failed_for_a_moment(orders, reply)

    async def _send_changes(self, orders: Sequence[_Order]) -> Sequence[_Order]:
        for order in orders:
            await order.held.stop_extensions()
        ours = [order for order in orders if order.held.is_ours]
        entries = [
            {
                "Id": str(place),
                "ReceiptHandle": order.held.handle,
                "VisibilityTimeout": order.held.hidden_for(math.ceil(order.after or 0)),
            }
            for place, order in enumerate(ours)
        ]
        if not entries:
            return ()
        with translating("SQS"):
            reply = await self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
        return _failed_for_a_moment(ours, reply)


def _failed_for_a_moment(orders: Sequence[_Order], reply: dict[str, Any]) -> list[_Order]:
    again = []
    for failure in reply.get("Failed", ()):
        if is_passing_code(failure.get("Code", "")) or not failure.get("SenderFault", False):
            again.append(orders[int(failure["Id"])])
        else:
            log.debug("a message of SQS is not ours any more (%s)", failure.get("Code"))
    return again


async def extend_visibility(client: Any, url: str, messages: Sequence[Held], seconds: float) -> None:
    """Keep messages hidden from others for so long from now on.

    Raises:
        ConnectionError: SQS cannot be reached.
    """
    extended = [held for held in messages if held.begin_extension()]
    try:
        requests = [_extend(client, url, some, seconds) for some in in_tens(extended)]
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
    finally:
        for held in extended:
            held.end_extension()


async def _extend(client: Any, url: str, messages: Sequence[Held], seconds: float) -> None:
    lengths = {held: held.hidden_for(seconds) for held in messages}
    possible = [held for held, length in lengths.items() if length > 0]
    if not possible:
        return
    now = time.monotonic()
    entries = [
        {"Id": str(place), "ReceiptHandle": held.handle, "VisibilityTimeout": lengths[held]}
        for place, held in enumerate(possible)
    ]
    with translating("SQS"):
        reply = await client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    for success in reply.get("Successful", ()):
        held = possible[int(success["Id"])]
        held.visible_at = now + lengths[held]
    for failure in reply.get("Failed", ()):
        if failure.get("SenderFault", False):
            possible[int(failure["Id"])].visible_at = now  # somebody else was given it
