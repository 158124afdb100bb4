"""Refunds: never more than was paid, each of them once."""

import asyncio

import pytest

from tests.payments.till import Shop, code_of

pytestmark = pytest.mark.anyio


async def test_a_part_is_given_back_once_for_each_key(any_shop: Shop) -> None:
    payment = await any_shop.paid("10.00")
    first, second = [await any_shop.refund(payment, "4.00", "r") for _ in range(2)]
    told = first.json()
    assert (first.status_code, told["status"], told["amount"], told["reason"]) == (201, "succeeded", "4.00", "returned")
    assert second.json() == told
    assert any_shop.till.gateway.events() == ["charged", "given back"]
    assert (await any_shop.get(f"/payments/{payment}"))["refunded"] == "4.00"


async def test_no_more_is_given_back_than_was_paid(shop: Shop) -> None:
    payment = await shop.paid("10.00")
    assert (await shop.refund(payment, "7.00")).status_code == 201
    refused = await shop.refund(payment, "3.01")
    assert (refused.status_code, code_of(refused), refused.json()["left"]) == (409, "not-refundable", "3.00")
    assert (await shop.refund(payment, "3.00")).status_code == 201
    assert shop.till.gateway.events() == ["charged", "given back", "given back"]


async def test_refunds_at_once_do_not_give_back_too_much_together(any_shop: Shop) -> None:
    payment = await any_shop.paid("10.00")
    answers = await asyncio.gather(*(any_shop.refund(payment, "4.00") for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, 201, 409, 409, 409, 409]
    assert (await any_shop.get(f"/payments/{payment}"))["refunded"] == "8.00"
    assert any_shop.till.gateway.events() == ["charged", "given back", "given back"]


async def test_a_refund_whose_answer_is_lost_is_made_once(shop: Shop) -> None:
    payment = await shop.paid("10.00")
    shop.till.gateway.faults(lose_reply=1)
    assert code_of(await shop.refund(payment, "4.00", "r")) == "gateway-unavailable"
    assert (await shop.refund(payment, "4.00", "r")).status_code == 201
    assert shop.till.gateway.events() == ["charged", "given back"]


async def test_what_the_gateway_refuses_may_be_given_back_later(shop: Shop) -> None:
    payment = await shop.paid("10.00")
    charged = shop.till.gateway.process.ledger()[-1]["key"]
    shop.till.gateway.process.refund(charged)  # by somebody at the gateway itself
    refused = await shop.refund(payment, "4.00")
    assert (code_of(refused), "Take a new key" in refused.json()["detail"]) == ("not-refundable", True)
    assert (await shop.get(f"/payments/{payment}"))["refunded"] == "0.00"


async def test_a_reason_that_no_database_keeps_is_refused(shop: Shop) -> None:
    refund = {"amount": "4.00", "reason": "a\0b"}
    answer = await shop.send(f"/payments/{await shop.paid()}/refunds", refund)
    assert (answer.status_code, code_of(answer)) == (400, "malformed")


async def test_a_declined_payment_has_nothing_to_give_back(shop: Shop) -> None:
    await shop.pay("k", card="tok_declined")
    declined = shop.till.gateway.process.ledger()[-1]["reference"]
    assert (await shop.refund(declined, "1.00")).json()["left"] == "0.00"
