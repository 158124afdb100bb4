"""A DynamoDB store asked without an engine, watched on its way to the service."""

from collections.abc import Callable
from typing import Any

from semel.core.operations import Found, Read
from semel.core.record import StoredRecord
from semel.core.store import Answers, Plan
from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.commands import Pause
from semel.stores.dynamodb.driver import DynamoDriver, Send
from tests.unit.stores.asking import Asking
from tests.unit.stores.operations import KEYS, Clock

Meddle = Callable[[Send, Callable[[], Any]], Any]
"""What is done instead of sending: gets the request, and what sends it."""


class WatchedDriver(DynamoDriver):
    """Notes what is sent, and lets a test meddle with it."""

    sent: list[Send]
    pauses: list[float]
    meddle: Meddle | None = None

    def _act(self, wanted: Send | Pause) -> Any:
        if isinstance(wanted, Pause):
            self.pauses.append(wanted.seconds)
            return None
        self.sent.append(wanted)
        if self.meddle is None:
            return super()._act(wanted)
        send = super()._act
        return self.meddle(wanted, lambda: send(wanted))


class Asker(Asking):
    """A store and one driver on it."""

    store: DynamoStore

    def __init__(self, store: DynamoStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.driver = WatchedDriver(store._context)
        self.driver.sent, self.driver.pauses = [], []

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        return self.driver.perform(plans)

    def record(self, digest: bytes = KEYS[0].digest) -> StoredRecord | None:
        """The record as the store has it."""
        return self.one(Read(digest), Found).record

    def actions(self) -> list[str]:
        """What was sent since this was asked last."""
        actions = [sent.call.action for sent in self.driver.sent]
        self.driver.sent.clear()
        return actions
