"""Trouble for the hospital: a claim is on its way through the process while something goes wrong."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from examples.hospital.instances import Instance, Instances, TaskRun
from examples.hospital.processes import HospitalProcesses
from examples.start.runs import Button, Outcome, Tell
from examples.start.stores import Stores
from examples.start.troubles.sending import (
    FIFTY,
    STOPPED_FOR,
    Faults,
    count,
    make_client,
    say_times,
    send_until_answered,
)

_POLL = 0.1
T = TypeVar("T")


class HospitalTroubles:
    """The buttons of the hospital."""

    def __init__(self, address: str, processes: HospitalProcesses, stores: Stores) -> None:
        self._address = address
        self._processes = processes
        self._insurer = Faults(processes.settings.insurer)
        self._instances = Instances(processes.settings.database)
        self._stores = stores

    def buttons(self) -> list[Button]:
        """All of them."""
        return [
            Button("fifty", "Start it fifty times", "Fifty processes run the same claim.", self.start_fifty),
            Button("lose", "Lose the reply", "The insurer enters the claim, and its answer is lost.", self.lose_reply),
            Button("kill", "Kill the worker", "SIGKILL, while the insurer is asked.", self.kill_worker),
            Button("stop", "Stop the store", "The database is away while the insurer is asked.", self.stop_store),
        ]

    def close(self) -> None:
        """Close the connections to the database."""
        self._instances.close()

    async def start_fifty(self, tell: Tell) -> Outcome:
        """The same claim in fifty processes."""
        first = await self._begin()
        starts = [first, *[await self._begin(f"/instances/{first}/again") for _ in range(FIFTY - 1)]]
        runs = await self._wait_for_ends(tell, starts, f"The claim runs in {FIFTY} processes.")
        became = Counter(run.became for run in runs)
        line = (
            f"{FIFTY} processes of one claim asked for {len(runs)} tasks: {became['ran']} ran, "
            f"{became['replayed']} were answered from the record."
        )
        return await self._judge(line, first, FIFTY)

    async def lose_reply(self, tell: Tell) -> Outcome:
        """The insurer enters the claim, and hangs up."""
        await self._insurer.change(lose_reply=1)
        instance = await self._begin()
        runs = await self._wait_for_ends(tell, [instance], "The insurer has the claim and hung up: nobody knows.")
        line = f"The insurer’s reply was lost, and the task was in doubt. {_describe(runs)}."
        return await self._judge(line, instance, len(runs))

    async def kill_worker(self, tell: Tell) -> Outcome:
        """The worker dies while the insurer is asked."""
        instance = await self._begin()
        await self._insurer.wait_for_work()
        for worker in self._processes.workers:
            worker.kill()
        dead = "The worker is dead. The next one goes on when its lease has ended."
        runs = await self._wait_for_ends(tell, [instance], dead)
        line = f"The worker was killed while the insurer was asked, and the next one went on. {_describe(runs)}."
        return await self._judge(line, instance, len(runs))

    async def stop_store(self, tell: Tell) -> Outcome:
        """The store is away when the insurer answers."""
        instance = await self._begin()
        await self._insurer.wait_for_work()
        async with self._stores.stop("hospital"):
            tell(f"{self._stores.stopped}: the insurer answers, and nothing can be written down.")
            await asyncio.sleep(STOPPED_FOR)
        runs = await self._wait_for_ends(tell, [instance], "The store is back.")
        line = f"{self._stores.stopped} for {STOPPED_FOR:.0f} s while the insurer was asked. {_describe(runs)}."
        return await self._judge(line, instance, len(runs))

    async def _begin(self, path: str = "/instances") -> str:
        """Start a process; gives its number."""
        async with make_client(self._address) as client:
            answers = await send_until_answered(lambda: client.post(path))
        assert answers[-1] is not None
        if answers[-1].is_error:
            answers[-1].raise_for_status()
        return str(answers[-1].headers["location"]).rpartition("/")[2]

    async def _wait_for_ends(self, tell: Tell, starts: Sequence[str], line: str) -> list[TaskRun]:
        """Wait until processes have ended; gives what they asked for."""
        tell(line)
        ended = 0
        while ended < len(starts):
            await asyncio.sleep(_POLL)
            instances = [await self._read(name) for name in starts[ended:]]
            if stopped := next((one for one in instances if one.state == "stopped"), None):
                raise RuntimeError(f"The process {stopped.id} stopped: {stopped.why}")
            while ended < len(starts) and instances[ended - len(starts)].state == "ended":
                ended += 1
            if len(starts) > 1:
                tell(f"{line} {ended} of them have ended.")
        return [run for name in starts for run in await _read_until_answered(partial(self._instances.runs, name))]

    async def _read(self, name: str) -> Instance:
        found = await _read_until_answered(partial(self._instances.get, name))
        assert found is not None
        return found

    async def _judge(self, line: str, instance: str, asked: int) -> Outcome:
        """What the others have of a claim: one entry of the insurer, one of the books."""
        claim = (await self._read(instance)).variables["claimId"]
        claims = await _entries(self._processes.settings.insurer, "claims", claim)
        payments = await _entries(self._processes.settings.books, "postings", claim)
        times = sum(entry["asked_for"] for entry in claims)
        end = (
            f"{claim}: {count('claim', len(claims))} at the insurer, asked for {say_times(times)}; "
            f"{count('payment', len(payments))} in the books."
        )
        return Outcome(f"{line} {end}", asked, 2, len(claims) + len(payments))


async def _read_until_answered(read: Callable[[], T]) -> T:
    """What a read of the database gives, once that is there: another service may have stopped the server of all."""
    while True:
        try:
            return await asyncio.to_thread(read)
        except SQLAlchemyError:
            await asyncio.sleep(_POLL)


async def _entries(address: str, kind: str, claim: str) -> list[dict[str, Any]]:
    async with make_client(address) as client:
        found: list[dict[str, Any]] = (await client.get(f"/{kind}")).raise_for_status().json()
    return [entry for entry in found if json.loads(entry["asked"]).get("claim") == claim]


def _describe(runs: Sequence[TaskRun]) -> str:
    """What became of the tasks, such as "Its tasks: 3 ran, 1 in doubt"."""
    became = Counter(run.became for run in runs)
    words = {"in-doubt": "in doubt", "waiting": "waited"}
    parts = [f"{number} {words.get(name, name)}" for name, number in became.most_common()]
    return f"Its tasks: {', '.join(parts)}"
