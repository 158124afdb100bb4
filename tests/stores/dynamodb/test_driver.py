"""The drivers: how much at once, in which process, and with which SDK."""

import asyncio
import sys
import threading
from typing import Any

import pytest

from semel.core.key import Key
from semel.core.operations import Claim, Granted
from semel.core.record import NOTHING
from semel.core.store import Plan
from semel.errors import StoreUnavailable, UsageError
from semel.stores.dynamodb import DynamoStore, driver
from semel.stores.dynamodb.driver import Send
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import FINGERPRINTS, Clock, claim, nonce, terms

pytestmark = pytest.mark.slow

MANY = [
    Claim(Key.of(f"k-{number}", operation="charge"), FINGERPRINTS[0], nonce(number), terms(), NOTHING)
    for number in range(20)
]


class Counting:
    """How many are on their way at the same time, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self, _wanted: Send, send: Any) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return send()
        finally:
            with self._lock:
                self._now -= 1


def test_no_more_requests_than_the_pool_allows_are_on_their_way(url: str, clock: Clock) -> None:
    asker = Asker(DynamoStore(url, clock=clock, pool_size=3), clock)
    asker.driver.meddle = counting = Counting()
    assert [type(answer) for answer in asker.all(MANY)] == [Granted] * 20
    assert 1 < counting.most <= 3
    asker.driver.close()


def test_several_plans_of_a_round_each_get_their_own_answers(asker: Asker) -> None:
    plans: list[Plan] = [asker.store.plan(some, joined=False) for some in (MANY[:3], [], MANY[3:10], MANY[:1])]
    replies = asker.driver.perform(plans)
    assert [[type(answer) for answer in reply] for reply in replies if isinstance(reply, list)] == [
        [Granted] * count for count in (3, 0, 7, 1)
    ]


def test_a_driver_opens_again_after_it_was_closed(asker: Asker) -> None:
    asker.one(claim(), Granted)
    asker.driver.close()
    asker.one(claim(), Granted)


def test_a_forked_process_shares_no_client(asker: Asker) -> None:
    asker.one(claim(), Granted)
    before = asker.driver._client
    asker.driver._pid = -1  # as if this were the child
    asker.one(claim(), Granted)
    assert asker.driver._client is not before
    before.close()


def test_a_service_that_cannot_be_reached_is_unavailable(clock: Clock, dynamodb: object) -> None:
    asker = Asker(DynamoStore("dynamodb://records?region=eu-west-1&endpoint=http://127.0.0.1:1", clock=clock), clock)
    with pytest.raises(StoreUnavailable, match=r"cannot be reached.*nothing was recorded"):
        asker.one(claim(), Granted)
    asker.driver.close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_missing_sdk_is_named(url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, colour: str) -> None:
    for module in ("boto3", "aiobotocore.session"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(driver, "_session", driver._session.__wrapped__)
    monkeypatch.setattr(driver, "_async_session", driver._async_session.__wrapped__)
    store = DynamoStore(url, clock=clock)
    plan = store.plan([claim()], joined=False)
    if colour == "sync":
        (reply,) = store.driver().perform([plan])
    else:
        (reply,) = asyncio.run(_performed(store, plan))
    assert isinstance(reply, list)
    assert isinstance(reply[0], UsageError)
    assert 'pip install "semel[dynamodb]"' in str(reply[0])


async def _performed(store: DynamoStore, plan: Plan) -> Any:
    return await store.async_driver().perform([plan])
