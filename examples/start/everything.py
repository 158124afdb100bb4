"""All services, started side by side, each with its buttons.

What always holds: each service is the one that runs by its own command too; only its database and its folder are
chosen here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.assets import processes as assets
from examples.hospital import processes as hospital
from examples.hotel import processes as hotel
from examples.launching.children import Child
from examples.launching.launcher import Supervision, address_of
from examples.payments import processes as payments
from examples.start.runs import Service
from examples.start.stores import Stores
from examples.start.troubles.assets import AssetsTroubles
from examples.start.troubles.hospital import HospitalTroubles
from examples.start.troubles.hotel import HotelTroubles
from examples.start.troubles.payments import PaymentsTroubles

NAMES: Final = ("hotel", "payments", "assets", "hospital")
INSURER_TAKES: Final = 1.0
"""How many seconds the insurer and the books take to answer: enough to kill a worker meanwhile."""


@dataclass(frozen=True)
class Started:
    """A service with its processes."""

    service: Service
    children: Sequence[Child]


class Everything:
    """Starts the services on these stores, below this folder, each on a socket of its own."""

    def __init__(
        self, supervision: Supervision, stores: Stores, folder: Path, sockets: Sequence[socket.socket]
    ) -> None:
        # Each service ends its processes in their order, and all services end side by side.
        self._supervisions = {name: Supervision(supervision.watched, AsyncExitStack()) for name in NAMES}
        supervision.stack.push_async_callback(self._stop)
        self._stores = stores
        self._folder = folder
        self._sockets = dict(zip(NAMES, sockets, strict=True))

    async def start(self) -> list[Started]:
        """All of them, in the order of their names; when this returns, each of them answers."""
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(start()) for start in (self._start_hospital, self._start_assets)]
            # One after the other: the tool that makes their tables is one for the whole process.
            await hotel.prepare(self._stores.url("hotel"))
            first = group.create_task(self._start_hotel())
            await payments.prepare(self._stores.url("payments"))
            second = group.create_task(self._start_payments())
        started = [task.result() for task in (first, second, *others)]
        return sorted(started, key=lambda one: NAMES.index(one.service.name))

    async def _stop(self) -> None:
        await asyncio.gather(*(own.stack.aclose() for own in self._supervisions.values()))

    async def _start_hotel(self) -> Started:
        listener, url, ledger = self._sockets["hotel"], self._stores.url("hotel"), self._folder / "hotel.jsonl"
        running = await hotel.start(self._supervisions["hotel"], listener, url=url, ledger=ledger)
        troubles = HotelTroubles(address_of(listener), running, ledger, self._stores)
        blurb = "Guests reserve and pay for rooms: one reservation, one charge, one room."
        return Started(Service("hotel", "The hotel", blurb, address_of(listener), troubles.buttons()), running.all)

    async def _start_payments(self) -> Started:
        listener, url, ledger = self._sockets["payments"], self._stores.url("payments"), self._folder / "payments.jsonl"
        running = await payments.start(self._supervisions["payments"], listener, url=url, ledger=ledger)
        troubles = PaymentsTroubles(address_of(listener), running, ledger, self._stores)
        blurb = "Shops charge cards, one by one or by the file: each payment is charged once."
        return Started(
            Service("payments", "The payments service", blurb, address_of(listener), troubles.buttons()), running.all
        )

    async def _start_assets(self) -> Started:
        listener = self._sockets["assets"]
        server = await assets.start(self._supervisions["assets"], listener, url=self._stores.url("assets"))
        troubles = AssetsTroubles(address_of(listener), server, self._stores)
        blurb = "Events tell of pumps, several times and in any order: each counts once."
        return Started(
            Service("assets", "The assets of a plant", blurb, address_of(listener), troubles.buttons()), [server]
        )

    async def _start_hospital(self) -> Started:
        listener, url, folder = self._sockets["hospital"], self._stores.url("hospital"), self._folder / "hospital"
        folder.mkdir()
        hospital.prepare(url)
        own = self._supervisions["hospital"]
        running = await hospital.start(own, listener, url=url, folder=folder, delay=INSURER_TAKES)
        troubles = HospitalTroubles(address_of(listener), running, self._stores)
        own.stack.callback(troubles.close)
        blurb = "A process hands claims to an insurer and books payments: one claim, one payment."
        return Started(
            Service("hospital", "The hospital", blurb, address_of(listener), troubles.buttons()), running.all
        )
