"""The rules of the payment gateway, over its real process: one charge per key, found and refunded by key."""

import asyncio
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from examples.hotel.gateway.faults import Faults
from tests.hotel.gateway_process import BODY, GatewayProcess


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Shared by all tests here; each takes a key of its own."""
    with GatewayProcess(tmp_path_factory.mktemp("gateway") / "ledger") as process:
        yield process


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def test_a_charge_is_answered_with_a_receipt_and_is_in_the_ledger(gateway: GatewayProcess, key: str) -> None:
    answer = gateway.charge(key)
    assert answer.status_code == 201
    (line,) = [line for line in gateway.ledger() if line["key"] == key]
    assert line.pop("at").endswith("+00:00")
    assert line == {"event": "charged", "key": key, **BODY, "receipt": answer.json()["receipt"]}


def test_the_same_key_gets_the_same_answer_and_no_second_line(gateway: GatewayProcess, key: str) -> None:
    first, second = gateway.charge(key), gateway.charge(key)
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert gateway.events(key) == ["charged"]


def test_two_keys_have_two_receipts(gateway: GatewayProcess, key: str) -> None:
    assert gateway.charge(key).json() != gateway.charge(f"{key}-2").json()


def test_a_key_in_quotes_is_the_same_key_as_the_bare_one(gateway: GatewayProcess, key: str) -> None:
    assert gateway.charge(key).json() == gateway.charge(f'"{key}"').json()
    assert gateway.events(key) == ["charged"]


def test_an_amount_written_differently_is_the_same_charge(gateway: GatewayProcess, key: str) -> None:
    assert gateway.charge(key, amount="240.00").json() == gateway.charge(key, amount="240.0").json()


@pytest.mark.parametrize(
    "other", [{"amount": "240.01"}, {"currency": "USD"}, {"card": "tok_declined"}, {"reference": "R002"}]
)
def test_another_body_under_a_used_key_is_refused(gateway: GatewayProcess, key: str, other: dict[str, str]) -> None:
    gateway.charge(key)
    assert gateway.charge(key, **other).status_code == 422
    assert gateway.events(key) == ["charged"]


def test_a_declined_card_is_declined_again_under_the_same_key(gateway: GatewayProcess, key: str) -> None:
    first, second = (gateway.charge(key, card="tok_declined") for _ in range(2))
    assert first.status_code == 402
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert gateway.events(key) == ["declined"]


@pytest.mark.parametrize("amount", [240, 240.0, None, "", "0.00", "-1.00", "1e3", "NaN", "٣.00", "1.00\n"])
def test_an_amount_that_is_no_decimal_text_above_zero_is_refused(
    gateway: GatewayProcess, key: str, amount: object
) -> None:
    assert gateway.charge(key, amount=amount).status_code == 400
    assert gateway.events(key) == []


@pytest.mark.parametrize("wrong", [None, "", "a/b", "a b", '"open', "x" * 256])
def test_a_charge_without_a_usable_key_is_refused(gateway: GatewayProcess, wrong: str | None) -> None:
    before = gateway.ledger()
    assert gateway.charge(wrong).status_code == 400
    assert gateway.ledger() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"amount": "1.00"}'])
def test_a_body_that_is_no_charge_is_refused(gateway: GatewayProcess, key: str, content: bytes) -> None:
    answer = gateway.ask("POST", "/charges", content=content, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert gateway.events(key) == []


def test_twenty_charges_at_once_with_one_key_give_one_line_and_one_answer(gateway: GatewayProcess, key: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: gateway.charge(key), range(20)))
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, gateway.charge(key).content)}
    assert gateway.events(key) == ["charged"]


def test_finding_tells_state_receipt_and_amount(gateway: GatewayProcess, key: str) -> None:
    receipt = gateway.charge(key).json()["receipt"]
    assert gateway.find(key).json() == {"state": "charged", "receipt": receipt, "amount": "240.00"}


def test_finding_a_declined_charge_tells_so(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key, card="tok_declined")
    assert gateway.find(key).json() == {"state": "declined", "receipt": None, "amount": "240.00"}


def test_an_unknown_key_is_not_found(gateway: GatewayProcess, key: str) -> None:
    assert gateway.find(key).status_code == 404


def test_a_refund_gives_the_amount_back_once(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key)
    first, second = gateway.refund(key), gateway.refund(key)
    assert first.status_code == 200
    assert first.json()["state"] == "refunded"
    assert first.content == second.content == gateway.find(key).content
    charged, refunded = (line for line in gateway.ledger() if line["key"] == key)
    assert (charged["event"], refunded["event"]) == ("charged", "refunded")
    assert Decimal(charged["amount"]) == Decimal(refunded["amount"])
    assert charged["receipt"] == refunded["receipt"]


def test_a_charge_under_a_refunded_key_is_refused(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key)
    gateway.refund(key)
    assert gateway.charge(key).status_code == 410
    assert gateway.events(key) == ["charged", "refunded"]


def test_a_refund_before_the_charge_closes_the_key(gateway: GatewayProcess, key: str) -> None:
    first, second = gateway.refund(key), gateway.refund(key)
    assert first.status_code == 200
    assert first.json()["state"] == second.json()["state"] == gateway.find(key).json()["state"] == "closed"
    assert gateway.charge(key).status_code == 410
    assert gateway.events(key) == ["closed"]


def test_a_refund_of_a_declined_charge_changes_nothing(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key, card="tok_declined")
    assert gateway.refund(key).json()["state"] == "declined"
    assert gateway.events(key) == ["declined"]


@pytest.mark.parametrize(
    "wrong", [[], {"delay": -1}, {"delay": "1"}, {"delay": True}, {"lose_reply": 0.5}, {"die_after": -1}, {"dely": 1}]
)
def test_a_fault_that_is_none_is_refused_and_changes_nothing(gateway: GatewayProcess, wrong: object) -> None:
    before = gateway.faults()
    assert gateway.ask("POST", "/faults", json=wrong).status_code == 400
    assert gateway.faults() == before


def test_a_fault_with_a_wrong_neighbour_is_not_set(gateway: GatewayProcess) -> None:
    assert gateway.ask("POST", "/faults", json={"lose_reply": 1, "delay": -1}).status_code == 400
    assert gateway.faults()["lose_reply"] == 0


def _give_back(gateway: GatewayProcess, key: str, refund: str, amount: str) -> tuple[int, str]:
    answer = gateway.ask(
        "POST", f"/charges/{key}/refunds", json={"amount": amount}, headers={"Idempotency-Key": f"{key}-{refund}"}
    )
    return answer.status_code, str(answer.json().get("receipt") or answer.json()["error"])


def test_a_part_is_given_back_once_for_each_key(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key)
    first = _give_back(gateway, key, "a", "100.00")
    assert (first[0], _give_back(gateway, key, "a", "100.00")) == (201, first)
    assert [gateway.events(f"{key}-{refund}") for refund in "ab"] == [["given back"], []]


def test_no_more_is_given_back_than_was_charged(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key)
    assert _give_back(gateway, key, "a", "200.00")[0] == 201
    assert _give_back(gateway, key, "b", "40.01") == (409, "not-refundable")
    assert _give_back(gateway, key, "c", "40.00")[0] == 201


def test_what_was_given_back_is_known_after_a_restart(gateway: GatewayProcess, key: str) -> None:
    gateway.charge(key)
    first = _give_back(gateway, key, "a", "200.00")
    gateway.restart()
    assert _give_back(gateway, key, "a", "200.00") == first
    assert _give_back(gateway, key, "b", "50.00") == (409, "not-refundable")


def test_an_error_as_an_answer_comes_after_the_charge(gateway: GatewayProcess, key: str) -> None:
    gateway.faults(error_reply=1)
    assert gateway.charge(key).status_code == 500
    assert (gateway.events(key), gateway.charge(key).status_code) == (["charged"], 201)


def test_charges_that_were_held_go_on_in_the_order_in_which_they_came() -> None:
    faults, order = Faults(delay=600), list[str]()

    async def charge(name: str) -> None:
        await faults.pause(0)
        order.append(name)

    async def hold_two() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(charge("first"))
            await asyncio.sleep(0)
            group.create_task(charge("second"))
            faults.change(
                {"die_after": 0}
            )  # in the same turn of the loop: a charge that comes, and a look at the faults
            await asyncio.sleep(0)
            faults.change({"delay": 0})

    asyncio.run(hold_two())
    assert order == ["first", "second"]
