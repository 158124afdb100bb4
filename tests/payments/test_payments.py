"""Payments: one charge for each key, whatever the gateway does."""

import asyncio
from datetime import timedelta

import pytest

from tests.payments.conftest import Build
from tests.payments.till import Shop, Till, code_of

pytestmark = pytest.mark.anyio


async def test_a_payment_is_made_once_for_each_key(any_shop: Shop) -> None:
    first, second = await any_shop.pay("k"), await any_shop.pay("k")
    assert (first.status_code, second.status_code, second.headers["idempotency-replayed"]) == (201, 201, "true")
    told = first.json()
    assert (told["status"], told["amount"], told["customer_id"]) == ("succeeded", "12.50", "c-1")
    assert second.json() == told
    assert any_shop.till.charges() == {told["transaction_id"]: 1}


async def test_many_requests_at_once_with_one_key_are_one_payment(any_shop: Shop) -> None:
    answers = await asyncio.gather(*(any_shop.pay("k") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["transaction_id"] for answer in answers}) == 1
    assert sum(any_shop.till.charges().values()) == 1


async def test_a_payment_can_be_read_again(shop: Shop) -> None:
    made = await shop.pay()
    told = await shop.get(made.headers["location"])
    assert told == {**made.json(), "refunded": "0.00"}


async def test_the_same_key_of_another_account_is_another_payment(till: Till) -> None:
    answers = [await (await till.shop()).pay("k") for _ in range(2)]
    assert len({answer.json()["transaction_id"] for answer in answers}) == 2
    assert sum(till.charges().values()) == 2


async def test_a_payment_of_another_account_is_not_found(till: Till, shop: Shop) -> None:
    payment = await shop.paid()
    other = await till.shop()
    assert code_of(await other.client.get(f"/payments/{payment}")) == "not-found"
    assert code_of(await other.refund(payment, "1.00")) == "not-found"
    assert (await shop.get(f"/payments/{payment}"))["refunded"] == "0.00"


@pytest.mark.parametrize("amount", [0.1, "0.1", "0.10"])
async def test_an_amount_is_kept_as_it_is_written(shop: Shop, amount: object) -> None:
    payment = (await shop.pay(amount=amount)).json()["transaction_id"]
    assert (await shop.get(f"/payments/{payment}"))["amount"] == "0.10"
    assert shop.till.gateway.process.ledger()[-1]["amount"] == "0.10"


@pytest.mark.parametrize(
    "amount",
    [
        "0",
        "-1",
        "0.001",
        "1000000.01",
        "NaN",
        "Infinity",
        "1e2000",
        "1e1000000",
        "1e-1000000",
        "sNaN",
        "12,50",
        None,
        True,
    ],
)
async def test_what_is_no_amount_is_refused(shop: Shop, amount: object) -> None:
    answer = await shop.pay(amount=amount)
    assert (answer.status_code, code_of(answer)) == (400, "malformed")
    assert (await shop.till.statuses(), shop.till.gateway.events()) == ({}, [])


async def test_a_declined_card_is_declined_again_under_the_same_key(shop: Shop) -> None:
    answers = [await shop.pay("k", card="tok_declined") for _ in range(2)]
    assert [(answer.status_code, code_of(answer)) for answer in answers] == [(402, "declined")] * 2
    assert shop.till.gateway.events() == ["declined"]


async def test_without_a_key_of_an_account_nothing_is_done(till: Till) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "payments=wrong"}):
        answer = await till.client(headers).post("/payments", json={})
        assert (answer.status_code, code_of(answer)) == (401, "unknown-account")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_without_an_idempotency_key_nothing_is_done(shop: Shop) -> None:
    body = {"amount": "1.00", "customer_id": "c", "payment_method_id": "tok_ok"}
    assert (await shop.client.post("/payments", json=body)).status_code == 400
    assert shop.till.gateway.events() == []


@pytest.mark.covering
@pytest.mark.parametrize("fault", ["lose_reply", "error_reply"])
async def test_an_answer_that_is_lost_after_the_charge_is_asked_for(any_shop: Shop, fault: str) -> None:
    any_shop.till.gateway.faults(**{fault: 1})
    first = await any_shop.pay("k")
    assert (first.status_code, code_of(first), first.headers["retry-after"]) == (503, "gateway-unavailable", "1")
    assert await any_shop.till.statuses() == {"pending": 1}
    any_shop.till.gateway.faults(die_before=1)  # whoever charges instead of asking gets no answer
    again = await any_shop.pay("k")
    assert (again.status_code, again.json()["status"]) == (201, "succeeded")
    assert any_shop.till.gateway.events() == ["charged"]


async def test_a_gateway_that_is_slow_charges_once(build: Build, sqlite_database: str) -> None:
    till = await build(sqlite_database, gateway_timeout=timedelta(seconds=0.2))
    patient = await build(sqlite_database)
    shop = await till.shop()
    till.gateway.faults(delay=600)
    assert (await shop.pay("k")).status_code == 503
    till.gateway.process.wait_for_charges(1)
    till.gateway.faults(delay=0)  # the charge that was given up goes through after all
    till.gateway.process.wait_for_charges(0)
    assert (await shop.at(patient).pay("k")).status_code == 201
    assert till.gateway.events() == ["charged"]


async def test_a_gateway_that_is_away_charges_when_it_is_back(shop: Shop) -> None:
    shop.till.gateway.stop()
    assert code_of(await shop.pay("k")) == "gateway-unavailable"
    shop.till.gateway.start()
    assert (await shop.pay("k")).status_code == 201
    assert shop.till.gateway.events() == ["charged"]


@pytest.mark.parametrize("kind", ["payments", "orders", "bulk", "wallets"])
async def test_what_can_be_the_id_of_nothing_is_not_found(any_shop: Shop, kind: str) -> None:
    answer = await any_shop.client.get(f"/{kind}/%00")
    assert (answer.status_code, code_of(answer)) == (404, "not-found")
