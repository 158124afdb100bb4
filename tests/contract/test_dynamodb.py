"""The DynamoDB store keeps the contract: two stores on one table are two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel.stores.dynamodb import DynamoStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import LetterContract, MakeStore, OutboxContract, StoreContract
from tests.contract.engine_rows import BY_THE_STORE, ENGINE_ROWS, WITHOUT_CALLS
from tests.servers.ministack import Tables

# An emulator takes a tenth of a second for each: all scenarios of what the store does by itself, and about five of each
# topic that is about the engine. The full effort runs all of them.
covering = pytest.mark.covering(
    shared=("colour", "call_style"), spread=ENGINE_ROWS, whole=WITHOUT_CALLS | BY_THE_STORE, at_most=5
)
pytestmark = [pytest.mark.slow, covering]


class TestDynamodb(StoreContract, LetterContract, OutboxContract):
    @pytest.fixture
    def make_store(self, clock: VirtualClock, dynamodb: Tables) -> MakeStore:
        dynamodb.empty(dynamodb.url)
        return lambda: DynamoStore(dynamodb.url, clock=clock.store_clock)


SERVICE_ITEMS: list[dict[str, Any]] = [
    {"pk": {"S": "asset#pump-1"}, "sk": {"S": "registration"}, "status": {"S": "completed"}, "expires_us": {"N": "0"}},
    {"pk": {"S": "semel"}, "sk": {"S": "semel#"}, "status": {"S": "running"}, "lease_us": {"N": "0"}},
    {"pk": {"S": "letters"}, "sk": {"S": "1"}, "letters_of": {"S": "billing"}, "outbox_of": {"S": "default"}},
]
"""Items that a request for records would find if nothing told them apart."""


class TestDynamodbSharedTable(StoreContract, LetterContract, OutboxContract):
    """In a table with keys of a service, whose own items stay as they are."""

    @pytest.fixture
    def make_store(self, clock: VirtualClock, dynamodb: Tables) -> Iterator[MakeStore]:
        url = dynamodb.shared_url
        dynamodb.empty(url)
        for item in SERVICE_ITEMS:
            dynamodb.client.put_item(TableName=urlsplit(url).netloc, Item=item)
        yield lambda: DynamoStore(url, clock=clock.store_clock)
        left = [item for item in dynamodb.items(url) if not item["pk"]["S"].startswith("semel#")]
        assert sorted(left, key=str) == sorted(SERVICE_ITEMS, key=str)
