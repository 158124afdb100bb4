"""A line of a bulk is tried again where somebody asked for it, and what was charged is found, whoever was cut off."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from examples.hotel.gateway_client import Charge, Gateway
from examples.payments.bulk import open_left
from examples.payments.settings import Retention
from examples.payments.sweeping import Report, sweep
from examples.payments.working import Worker, find_open
from tests.payments.conftest import Build
from tests.payments.till import Shop, Till

pytestmark = pytest.mark.anyio
LINE = ("p-1", "3.00", "c-1", "tok")


@dataclass
class Bank:
    """A gateway that takes every card for the one that is laid into it, and can keep its answer back for ever."""

    gateway: Gateway
    card: str = "tok_ok"
    keeps_back: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def charge(self, key: str, amount: Decimal, currency: str, card: str, reference: str) -> Charge:
        charge = await self.gateway.charge(key, amount, currency, self.card, reference)
        if self.keeps_back:
            self.asked.set()
            await asyncio.Event().wait()
        return charge

    async def find(self, key: str) -> Charge | None:
        return await self.gateway.find(key)


class Desk:
    """A bulk of one line, at a gateway whose answers the test chooses."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.till = shop, shop.till
        self.bank = Bank(self.till.parts.gateway)
        self._worker = Worker(replace(self.till.parts, gateway=self.bank))  # type: ignore[arg-type] # all that is asked
        self.address = ""

    async def upload(self, amount: str = "3.00", customer: str = "c-1") -> None:
        self.address = await self.shop.bulk([("p-1", amount, customer, "tok")])

    async def run(self, card: str) -> None:
        """Have a worker run the bulk, with an answer as it is to this card."""
        self.bank.card = card
        for bulk in await find_open(self.till.parts):
            await self._worker.run_bulk(bulk)

    async def cut_off(self, card: str) -> None:
        """The same with a worker that ends before the answer of the gateway has reached it."""
        self.bank.keeps_back = True
        running = asyncio.create_task(self.run(card))
        await self.bank.asked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        self.bank.keeps_back = False
        self.bank.asked.clear()

    async def retry(self) -> None:
        answer = await self.shop.client.post(f"{self.address}/retry")
        assert answer.status_code == 200, answer.text

    async def told(self) -> tuple[str, str | None]:
        """What became of the line, with the class of its failure."""
        (line,) = await self.shop.results(self.address)
        return line["status"], line["error"] and line["error"]["class"]

    def events(self) -> list[str]:
        return self.till.gateway.events()


@pytest.fixture
async def desk(any_shop: Shop) -> Desk:
    desk = Desk(any_shop)
    await desk.upload()
    return desk


async def test_a_charge_of_a_second_try_that_nobody_heard_of_is_found(desk: Desk) -> None:
    await desk.run("tok_declined")
    await desk.retry()
    await desk.cut_off("tok_ok")
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("completed", None), ["declined", "charged"])


async def test_a_line_that_was_once_cut_off_can_be_tried_again_when_it_was_declined(desk: Desk) -> None:
    await desk.cut_off("tok_declined")
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("failed", "Declined"), ["declined"])
    await desk.retry()
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("completed", None), ["declined", "charged"])


async def test_a_card_that_was_declined_is_not_charged_again_because_a_worker_was_cut_off(desk: Desk) -> None:
    await desk.run("tok_declined")
    await desk.retry()
    await desk.cut_off("tok_declined")
    desk.till.clock.advance(minutes=2)
    assert await sweep(desk.till.parts) == Report(settled=1)  # so that the row says "declined", and no record does
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("failed", "Declined"), ["declined"] * 2)


async def test_a_retry_asked_for_past_the_service_is_one_too(desk: Desk) -> None:
    """As by `semel batch retry`, or in the console."""
    await desk.run("tok_declined")
    batch = await desk.till.parts.batches(desk.shop.account_id).get(desk.address.rpartition("/")[2])
    assert await batch.retry("failed") == 1
    await open_left(desk.till.parts)
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("completed", None), ["declined", "charged"])


async def test_a_line_is_tried_again_as_often_as_somebody_asks(shop: Shop) -> None:
    desk, tries = Desk(shop), 25
    await desk.upload()
    for _ in range(tries):
        await desk.run("tok_declined")
        await desk.retry()
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("completed", None), ["declined"] * tries + ["charged"])


async def test_a_payment_that_the_gateway_never_answered_goes_on_under_its_key_when_it_is_tried_again(
    build: Build, sqlite_database: str
) -> None:
    desk = Desk(await (await build(sqlite_database, max_attempts=1)).shop())
    await desk.upload()
    desk.till.gateway.faults(lose_reply=1)
    await desk.run("tok_ok")
    assert await desk.told() == ("failed", "GatewayDidNotAnswer")
    await desk.retry()
    await desk.run("tok_ok")
    assert (await desk.told(), desk.events()) == (("completed", None), ["charged"])


async def _forget(till: Till) -> None:
    """What the sweeper does with a bulk that is not kept any more."""
    await till.parts.semel.sweep()


@pytest.fixture
async def forgetful(build: Build, any_database: str) -> Desk:
    """A service that keeps no bulk that has ended."""
    till = await build(any_database, retention=Retention(bulk=timedelta(0)))
    return Desk(await till.shop())


@pytest.mark.parametrize("changed", [{"amount": "4.00"}, {"customer": "c-2"}], ids=str)
async def test_a_line_of_another_payment_under_a_key_that_is_forgotten_is_refused(
    forgetful: Desk, changed: dict[str, Any]
) -> None:
    await forgetful.upload()
    await forgetful.run("tok_ok")
    await _forget(forgetful.till)
    await forgetful.upload(**changed)
    await forgetful.run("tok_ok")
    assert (await forgetful.told(), forgetful.events()) == (("failed", "OtherPayment"), ["charged"])


async def test_a_declined_line_under_a_key_that_is_forgotten_is_tried_again_when_somebody_asks(
    forgetful: Desk,
) -> None:
    await forgetful.upload()
    await forgetful.run("tok_declined")
    await forgetful.retry()
    await forgetful.run("tok_declined")
    await _forget(forgetful.till)
    await forgetful.upload()
    await forgetful.run("tok_ok")
    assert await forgetful.told() == ("failed", "Declined")
    await forgetful.retry()
    await forgetful.run("tok_ok")
    assert (await forgetful.told(), forgetful.events()) == (("completed", None), ["declined", "declined", "charged"])
