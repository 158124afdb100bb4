"""The DynamoDB store keeps the contract in a table with keys of a service, and leaves the service's own items alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel.stores.dynamodb import DynamoStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import LetterContract, MakeStore, OutboxContract, StoreContract
from semel.testing.contract.topics.administration import RecordsContract, SweepContract
from semel.testing.contract.topics.erasing import ErasingContract
from semel.testing.contract.topics.history import HistoryContract, HolderContract
from semel.testing.contract.topics.operations import ListContract, OperationContract
from semel.testing.contract.topics.searching import CountsContract, SearchContract
from semel.testing.contract.topics.steps import StepContract
from tests.contract.engine_rows import ENGINE_ROWS
from tests.effort import FULL
from tests.servers.ministack import Tables

# The plans are those of a table of semel's own, which runs all of them: here a few of each topic that reads or writes
# in another way show that every kind of request is translated. The full effort runs all of all topics.
covering = pytest.mark.covering(shared=("colour", "call_style"), spread=ENGINE_ROWS, whole=frozenset(), at_most=5)
pytestmark = [pytest.mark.slow, covering]

SERVICE_ITEMS: list[dict[str, Any]] = [
    {"pk": {"S": "asset#pump-1"}, "sk": {"S": "registration"}, "status": {"S": "completed"}, "expires_us": {"N": "0"}},
    {"pk": {"S": "semel"}, "sk": {"S": "semel#"}, "status": {"S": "running"}, "lease_us": {"N": "0"}},
    {"pk": {"S": "letters"}, "sk": {"S": "1"}, "letters_of": {"S": "billing"}, "outbox_of": {"S": "default"}},
]
"""Items that a request for records would find if nothing told them apart."""


class SharedTable:
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


class TestDynamodbSharedTable(
    SharedTable,
    OperationContract,
    ListContract,
    CountsContract,
    ErasingContract,
    HistoryContract,
    HolderContract,
    RecordsContract,
    SearchContract,
    StepContract,
    SweepContract,
    LetterContract,
    OutboxContract,
):
    """Of what depends on requests, some of each kind."""


if FULL:

    class TestWholeContractInASharedTable(SharedTable, StoreContract, LetterContract, OutboxContract):
        """All of it."""
