"""Many at once on one key: one wins, on a real server."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from semel import Semel
from semel.core.key import Key
from semel.core.operations import Claim, Complete, Granted, Recorded
from semel.core.record import NOTHING
from semel.stores.dynamodb import DynamoStore
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import FINGERPRINTS, SECOND, Clock, nonce, terms

pytestmark = pytest.mark.slow

RIVALS = 12
KEYS = [Key.of(f"k-{number}", operation="charge") for number in range(10)]


def race(url: str, clock: Clock, key: Key) -> list[str]:
    """Rivals with stores of their own, who claim in the same moment; what each was told."""
    start = threading.Barrier(RIVALS)

    def rival(number: int) -> str:
        asker = Asker(DynamoStore(url, clock=clock), clock)
        start.wait(60)
        (answer,) = asker.all([Claim(key, FINGERPRINTS[0], nonce(number + 100), terms(), NOTHING)])
        asker.driver.close()
        return type(answer).__name__

    with ThreadPoolExecutor(RIVALS) as pool:
        return list(pool.map(rival, range(RIVALS)))


def test_of_many_claims_for_an_unknown_key_one_is_granted(url: str, clock: Clock) -> None:
    for key in KEYS:
        assert Counter(race(url, clock, key)) == {"Granted": 1, "Running": RIVALS - 1}


def test_of_many_take_overs_one_is_granted(asker: Asker, url: str, clock: Clock) -> None:
    for number, key in enumerate(KEYS):
        asker.one(Claim(key, FINGERPRINTS[0], nonce(number + 1), terms(), NOTHING), Granted)
    clock.now += 31 * SECOND
    for key in KEYS:
        assert Counter(race(url, clock, key)) == {"Granted": 1, "Running": RIVALS - 1}


def test_of_many_claims_for_an_expired_key_one_is_granted(asker: Asker, url: str, clock: Clock) -> None:
    for number, key in enumerate(KEYS):
        lease = asker.one(Claim(key, FINGERPRINTS[0], nonce(number + 1), terms(keep=60), NOTHING), Granted).lease
        asker.one(Complete(lease, b"old"), Recorded)
    clock.now += 61 * SECOND
    for key in KEYS:
        assert Counter(race(url, clock, key)) == {"Granted": 1, "Running": RIVALS - 1}


def test_callers_in_threads_run_each_key_once(url: str) -> None:
    ran: list[str] = []
    with Semel(url) as one, Semel(url) as other, ThreadPoolExecutor(16) as pool:
        calls = [(semel, f"o-{number}") for number in range(20) for semel in (one, other) * 4]

        def call(asked: tuple[Semel, str]) -> str:
            semel, key = asked

            def handler() -> str:
                ran.append(key)
                return key

            return semel.run(key, handler, operation="charge", fingerprint=None).value

        assert list(pool.map(call, calls)) == [key for _, key in calls]
    assert sorted(ran) == sorted(f"o-{number}" for number in range(20))
