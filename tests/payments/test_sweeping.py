"""What nobody came back for is ended as the gateway says; what is kept is kept as long as its kind says."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from examples.hotel.gateway_client import Charge
from examples.payments import sweeping
from examples.payments.app import keyed_routes
from examples.payments.paying import settle
from examples.payments.settings import Retention, Settings
from examples.payments.sweeping import Report, sweep
from tests.payments.conftest import Build
from tests.payments.till import Shop, code_of, rows

pytestmark = pytest.mark.anyio


async def _paid_unheard(shop: Shop, path: str = "/payments", **body: Any) -> None:
    shop.till.gateway.faults(lose_reply=1)
    given = {"amount": "9.00", "customer_id": "c", "payment_method_id": "tok_ok", **body}
    assert (await shop.send(path, given, "k")).status_code == 503


async def test_a_charge_that_nobody_heard_of_is_settled(any_shop: Shop) -> None:
    await _paid_unheard(any_shop)
    till = any_shop.till
    assert await sweep(till.parts) == Report()  # it is too young: somebody may be at it
    till.clock.advance(minutes=2)
    assert await sweep(till.parts) == Report(settled=1)
    assert (await till.statuses(), till.gateway.events()) == ({"succeeded": 1}, ["charged"])
    assert (await any_shop.pay("other")).status_code == 201


async def test_a_top_up_that_nobody_heard_of_is_added_by_the_sweeper_and_by_nobody_else(shop: Shop) -> None:
    await _paid_unheard(shop, "/wallets/ada/top-ups")
    shop.till.clock.advance(minutes=2)
    await sweep(shop.till.parts)
    top_up = {"amount": "9.00", "customer_id": "c", "payment_method_id": "tok_ok"}
    assert (await shop.send("/wallets/ada/top-ups", top_up, "k")).status_code == 201
    assert (await shop.get("/wallets/ada"))["balance"] == "9.00"


async def test_of_two_who_settle_a_top_up_one_adds_to_the_balance(shop: Shop) -> None:
    await _paid_unheard(shop, "/wallets/ada/top-ups")
    key = shop.till.gateway.process.ledger()[-1]["key"]
    settling = partial(settle, key, Charge("charged", "G-1"), shop.till.clock())
    assert [await shop.till.parts.database.transact(settling) for _ in range(2)] == [True, False]
    assert (await shop.get("/wallets/ada"))["balance"] == "9.00"


async def test_a_payment_that_was_never_charged_is_closed_and_never_charged(shop: Shop) -> None:
    till = shop.till
    till.gateway.stop()
    assert (await shop.pay("k")).status_code == 503
    till.gateway.start()
    till.clock.advance(minutes=2)
    assert await sweep(till.parts) == Report()  # its client may come back
    till.clock.advance(hours=1)
    assert await sweep(till.parts) == Report(closed=1)
    answer = await shop.pay("k")
    assert (answer.status_code, code_of(answer)) == (410, "payment-closed")
    assert (await till.statuses(), till.gateway.events()) == ({"void": 1}, ["closed"])


async def test_a_refund_that_nobody_heard_of_is_finished(shop: Shop) -> None:
    payment = await shop.paid("10.00")
    shop.till.gateway.stop()
    assert (await shop.refund(payment, "4.00", "r")).status_code == 503
    shop.till.gateway.start()
    shop.till.clock.advance(minutes=2)
    assert await sweep(shop.till.parts) == Report(refunds=1)
    assert (await shop.refund(payment, "4.00", "r")).status_code == 201
    assert shop.till.gateway.events() == ["charged", "given back"]


async def test_payments_of_bulks_that_nobody_runs_again_keep_no_other_waiting(
    build: Build, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = await build(sqlite_database, max_attempts=1)
    shop = await till.shop()
    till.gateway.stop()
    await shop.bulk(rows(3))
    await till.run_bulks()
    till.gateway.start()
    till.clock.advance(minutes=1)
    await _paid_unheard(shop)
    till.clock.advance(minutes=2)
    monkeypatch.setattr(sweeping, "AT_ONCE", 3)
    assert await sweep(till.parts) == Report(settled=1)
    assert await till.statuses() == {"pending": 3, "succeeded": 1}


async def test_a_gateway_that_is_away_leaves_everything_as_it_is(shop: Shop) -> None:
    await _paid_unheard(shop)
    shop.till.gateway.stop()
    shop.till.clock.advance(hours=2)
    assert await sweep(shop.till.parts) == Report(gateway_silent=1)
    assert await shop.till.statuses() == {"pending": 1}


def test_each_kind_is_kept_as_long_as_one_object_says() -> None:
    assert Settings().retention == Retention(
        payment=timedelta(days=90), order=timedelta(days=7), bulk=timedelta(days=30), critical=timedelta(days=365)
    )


async def test_each_route_keeps_its_keys_as_its_kind_says(shop: Shop) -> None:
    policies = {route.path: route.settings.policy for route in keyed_routes(shop.till.parts)}
    kept = {path: policy.keep_for.days for path, policy in policies.items() if policy is not None}
    assert kept == {
        "/payments": 90,
        "/payments/*/refunds": 365,
        "/accounts": 365,
        "/orders": 7,
        "/wallets/*/top-ups": 365,
        "/wallets/*/payments": 365,
    }


async def test_a_bulk_goes_when_its_time_is_over(build: Build, sqlite_database: str) -> None:
    till = await build(sqlite_database, retention=Retention(bulk=timedelta(0)))
    shop = await till.shop()
    address = await shop.bulk(rows(2))
    await till.parts.semel.sweep()
    assert (await shop.get(address))["state"] == "pending"  # what has not ended is kept, however long it takes
    await till.run_bulks()
    await till.parts.semel.sweep()
    assert code_of(await shop.client.get(address)) == "not-found"
    assert await till.statuses() == {"succeeded": 2}
