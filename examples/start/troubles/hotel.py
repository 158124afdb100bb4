"""Trouble for the hotel: a guest pays for a room while something goes wrong."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from examples.hotel.processes import HotelProcesses
from examples.hotel.sample import HOTELS, NIGHTS
from examples.start.runs import Button, Outcome, Tell
from examples.start.stores import Stores
from examples.start.troubles.sending import (
    CARD,
    SLOW_CARD,
    STOPPED_FOR,
    Gateway,
    count,
    count_replayed,
    describe_answers,
    make_client,
    send_fifty_times,
    send_until_answered,
)


@dataclass(frozen=True)
class Stay:
    """A reservation that can be paid, by the guest whose it is; the key of the payment is this stay's alone."""

    client: httpx.AsyncClient
    id: str
    key: str

    async def pay(self, card: str = CARD) -> httpx.Response:
        """Pay it, under its one key."""
        headers = {"Payment-Idempotency-Key": self.key}
        return await self.client.post(f"/reservations/{self.id}/pay", json={"card": card}, headers=headers)


class HotelTroubles:
    """The buttons of the hotel."""

    def __init__(self, address: str, processes: HotelProcesses, ledger: Path, stores: Stores) -> None:
        self._address = address
        self._processes = processes
        self._gateway = Gateway(processes.gateway_address, ledger)
        self._stores = stores
        self._wishes = _make_wishes()

    def buttons(self) -> list[Button]:
        """All of them."""
        return [
            Button("fifty", "Send it fifty times", "A guest pays for a room fifty times at once.", self.send_fifty),
            Button("lose", "Lose the reply", "The gateway charges the card, and its answer is lost.", self.lose_reply),
            Button("kill", "Kill the server", "SIGKILL, while the card is being charged.", self.kill_server),
            Button("stop", "Stop the store", "The database is away while the card is being charged.", self.stop_store),
        ]

    async def send_fifty(self, tell: Tell) -> Outcome:
        """Fifty payments with one key at once."""
        async with self._reserve(tell) as stay:
            tell("Fifty payments with one key are on their way.")
            answers = await send_fifty_times(stay.pay)
            replayed = count_replayed(answers)
            line = (
                f"{count('payment', len(answers))} of {stay.id} with one key: {len(answers) - replayed} ran, "
                f"{replayed} were answered from the record."
            )
            return self._judge(line, stay, len(answers), answers[-1])

    async def lose_reply(self, tell: Tell) -> Outcome:
        """The gateway charges, and hangs up."""
        async with self._reserve(tell) as stay:
            await self._gateway.change(lose_reply=1)
            tell("The gateway has charged and hung up: nobody knows. The guest sends it again.")
            answers = await send_until_answered(stay.pay)
            line = (
                f"The gateway’s answer for {stay.id} was lost. The guest got {describe_answers(answers)}: "
                "under the same key, the gateway was asked what had become of it."
            )
            return self._judge(line, stay, len(answers), answers[-1])

    async def kill_server(self, tell: Tell) -> Outcome:
        """The server dies while the gateway is asked."""
        async with self._reserve(tell) as stay:
            paying = asyncio.create_task(send_until_answered(lambda: stay.pay(SLOW_CARD)))
            await self._gateway.wait_for_work()
            for server in self._processes.servers:
                server.kill()
            tell("The server is dead, in the middle of the charge. Another one takes over when its lease has ended.")
            answers = await paying
            line = (
                f"The server was killed while the card for {stay.id} was charged. The guest got "
                f"{describe_answers(answers)}, all under one key."
            )
            return self._judge(line, stay, len(answers), answers[-1])

    async def stop_store(self, tell: Tell) -> Outcome:
        """The store is away when the charge comes back."""
        async with self._reserve(tell) as stay:
            paying = asyncio.create_task(send_until_answered(lambda: stay.pay(SLOW_CARD)))
            await self._gateway.wait_for_work()
            async with self._stores.stop("hotel"):
                tell(f"{self._stores.stopped}: the charge is made, and nothing can be written down.")
                await asyncio.sleep(STOPPED_FOR)
            tell("The store is back.")
            answers = await paying
            line = (
                f"{self._stores.stopped} for {STOPPED_FOR:.0f} s while the card for {stay.id} was charged. "
                f"The guest got {describe_answers(answers)}."
            )
            return self._judge(line, stay, len(answers), answers[-1])

    def _judge(self, line: str, stay: Stay, asked: int, last: httpx.Response | None) -> Outcome:
        status = "unknown" if last is None else last.json().get("status")
        charges = self._gateway.charges()[stay.id]
        end = f"The reservation is {status}; {count('charge', charges)} in the gateway’s ledger."
        return Outcome(f"{line} {end}", asked, 1, charges)

    @asynccontextmanager
    async def _reserve(self, tell: Tell) -> AsyncIterator[Stay]:
        """A new guest with a reservation, in a night that has rooms."""
        tell("A guest signs in, reserves a room and gives details.")
        async with make_client(self._address) as client:
            await _post(client, "/sign-in", {"name": "Ada"})
            draft = await _post(client, "/reservations", next(self._wishes), {"Idempotency-Key": secrets.token_hex(8)})
            details = {"guest_name": "Ada", "email": "ada@example.org"}
            await _post(client, f"{draft.headers['location']}/confirm-details", details)
            yield Stay(client, draft.json()["id"], secrets.token_hex(8))


async def _post(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> httpx.Response:
    """Send until it is answered, and give the answer."""
    key = headers or {}
    answers = await send_until_answered(lambda: client.post(path, json=body, headers=key))
    assert answers[-1] is not None
    return answers[-1].raise_for_status()


def _make_wishes() -> Iterator[dict[str, str]]:
    """Every night of every house, in any order, and then again: each of them has several rooms."""
    today = datetime.now(UTC).date()
    nights = [(hotel.id, today + timedelta(days=day)) for hotel in HOTELS for day in range(1, NIGHTS)]
    random.shuffle(nights)
    for hotel, night in itertools.cycle(nights):
        leaving = night + timedelta(days=1)
        yield {"hotel_id": hotel, "room_type": "double", "check_in": str(night), "check_out": str(leaving)}
