"""A key that comes again when semel has forgotten it: what it made is still here, so it makes nothing else."""

import hashlib
import secrets
from typing import Any

import httpx
import pytest

from tests.payments.till import Shop, Till, code_of

pytestmark = pytest.mark.anyio
BASKET: dict[str, Any] = {"customer_id": "ada", "lines": [{"sku": "tea", "quantity": 3, "unit_price": "0.10"}]}


async def _send_later(shop: Shop, path: str, body: object, key: str) -> httpx.Response:
    """The answer to a request when all before it are forgotten."""
    await shop.till.forget_keys()
    answer = await shop.send(path, body, key)
    assert "idempotency-replayed" not in answer.headers
    return answer


def _is_reused(answer: httpx.Response) -> bool:
    return (answer.status_code, code_of(answer)) == (422, "key-reused")


async def test_the_same_payment_is_told_again(any_shop: Shop) -> None:
    body = {"amount": "5.00", "customer_id": "c-1", "payment_method_id": "tok_ok"}
    first = await any_shop.send("/payments", body, "k")
    second = await _send_later(any_shop, "/payments", body, "k")
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert any_shop.till.gateway.events() == ["charged"]


@pytest.mark.parametrize("other", [{"amount": "999.00"}, {"customer_id": "c-2"}], ids=str)
async def test_another_payment_is_refused(shop: Shop, other: dict[str, str]) -> None:
    body = {"amount": "5.00", "customer_id": "c-1", "payment_method_id": "tok_ok"}
    assert (await shop.send("/payments", body, "k")).status_code == 201
    assert _is_reused(await _send_later(shop, "/payments", {**body, **other}, "k"))
    assert shop.till.gateway.events() == ["charged"]


async def test_another_top_up_is_refused_and_adds_nothing(shop: Shop) -> None:
    top_up = {"amount": "5.00", "payment_method_id": "tok_ok"}
    assert (await shop.send("/wallets/ada/top-ups", top_up, "t")).status_code == 201
    assert (await _send_later(shop, "/wallets/ada/top-ups", top_up, "t")).status_code == 201
    assert _is_reused(await _send_later(shop, "/wallets/ada/top-ups", {**top_up, "amount": "9.00"}, "t"))
    assert (await shop.get("/wallets/ada"))["balance"] == "5.00"


async def test_the_same_refund_is_told_again_and_another_one_is_refused(any_shop: Shop) -> None:
    one = await any_shop.paid("10.00")
    order = {"amount": "4.00", "reason": "returned"}
    first = await any_shop.send(f"/payments/{one}/refunds", order, "r")
    second = await _send_later(any_shop, f"/payments/{one}/refunds", order, "r")
    assert (second.status_code, second.json()) == (201, first.json())
    assert _is_reused(await _send_later(any_shop, f"/payments/{one}/refunds", {**order, "amount": "6.00"}, "r"))
    assert (await any_shop.get(f"/payments/{one}"))["refunded"] == "4.00"


async def test_the_same_order_is_told_again_and_another_one_is_refused(any_shop: Shop) -> None:
    first = await any_shop.send("/orders", BASKET, "o")
    second = await _send_later(any_shop, "/orders", BASKET, "o")
    assert (second.status_code, second.json()) == (201, first.json())
    for other in ({"customer_id": "bob"}, {"lines": BASKET["lines"] * 2}):
        assert _is_reused(await _send_later(any_shop, "/orders", {**BASKET, **other}, "o"))
    assert await any_shop.get(first.headers["location"]) == first.json()


def _application(**changed: str) -> dict[str, str]:
    digest = hashlib.sha256(b"secret").hexdigest()
    return {"name": "Ada", "email": "ada@example.org", "api_key_sha256": digest, **changed}


async def test_the_same_account_is_told_again_and_another_one_is_refused(any_till: Till) -> None:
    nobody, key = Shop(any_till, "nobody", any_till.client()), secrets.token_hex(8)
    first = await nobody.send("/accounts", _application(), key)
    second = await _send_later(nobody, "/accounts", _application(), key)
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    for changed in ({"name": "Bob"}, {"email": "bob@example.org"}, {"api_key_sha256": "0" * 64}):
        assert _is_reused(await _send_later(nobody, "/accounts", _application(**changed), key))
