"""The model of DynamoDB answers as a server does, over random sequences in which expired items are deleted late."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel.core.key import Key
from semel.stores.dynamodb import DynamoStore
from semel_lab.simulate.models import DynamoModel, Expire, Isolation, Session
from tests.servers.ministack import Tables
from tests.simulate.sequences import KEEP, KEYS, LEASE, QUIET, Clock, Kind, compare
from tests.simulate.served import FEWER, PARTS, TIME_LIMIT, Served

SECOND = 1_000_000


class Modelled:
    """The model, and what happens to it."""

    def __init__(self) -> None:
        self._model = DynamoModel()

    def apply(self, _session: Session, act: Any, now: int) -> Any:
        if isinstance(act, Expire):
            return self._model.expire(act.digest, now)
        return self._model.apply(act, now)


class Real(Served):
    """A table; its service deletes an item when the sequence says so."""

    def __init__(self, tables: Tables, clock: Clock, stack: ExitStack) -> None:
        url = tables.new_table()
        super().__init__(DynamoStore(url, clock=clock), stack)
        self._client = tables.client
        self._table = urlsplit(url).netloc
        self._clock = clock
        # The server must not delete by its own clock: to that, everything here is long over.
        never = {"Enabled": False, "AttributeName": "ttl"}
        self._client.update_time_to_live(TableName=self._table, TimeToLiveSpecification=never)

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Forget what the sequence before left."""
        assert not isolations
        deletions = [{"DeleteRequest": {"Key": _key(key.digest)}} for key in KEYS]
        refused = self._client.batch_write_item(RequestItems={self._table: deletions})["UnprocessedItems"]
        assert not refused

    def perform(self, session: int, act: Any) -> Any:
        """On the lane; or it happens."""
        return self._expire(act.digest) if isinstance(act, Expire) else super().perform(session, act)

    def _expire(self, digest: bytes) -> bool:
        # `ttl` is a word of DynamoDB's own, so it is called otherwise here.
        over = {
            "ConditionExpression": "#ttl <= :now",
            "ExpressionAttributeNames": {"#ttl": "ttl"},
            "ExpressionAttributeValues": {":now": {"N": str(self._clock.now // SECOND)}},
        }
        try:
            self._client.delete_item(TableName=self._table, Key=_key(digest), **over)
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def _key(digest: bytes) -> dict[str, Any]:
    return {"digest": {"B": digest}}


def deleting(_dice: random.Random, key: Key) -> Any:
    """What the service does on its own."""
    return Expire(key.digest)


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_model_answers_as_the_server_does(
    dynamodb: Tables, part: int, record_property: Callable[[str, object], None]
) -> None:
    clock = Clock()
    count = FEWER // PARTS
    with ExitStack() as stack:
        real = Real(dynamodb, clock, stack)
        kind = Kind(joins=False, happens=deleting, spans=(1, 50, QUIET, LEASE, KEEP, 2 * SECOND))
        seen = compare(Modelled, real, clock, seed=0, first=part * count, count=count, kind=kind)
    record_property("figures", f"{count:,} sequences, {seen.total():,} acts")
    assert {"lane: Expire bool", "lane: Claim Granted", "lane: Claim Replay", "lane: Complete Lost"} <= set(seen)
