"""Claims alone, without a handler and without a completion, one after the other: what arbitration costs by itself."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from bench.by_hand_postgresql import FINGERPRINT
from bench.callers import Numbers, alone, timed
from bench.workload import OPERATION, TENANT, order
from semel import Key, Policy
from semel.core.operations import Claim, Granted
from semel.core.record import NOTHING
from semel.core.store import Driver, Store
from semel.engine.call_flow import terms_of
from semel.stores.urls import store_from_url

_TERMS = terms_of(Policy())


class Claimer:
    """One caller with one connection; every claim is for a new key."""

    def __init__(self, store: Store, driver: Driver) -> None:
        self._store = store
        self._driver = driver
        self._numbers = Numbers()
        self._numbers.take(1)  # the template was filled with the first

    def claim(self, number: int) -> None:
        """One claim, granted."""
        key = Key.of(order(number), operation=OPERATION, scope=TENANT)
        claim = Claim(key, FINGERPRINT, os.urandom(16), _TERMS, NOTHING)
        answers = self._driver.perform([self._store.plan([claim], joined=False)])[0]
        if isinstance(answers, Exception):
            raise answers
        assert isinstance(answers[0], Granted), f"the claim was not granted ({answers[0]!r}): the comparison is wrong"

    def median(self, calls: int) -> float:
        """As a measure: what so many claims take if each takes as long as the median of them."""
        seconds: list[float] = []
        alone(self._numbers.take(calls), timed(self.claim, seconds))
        return statistics.median(seconds) * calls


@contextmanager
def claimer(url: str) -> Iterator[Claimer]:
    """A claimer on the database at `url`."""
    store = store_from_url(url)
    driver = store.driver()
    try:
        yield Claimer(store, driver)
    finally:
        driver.close()
