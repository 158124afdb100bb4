"""Trouble for the assets of a plant: events that arrive often, late, or while something goes wrong."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import httpx

from examples.assets.sample import deliveries, make_life
from examples.launching.children import Child
from examples.start.runs import Button, Outcome, Tell
from examples.start.stores import Stores
from examples.start.troubles.sending import (
    STOPPED_FOR,
    Faults,
    describe_answers,
    make_client,
    send_fifty_times,
    send_until_answered,
)
from semel.events import Event

KWH: Final = 5.0
AT_THE_END: Final = {"facility": "south", "state": "running", "load_kw": 45.5, "kwh": 20.0}
"""What is known of a pump after all that happens to it, in order."""
MOST_TIMES: Final = 9
LONG: Final = 30.0


class AssetsTroubles:
    """The buttons of the assets."""

    def __init__(self, address: str, server: Child, stores: Stores) -> None:
        self._address = address
        self._server = server
        self._faults = Faults(address)
        self._stores = stores

    def buttons(self) -> list[Button]:
        """All of them."""
        shuffled = f"All events of a pump, up to {MOST_TIMES} times each, shuffled."
        return [
            Button("fifty", "Send it fifty times", "A meter’s event arrives fifty times at once.", self.send_fifty),
            Button("order", "Send it out of order", shuffled, self.send_out_of_order),
            Button("lose", "Lose the reply", "The event is processed, and the sender never hears so.", self.lose_reply),
            Button("kill", "Kill the worker", "SIGKILL, after it wrote and before it commits.", self.kill_worker),
            Button("stop", "Stop the store", "The database is away when the event arrives.", self.stop_store),
        ]

    async def send_fifty(self, tell: Tell) -> Outcome:
        """One event of a meter, fifty times at once."""
        async with make_client(self._address) as client:
            event = await _register(client, tell)
            tell("Fifty deliveries of one event are on their way.")
            answers = await send_fifty_times(lambda: _deliver(client, event))
            line = f"{len(answers)} deliveries of one event: {_describe(answers)}."
            return await self._judge(line, client, event, len(answers))

    async def send_out_of_order(self, tell: Tell) -> Outcome:
        """All that happens to a pump, repeated and shuffled."""
        pump = f"pump-{secrets.token_hex(2)}"
        life = make_life(pump)
        events = deliveries(random.Random(), MOST_TIMES, life)
        async with make_client(self._address) as client:
            tell(f"{len(events)} deliveries of {len(life)} events are on their way.")
            answers = [(await send_until_answered(partial(_deliver, client, event)))[-1] for event in events]
            found = await _find(client, pump)
        processed = sum(answer is not None and answer.json()["status"] == "processed" for answer in answers)
        is_as_in_order = {name: found[name] for name in AT_THE_END} == AT_THE_END
        line = (
            f"{len(events)} deliveries of {len(life)} events, shuffled: {_describe(answers)}. {pump} is in the "
            f"{found['facility']}, {found['state']} at {found['load_kw']} kW, with {found['kwh']} kWh: "
            f"{'the same as in order' if is_as_in_order else 'NOT what it is in order'}."
        )
        return Outcome(line, len(events), len(life), processed if is_as_in_order else 0)

    async def lose_reply(self, tell: Tell) -> Outcome:
        """The event is processed, and the connection closes."""
        async with make_client(self._address) as client:
            event = await _register(client, tell)
            await self._faults.change(lose_reply=1)
            tell("It was processed, and the connection closed. The sender sends it again.")
            answers = await send_until_answered(lambda: _deliver(client, event))
            line = (
                f"It was processed, and the reply was lost. The sender got {describe_answers(answers)}: the next "
                f"delivery was {_describe(answers[-1:])}."
            )
            return await self._judge(line, client, event, len(answers))

    async def kill_worker(self, tell: Tell) -> Outcome:
        """The process dies inside the transaction."""
        async with make_client(self._address) as client:
            event = await _register(client, tell)
            await self._faults.change(delay=LONG)
            sending = asyncio.create_task(send_until_answered(lambda: _deliver(client, event)))
            await self._faults.wait_for_work()
            self._server.kill()  # its faults live in memory: the next one has none
            tell("It was killed after it wrote and before it committed. The sender sends it again.")
            answers = await sending
            line = (
                f"The worker was killed inside its transaction, so nothing of it was kept. The sender got "
                f"{describe_answers(answers)}: {_describe(answers)}."
            )
            return await self._judge(line, client, event, len(answers))

    async def stop_store(self, tell: Tell) -> Outcome:
        """The store is away when the event comes."""
        async with make_client(self._address) as client:
            event = await _register(client, tell)
            async with self._stores.stop("assets"):
                tell(f"{self._stores.stopped}, and an event arrives.")
                sending = asyncio.create_task(send_until_answered(lambda: _deliver(client, event)))
                await asyncio.sleep(STOPPED_FOR)
            tell("The store is back.")
            answers = await sending
            line = (
                f"{self._stores.stopped} for {STOPPED_FOR:.0f} s. The sender got {describe_answers(answers)}: "
                f"{_describe(answers)}."
            )
            return await self._judge(line, client, event, len(answers))

    @staticmethod
    async def _judge(line: str, client: httpx.AsyncClient, event: Event, asked: int) -> Outcome:
        kwh = (await _find(client, str(event.subject)))["kwh"] or 0.0
        return Outcome(f"{line} The meter of {event.subject} says {kwh} kWh.", asked, 1, round(kwh / KWH))


async def _register(client: httpx.AsyncClient, tell: Tell) -> Event:
    """A new pump, and an event that says how much energy went through it."""
    pump = f"pump-{secrets.token_hex(2)}"
    tell(f"{pump} is registered.")
    data = {"facility": "north", "type": "pump", "capacity_kw": 50.0}
    registered = Event(type="asset.registered", source="/start", subject=pump, data=data)
    await send_until_answered(lambda: _deliver(client, registered))
    return Event(type="asset.energy_metered", source="/start", subject=pump, data={"kwh": KWH})


async def _deliver(client: httpx.AsyncClient, event: Event) -> httpx.Response:
    return await client.post("/events", content=event.to_json())


async def _find(client: httpx.AsyncClient, pump: str) -> dict[str, Any]:
    """What is known of a pump."""
    answers = await send_until_answered(lambda: client.get("/assets"))
    assert answers[-1] is not None
    found: list[dict[str, Any]] = answers[-1].json()
    return next(asset for asset in found if asset["asset"] == pump)


def _describe(answers: Sequence[httpx.Response | None]) -> str:
    """How deliveries ended, such as "1 processed, 49 recognised as duplicates"."""
    statuses = Counter(str(answer.json()["status"]) for answer in answers if answer is not None and answer.is_success)
    if statuses.total() == 1:
        return {"duplicate": "recognised as a duplicate"}.get(word := next(iter(statuses)), word)
    words = {"duplicate": "recognised as duplicates"}
    return ", ".join(
        f"{number} {words.get(status, status)}" for status, number in sorted(statuses.items(), reverse=True)
    )
