"""One run: many users for the last rooms of a date range, over several servers, of which one is killed.

What always holds: both kills hit while payments are under way, because the gateway holds every charge until then; the
run says so itself if they did not. Nothing here depends on speed: each stage begins when the one before was seen.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from examples.hotel.settings import utc_now
from examples.hotel.tables import Status
from semel import AsyncSemel
from tests.hotel.gateway_process import GatewayProcess
from tests.hotel.load.house import Facts, House
from tests.hotel.load.processes import ServerProcess, serving, sweep
from tests.hotel.load.users import EAGER, FIRST, PATIENCE, Stage, User
from tests.hotel.load.ways import Ways

SERVERS = 4
VICTIM = FIRST // 2 % SERVERS
HELD_FOR = 600.0  # longer than any run: charges go on when they are told to
PAYING_FOR = 120
ROUNDS = 5
Say = Callable[[str], None]


@dataclass
class Kills:
    """What was under way when something was killed: payments with a room, charges, and what the gateway had written."""

    at_the_server: int = 0
    at_the_gateway: int = 0
    charged: int = 0


@dataclass
class Ended:
    """All that is known when a run is over."""

    house: House
    users: Sequence[User]
    ways: Ways
    kills: Kills
    facts: Facts
    ledger: list[dict[str, str]]
    servers: Sequence[ServerProcess]
    swept: Counter[str]
    rounds: int
    seconds: float
    repeated: list[tuple[User, httpx.Response]] = field(default_factory=list)
    ledger_after_repeating: int = 0


class Run:
    """A run on an empty database, with its files in `folder`."""

    def __init__(self, url: str, folder: Path, *, users: int, overbooking: int, say: Say) -> None:
        self._folder = folder
        self._number = users
        self._say = say
        self._house = House.opening(url, overbooking, utc_now())
        self._clock_file = folder / "clock"
        self._moved = 0
        self._stage = Stage(users=users)
        self._kills = Kills()
        self._swept: Counter[str] = Counter()

    async def __call__(self) -> Ended:
        """Run it to its end."""
        began = time.monotonic()
        self._clock_file.write_text("0")
        self._say("building the house")
        await self._house.build()
        async with AsyncExitStack() as kept:
            gateway = kept.enter_context(GatewayProcess(self._folder / "ledger", "--delay", "0.05"))
            await asyncio.to_thread(gateway.faults, delay=HELD_FOR)
            self._say("starting the servers")
            servers = await kept.enter_async_context(serving(SERVERS, self._folder, self._variables(gateway)))
            ways = Ways(servers)
            keys = await kept.enter_async_context(AsyncSemel(f"sqlite:///{self._folder}/keys.db"))
            users = [User(number, ways, keys, kept) for number in range(self._number)]
            await self._first_round(users, ways, gateway)
            rounds = await self._more_rounds(users, gateway)
            return await self._end(Ended(
                self._house, users, ways, self._kills, await self._house.facts(), gateway.ledger(), servers,
                self._swept, rounds, time.monotonic() - began,
            ), gateway)  # fmt: skip

    def _variables(self, gateway: GatewayProcess) -> dict[str, str]:
        return {
            "HOTEL_DATABASE": self._house.url,
            "HOTEL_GATEWAY": gateway.url,
            "HOTEL_CLOCK_FILE": str(self._clock_file),
            "HOTEL_PAYING_FOR": str(PAYING_FOR),
            "HOTEL_LEASE_FOR": "10",
            "HOTEL_WAIT_FOR": "2",
            "HOTEL_GATEWAY_TIMEOUT": str(HELD_FOR),
            "HOTEL_RECONCILE_AFTER": "0.2",
            "HOTEL_SWEEP_EVERY": "0",
        }

    async def _first_round(self, users: Sequence[User], ways: Ways, gateway: GatewayProcess) -> None:
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(self._visit(user))
            group.create_task(self._disturb(users, ways, gateway))

    async def _visit(self, user: User) -> None:
        await user.arrive(self._house.stay)
        await self._stage.enter(user.number)
        await user.pay(self._stage)

    async def _disturb(self, users: Sequence[User], ways: Ways, gateway: GatewayProcess) -> None:
        stage, kills, victim = self._stage, self._kills, ways.servers[VICTIM]
        self._say("the users arrive")
        stage.first.set()
        await _charges(gateway, 1)
        stage.eager.set()
        await _charges(gateway, 1 + len(EAGER))
        stage.everybody.set()
        await stage.half.wait()
        await _charges(gateway, self._house.sellable)
        self._say(
            f"{stage.paying} of {stage.users} pay, {self._house.sellable} charges are under way: killing a server"
        )
        holding = (await self._house.facts()).having(Status.PAYING)
        kills.at_the_server = sum(users[number].reservation in holding for number in ways.paying_at(victim))
        stage.killing.set()
        await victim.kill()
        stage.hang_up.set()
        self._say("killing the gateway, after one line more in its ledger")
        kills.at_the_gateway = int((await asyncio.to_thread(gateway.faults, die_after=1))["under_way"])
        # All charges go on, and with the first line the process is gone: that reply is lost, and the others never ran.
        await _let_it_die(gateway)
        kills.charged = len(gateway.ledger())
        await asyncio.to_thread(gateway.start)
        self._say("both are dead, the gateway is back")

    async def _more_rounds(self, users: Sequence[User], gateway: GatewayProcess) -> int:
        """Sweep, and let those who wait come again, until all is sold; how often they came."""
        for number in range(ROUNDS):
            await self._sweep(gateway)
            facts = await self._house.facts()
            waiting = [user for user in users if user.waits]
            free = self._house.sellable - min(facts.sold)
            self._say(f"swept {dict(self._swept)}; {free} rooms are free, {len(waiting)} users wait")
            if not free or not waiting:
                return number
            await asyncio.gather(*(user.pay(self._stage) for user in waiting))
        return ROUNDS

    async def _sweep(self, gateway: GatewayProcess) -> None:
        """Move the clock of all processes beyond the end of every hold, and sweep."""
        self._moved += PAYING_FOR + 10
        self._clock_file.with_suffix(".new").write_text(str(self._moved))
        self._clock_file.with_suffix(".new").replace(self._clock_file)  # nobody reads a file half written
        self._swept += await sweep(self._variables(gateway))

    async def _end(self, ended: Ended, gateway: GatewayProcess) -> Ended:
        """Those who have a room send their payment once more."""
        lucky = [user for user in ended.users if user.confirmed]
        ended.repeated = [(user, await user.pay_again()) for user in lucky]
        ended.ledger_after_repeating = len(gateway.ledger())
        return ended


async def _charges(gateway: GatewayProcess, number: int) -> None:
    """Wait until so many charges are under way; there they stay, because the gateway holds them."""
    deadline = time.monotonic() + PATIENCE
    while (found := (await asyncio.to_thread(gateway.faults))["under_way"]) < number:
        assert time.monotonic() < deadline, f"{found} charges are under way, not {number}"
        await asyncio.sleep(0.05)


async def _let_it_die(gateway: GatewayProcess) -> None:
    def release() -> None:
        with suppress(httpx.TransportError):  # it may die before it can answer this
            gateway.faults(delay=0)
        gateway.wait()

    await asyncio.to_thread(release)
