"""Wallet, onboarding and orders: each happens once, and a balance is never negative."""

import asyncio
import hashlib
from typing import Any

import pytest

from tests.payments.till import Shop, Till, code_of

pytestmark = pytest.mark.anyio


async def _top_up(shop: Shop, amount: str, key: str | None = None, card: str = "tok_ok") -> Any:
    return await shop.send("/wallets/ada/top-ups", {"amount": amount, "payment_method_id": card}, key)


async def _spend(shop: Shop, amount: str, key: str | None = None) -> Any:
    return await shop.send("/wallets/ada/payments", {"amount": amount, "reference": "order 7"}, key)


async def _balance(shop: Shop) -> str:
    return str((await shop.get("/wallets/ada"))["balance"])


async def test_a_top_up_is_charged_and_added_once(any_shop: Shop) -> None:
    answers = [await _top_up(any_shop, "20.00", "t") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert (await _balance(any_shop), any_shop.till.gateway.events()) == ("20.00", ["charged"])


async def test_two_first_top_ups_at_once_make_one_wallet(any_shop: Shop) -> None:
    answers = await asyncio.gather(*(_top_up(any_shop, "5.00") for _ in range(4)))
    assert [answer.status_code for answer in answers] == [201] * 4
    assert await _balance(any_shop) == "20.00"


async def test_a_top_up_whose_answer_is_lost_is_added_once(shop: Shop) -> None:
    shop.till.gateway.faults(lose_reply=1)
    assert (await _top_up(shop, "20.00", "t")).status_code == 503
    assert await _balance(shop) == "0.00"
    assert (await _top_up(shop, "20.00", "t")).status_code == 201
    assert (await _balance(shop), shop.till.gateway.events()) == ("20.00", ["charged"])


async def test_a_declined_top_up_adds_nothing(shop: Shop) -> None:
    assert (await _top_up(shop, "20.00", card="tok_declined")).status_code == 402
    assert await _balance(shop) == "0.00"


async def test_what_is_spent_is_taken_off_once_for_each_key(any_shop: Shop) -> None:
    await _top_up(any_shop, "20.00")
    answers = [await _spend(any_shop, "7.50", "s") for _ in range(2)]
    assert [(answer.status_code, answer.json()["balance"]) for answer in answers] == [(201, "12.50")] * 2
    assert await _balance(any_shop) == "12.50"


async def test_a_balance_is_never_negative_however_many_spend_at_once(any_shop: Shop) -> None:
    await _top_up(any_shop, "10.00")
    answers = await asyncio.gather(*(_spend(any_shop, "3.00") for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 7
    assert await _balance(any_shop) == "1.00"


async def test_the_same_key_may_spend_once_there_is_enough(shop: Shop) -> None:
    assert code_of(await _spend(shop, "3.00", "s")) == "insufficient-funds"
    await _top_up(shop, "10.00")
    assert (await _spend(shop, "3.00", "s")).json()["balance"] == "7.00"


async def test_a_refunded_top_up_is_taken_off_the_balance(shop: Shop) -> None:
    payment = (await _top_up(shop, "10.00")).json()["transaction_id"]
    assert (await shop.refund(payment, "4.00")).status_code == 201
    assert await _balance(shop) == "6.00"
    await _spend(shop, "6.00")
    assert code_of(await shop.refund(payment, "6.00")) == "insufficient-funds"
    assert shop.till.gateway.events() == ["charged", "given back"]


async def test_a_wallet_of_another_account_is_another_one(till: Till, shop: Shop) -> None:
    await _top_up(shop, "10.00")
    assert await _balance(await till.shop()) == "0.00"


def _application(key: str, email: str = "ada@example.org") -> dict[str, str]:
    return {"name": "Ada", "email": email, "api_key_sha256": hashlib.sha256(key.encode()).hexdigest()}


async def test_an_account_is_opened_once_and_its_key_opens_it(any_till: Till) -> None:
    nobody = any_till.client({"Idempotency-Key": "o"})
    first, second = [await nobody.post("/accounts", json=_application("secret")) for _ in range(2)]
    assert (first.status_code, second.json()) == (201, first.json())
    assert "secret" not in first.text
    shop = Shop(any_till, first.json()["account_id"], any_till.client({"Authorization": "Bearer secret"}))
    assert (await shop.pay()).status_code == 201


async def test_an_address_has_one_account(till: Till) -> None:
    first, second = [
        await till.client({"Idempotency-Key": key}).post("/accounts", json=_application(key)) for key in "ab"
    ]
    assert (first.status_code, second.status_code, code_of(second)) == (201, 409, "email-taken")


@pytest.mark.parametrize("what", ["email", "api_key_sha256"])
async def test_of_many_who_want_one_address_or_one_api_key_at_once_one_gets_it(any_till: Till, what: str) -> None:
    applications = [{**_application(key, f"{key}@example.org"), what: _application("same")[what]} for key in "abcd"]
    nobody = Shop(any_till, "nobody", any_till.client())
    answers = await asyncio.gather(*(nobody.send("/accounts", body) for body in applications))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    assert {code_of(answer) for answer in answers if answer.status_code == 409} == {"email-taken"}


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"email": "nobody"}, {"email": "a\0@example.org"}, {"api_key_sha256": "secret"}], ids=str
)
async def test_what_is_no_application_is_refused(till: Till, wrong: dict[str, str]) -> None:
    body = {**_application("k"), **wrong}
    answer = await till.client({"Idempotency-Key": "k"}).post("/accounts", json=body)
    assert (answer.status_code, code_of(answer)) == (400, "malformed")


BASKET = {
    "customer_id": "ada",
    "lines": [{"sku": "tea", "quantity": 3, "unit_price": "0.10"}, {"sku": "pot", "quantity": 1, "unit_price": 19.9}],
}


async def test_an_order_is_created_once(any_shop: Shop) -> None:
    first, second = [await any_shop.send("/orders", BASKET, "o") for _ in range(2)]
    assert (first.status_code, first.json()["total"], second.json()) == (201, "20.20", first.json())
    assert await any_shop.get(first.headers["location"]) == first.json()


async def test_an_order_of_another_account_is_not_found(till: Till, shop: Shop) -> None:
    order = (await shop.send("/orders", BASKET)).headers["location"]
    assert code_of(await (await till.shop()).client.get(order)) == "not-found"


async def test_an_order_without_lines_is_refused(shop: Shop) -> None:
    assert code_of(await shop.send("/orders", {"customer_id": "ada", "lines": []})) == "malformed"
