"""Bulks: a file in, every line checked, each payment once, followed and steered from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from examples.payments.bulk import open_left
from examples.payments.settings import BulkLimits, Retention
from examples.payments.working import Worker, find_open
from tests.effort import FULL
from tests.payments.conftest import Build
from tests.payments.till import Shop, Till, as_csv, as_jsonl, code_of, rows

pytestmark = pytest.mark.anyio
JSONL = "application/x-ndjson"


def _charged_once(till: Till, count: int) -> bool:
    return sorted(till.charges().values()) == [1] * count


@pytest.mark.covering
@pytest.mark.parametrize(("write", "kind"), [(as_csv, "text/csv"), (as_jsonl, JSONL)], ids=["csv", "jsonl"])
async def test_a_file_is_paid_and_its_results_are_in_its_order(
    any_shop: Shop, write: Callable[..., bytes], kind: str
) -> None:
    lines = [*rows(4, "0.10"), ("p-declined", "3.00", "c", "tok_declined"), ("p-nothing", "0.00", "c", "tok_ok")]
    answer = await any_shop.upload(write(lines), kind=kind, params={"name": "wages.csv"})
    assert (answer.status_code, answer.json()["state"], answer.json()["total"]) == (202, "pending", 6)
    await any_shop.till.run_bulks()
    told = await any_shop.get(answer.headers["location"])
    counts = {name: told[name] for name in ("state", "completed", "failed", "skipped", "remaining", "total_amount")}
    assert counts == {
        "state": "completed",
        "completed": 4,
        "failed": 1,
        "skipped": 1,
        "remaining": 0,
        "total_amount": "3.40",
    }
    assert (told["file_name"], told["actions"]) == ("wages.csv", ["retry"])
    results = await any_shop.results(answer.headers["location"])
    assert [(line["id"], line["status"]) for line in results] == [
        *((f"p-{number}", "completed") for number in range(4)),
        ("p-declined", "failed"),
        ("p-nothing", "skipped"),
    ]
    assert results[0]["payment"]["amount"] == "0.10"
    assert any_shop.till.charges() == {line["payment"]["transaction_id"]: 1 for line in results[:4]}


@pytest.mark.parametrize(("write", "kind"), [(as_csv, "text/csv"), (as_jsonl, JSONL)], ids=["csv", "jsonl"])
async def test_a_file_may_begin_with_a_byte_order_mark(shop: Shop, write: Callable[..., bytes], kind: str) -> None:
    answer = await shop.upload(b"\xef\xbb\xbf" + write(rows(2, "0.10")), kind=kind)
    assert answer.status_code == 202, answer.text
    assert (await shop.get(answer.headers["location"]))["total_amount"] == "0.20"


async def test_results_go_on_behind_a_position_and_can_be_chosen_by_status(shop: Shop) -> None:
    address = await shop.bulk([*rows(4), ("p-x", "3.00", "c", "tok_declined")])
    await shop.till.run_bulks()
    assert [line["id"] for line in await shop.results(address, after=1, limit=2)] == ["p-2", "p-3"]
    assert [line["id"] for line in await shop.results(address, status="failed")] == ["p-x"]
    assert code_of(await shop.client.get(f"{address}/results?status=odd")) == "malformed"
    assert code_of(await shop.client.get(f"{address}/results?after=-1")) == "malformed"


async def test_failures_are_counted_by_class(shop: Shop) -> None:
    address = await shop.bulk([*rows(2), *((f"x-{n}", "3.00", "c", "tok_declined") for n in range(3))])
    await shop.till.run_bulks()
    told = await shop.get(f"{address}/failures")
    assert told == {"failures": [{"class": "Declined", "title": "Card declined", "count": 3}]}


async def test_the_same_file_under_the_same_key_is_the_same_bulk(any_shop: Shop) -> None:
    answers = [await any_shop.upload(as_csv(rows(3)))]
    await any_shop.till.run_bulks()
    answers.append(await any_shop.upload(as_csv(rows(3))))
    await any_shop.till.run_bulks()
    assert [answer.headers.get("idempotency-replayed") for answer in answers] == [None, "true"]
    assert (answers[1].status_code, answers[1].json()["state"]) == (202, "completed")
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert _charged_once(any_shop.till, 3)


async def test_a_file_that_is_sent_many_times_at_once_is_one_bulk(any_shop: Shop) -> None:
    answers = await asyncio.gather(*(any_shop.upload(as_csv(rows(5))) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.headers["location"] for answer in answers}) == 1
    await any_shop.till.run_bulks()
    assert _charged_once(any_shop.till, 5)


async def test_another_file_under_the_same_key_is_refused(shop: Shop) -> None:
    address = await shop.bulk(rows(3))
    answer = await shop.upload(as_csv(rows(3, "2.00")))
    assert (answer.status_code, code_of(answer)) == (422, "key-reused")
    assert any("p-0" in difference for difference in answer.json()["differences"])
    assert (await shop.get(address))["total_amount"] == "3.75"


async def test_without_a_key_no_file_is_taken(shop: Shop) -> None:
    answer = await shop.client.post("/bulk", content=b"", headers={"Content-Type": "text/csv"})
    assert (answer.status_code, code_of(answer)) == (400, "key-missing")


async def test_every_bad_line_is_named_by_its_number_and_nothing_is_paid(shop: Shop) -> None:
    lines = as_csv(rows(2)) + b"p-9,12,c\np-8,-1,c,tok_ok\np-7,12x,c,tok_ok\np-0,1.00,c,tok_ok\np-6,1.00,,tok_ok\n"
    answer = await shop.upload(lines)
    told = answer.json()
    assert (answer.status_code, code_of(answer), told["count"]) == (422, "file-invalid", 5)
    assert [line["line"] for line in told["lines"]] == [4, 5, 6, 7, 8]
    named = {line["line"]: line["problem"] for line in told["lines"]}
    assert "4 fields were expected" in named[4]
    assert "the amount is not above zero" in named[5]
    assert named[6].startswith("amount: ")
    assert "'p-0' was there already, in 2" in named[7]
    await shop.till.run_bulks()
    assert (await shop.till.statuses(), shop.till.gateway.events()) == ({}, [])


@pytest.mark.parametrize(
    "amount", ["1e1000000", "9e999999", "-9e999999", "1e99999999999999999999", "NaN", "sNaN", "-Infinity"]
)
@pytest.mark.parametrize("kind", ["text/csv", JSONL])
async def test_an_amount_beyond_all_bounds_is_a_bad_line(shop: Shop, amount: str, kind: str) -> None:
    lines = [("p-1", "5.00", "c", "tok_ok"), ("p-2", f'"{amount}"' if kind == JSONL else amount, "c", "tok_ok")]
    answer = await shop.upload(as_csv(lines) if kind == "text/csv" else as_jsonl(lines), kind=kind)
    assert (answer.status_code, code_of(answer)) == (422, "file-invalid")
    assert [line["line"] for line in answer.json()["lines"]] == [3 if kind == "text/csv" else 2]


async def test_a_corrected_file_may_have_the_same_key(shop: Shop) -> None:
    assert (await shop.upload(as_csv(rows(2)) + b"p-9,oops,c,tok_ok\n")).status_code == 422
    await shop.bulk(rows(2))
    await shop.till.run_bulks()
    assert _charged_once(shop.till, 2)


async def test_a_member_that_is_not_known_is_refused(shop: Shop) -> None:
    line = b'{"id": "a", "amount": 1, "customer_id": "c", "payment_method_id": "t", "currency": "USD"}'
    answer = await shop.upload(line, kind=JSONL)
    assert "currency" in answer.json()["lines"][0]["problem"]


LIMITS = BulkLimits(size=2000, lines=10, line=100)


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        (as_csv(rows(80)), "text/csv", (413, "file-too-large")),
        (as_csv(rows(10)), "text/csv", (413, "file-too-large")),
        (b"x" * 101, JSONL, (413, "file-too-large")),
        (as_csv([]), "text/csv", (422, "file-invalid")),
        (b"\n \n", JSONL, (422, "file-invalid")),
        (b"<file/>", "text/xml", (415, "unknown-format")),
    ],
    ids=["bytes", "lines", "one-line", "only-a-head", "blank", "format"],
)
async def test_a_file_beyond_the_limits_is_refused_before_anything_is_loaded(
    build: Build, sqlite_database: str, content: bytes, kind: str, expected: tuple[int, str]
) -> None:
    till = await build(sqlite_database, bulk=LIMITS)
    shop = await till.shop()
    answer = await shop.upload(content, kind=kind)
    assert (answer.status_code, code_of(answer)) == expected
    assert [batch async for batch in till.parts.batches(shop.account_id).list()] == []


async def test_a_file_that_does_not_say_how_long_it_is_is_cut_off_at_the_limit(
    build: Build, sqlite_database: str
) -> None:
    till = await build(sqlite_database, bulk=LIMITS)
    shop, sent = await till.shop(), []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.append(1)
            yield b"x" * 500

    headers = {"Idempotency-Key": "k", "Content-Type": JSONL}
    answer = await shop.client.post("/bulk", content=endless(), headers=headers)
    assert (answer.status_code, code_of(answer)) == (413, "file-too-large")
    assert len(sent) <= 6


async def test_a_bulk_of_another_account_is_not_found(till: Till, shop: Shop) -> None:
    address = await shop.bulk(rows(2))
    other = await till.shop()
    for path in ("", "/results", "/failures"):
        assert code_of(await other.client.get(address + path)) == "not-found"
    for action in ("pause", "resume", "cancel", "retry"):
        assert code_of(await other.client.post(f"{address}/{action}")) == "not-found"
    assert (await shop.get(address))["state"] == "pending"


async def test_the_same_key_of_another_account_is_another_bulk(till: Till) -> None:
    shops = [await till.shop() for _ in range(2)]
    addresses = [await shop.bulk(rows(2)) for shop in shops]
    assert addresses[0] == addresses[1]
    await till.run_bulks()
    assert [(await shop.get(addresses[0]))["completed"] for shop in shops] == [2, 2]
    assert _charged_once(till, 4)


async def _act(shop: Shop, address: str, action: str) -> dict[str, Any]:
    answer = await shop.client.post(f"{address}/{action}")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_paused_bulk_pays_nothing_until_it_is_resumed(any_shop: Shop) -> None:
    till, address = any_shop.till, await any_shop.bulk(rows(3))
    assert (await _act(any_shop, address, "pause"))["actions"] == ["resume", "cancel"]
    assert (await _act(any_shop, address, "pause"))["state"] == "paused"
    await till.run_bulks()
    assert till.gateway.events() == []
    assert (await _act(any_shop, address, "resume"))["state"] == "pending"
    await till.run_bulks()
    assert _charged_once(till, 3)


async def test_a_worker_does_not_shut_what_was_opened_again_meanwhile(shop: Shop) -> None:
    till, address = shop.till, await shop.bulk(rows(2))
    (seen,) = await find_open(till.parts)
    await _act(shop, address, "pause")
    await _act(shop, address, "resume")
    await Worker(till.parts).run_bulk(seen)
    assert [bulk.opened for bulk in await find_open(till.parts)] == [2]
    await till.run_bulks()
    assert await find_open(till.parts) == []


async def test_a_bulk_that_is_resumed_past_the_service_is_paid_all_the_same(any_shop: Shop) -> None:
    """As by `semel batch resume`, in the console, or by a request that is cut off before its row is written."""
    till, address = any_shop.till, await any_shop.bulk(rows(3))
    await _act(any_shop, address, "pause")
    await till.run_bulks()
    batch = await till.parts.batches(any_shop.account_id).get(address.rpartition("/")[2])
    await batch.resume()
    await till.run_bulks()
    assert till.gateway.events() == [], "no row says that it is to be run"
    assert await open_left(till.parts) == 1
    assert await open_left(till.parts) == 0
    await till.run_bulks()
    assert _charged_once(till, 3)
    assert await open_left(till.parts) == 0, "it has ended"


async def test_a_key_whose_bulk_is_not_kept_any_more_takes_another_file(build: Build, sqlite_database: str) -> None:
    till = await build(sqlite_database, retention=Retention(bulk=timedelta(0)))
    shop = await till.shop()
    address = await shop.bulk(rows(2))
    await till.run_bulks()
    assert await shop.bulk([("q-1", "2.00", "c-1", "tok_ok")]) == address
    await till.run_bulks()
    assert _charged_once(till, 3)


async def test_a_cancelled_bulk_pays_nothing_more(shop: Shop) -> None:
    address = await shop.bulk(rows(3))
    assert (await _act(shop, address, "cancel"))["state"] == "cancelled"
    await shop.till.run_bulks()
    for action in ("resume", "retry", "pause"):
        refused = await shop.client.post(f"{address}/{action}")
        assert (refused.status_code, code_of(refused), refused.json()["state"]) == (409, "wrong-state", "cancelled")
    assert shop.till.gateway.events() == []


async def test_what_failed_is_tried_again_under_another_key_of_the_gateway(any_shop: Shop) -> None:
    till, address = any_shop.till, await any_shop.bulk([*rows(2), ("p-x", "3.00", "c", "tok_declined")])
    await till.run_bulks()
    assert (await _act(any_shop, address, "retry"))["state"] == "running"
    await till.run_bulks()
    assert (await any_shop.get(address))["failed"] == 1
    assert sorted(till.gateway.events()) == ["charged", "charged", "declined", "declined"]


async def test_a_bulk_pauses_by_itself_when_too_many_fail(shop: Shop) -> None:
    address = await shop.bulk(rows(40, card="tok_declined"))
    await shop.till.run_bulks()
    told = await shop.get(address)
    assert (told["state"], told["actions"]) == ("paused", ["resume", "cancel", "retry"])
    assert 10 < told["failed"] < 40


@pytest.mark.covering
@pytest.mark.parametrize("fault", ["lose_reply", "error_reply"])
async def test_answers_that_are_lost_after_the_charge_charge_nothing_twice(any_shop: Shop, fault: str) -> None:
    any_shop.till.gateway.faults(**{fault: 5})
    address = await any_shop.bulk(rows(10))
    await any_shop.till.run_bulks()
    told = await any_shop.get(address)
    assert (told["state"], told["completed"]) == ("completed", 10)
    assert _charged_once(any_shop.till, 10)


async def test_a_gateway_that_is_slow_and_away_for_a_while_charges_nothing_twice(
    build: Build, sqlite_database: str
) -> None:
    till = await build(sqlite_database, gateway_timeout=timedelta(seconds=0.5), max_attempts=1, concurrency=4)
    patient = await build(sqlite_database, max_attempts=1, concurrency=4)
    shop = await till.shop()
    till.gateway.faults(delay=600)
    address = await shop.bulk(rows(6))
    await till.run_bulks()
    told = await shop.get(f"{address}/failures")
    assert [(one["title"], one["count"]) for one in told["failures"]] == [("No answer from the gateway", 6)]
    till.gateway.faults(delay=0)  # what was given up goes through after all
    till.gateway.process.wait_for_charges(0)
    await _act(shop, address, "retry")
    await patient.run_bulks()
    assert (await shop.get(address))["completed"] == 6
    assert _charged_once(till, 6)


@pytest.mark.parametrize("any_database", ["postgresql", "sqlite"] if FULL else ["postgresql"], indirect=True)
async def test_two_workers_on_one_bulk_charge_each_payment_once(build: Build, any_database: str) -> None:
    till, count = await build(any_database, page=10), 300 if FULL else 40
    shop, other = await till.shop(), till.twin()
    address = await shop.bulk(rows(count))
    till.gateway.faults(delay=600)
    workers = [asyncio.create_task(each.run_bulks()) for each in (till, other)]
    # Each has a page of its own, and as many payments of it under way as it may.
    await asyncio.to_thread(till.gateway.process.wait_for_charges, 2 * till.settings.concurrency)
    till.gateway.faults(delay=0)
    await asyncio.gather(*workers)
    await other.parts.close()
    assert (await shop.get(address))["completed"] == count
    assert _charged_once(till, count)
