"""A table that belongs to a service: how it is made ready, what the doctor says of it, and what stays as it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel import Semel
from semel.errors import RecordUnreadable, SchemaOutdated
from semel.stores.dynamodb import DynamoStore, Writes
from tests.servers.ministack import Tables

pytestmark = pytest.mark.slow


def make_table(dynamodb: Tables, *, sk_type: str = "S", ttl: str = "", **keys: str) -> tuple[str, str]:
    """A table as a service makes it, with an index on `status`; its URL and its name."""
    url = dynamodb.new_url(**keys)
    name = urlsplit(url).netloc
    dynamodb.client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": sk_type},
            {"AttributeName": "status", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by_status",
                "KeySchema": [{"AttributeName": "status", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    if ttl:
        asked = {"Enabled": True, "AttributeName": ttl}
        dynamodb.client.update_time_to_live(TableName=name, TimeToLiveSpecification=asked)
    return url, name


def findings(url: str) -> dict[str, Any]:
    return {finding.topic: finding for finding in DynamoStore(url).admin().examine(timedelta(0))}


def ttl_of(dynamodb: Tables, name: str) -> str:
    told = dynamodb.client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return str(told.get("AttributeName", ""))


def test_a_table_that_is_there_gets_what_is_missing_and_keeps_the_rest(dynamodb: Tables) -> None:
    url, name = make_table(dynamodb, pk="pk", sk="sk")
    assert DynamoStore(url).admin().migrate(search=True)[:2] == ["index semel_outbox", "time to live"]
    assert DynamoStore(url).admin().migrate(search=True) == []
    indexes = dynamodb.client.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
    assert {"by_status", "semel_outbox", "semel_subject"} <= {index["IndexName"] for index in indexes}
    assert ttl_of(dynamodb, name) == "semel_ttl"


def test_a_time_to_live_of_the_service_stays(dynamodb: Tables) -> None:
    url, name = make_table(dynamodb, pk="pk", sk="sk", ttl="gone_at")
    assert "time to live" not in DynamoStore(url).admin().migrate()
    assert ttl_of(dynamodb, name) == "gone_at"
    assert "put ttl=gone_at into the URL" in findings(url)["time to live"].advice
    assert findings(f"{url}&ttl=gone_at")["time to live"].verdict == "ok"


def test_records_expire_by_the_attribute_that_is_named(dynamodb: Tables) -> None:
    url, _ = make_table(dynamodb, pk="pk", sk="sk", ttl="gone_at")
    with Semel(f"{url}&ttl=gone_at") as semel:
        semel.run("k", lambda: None, operation="o", fingerprint=None)
    (item,) = [item for item in dynamodb.items(url) if "semel_status" in item]
    assert "gone_at" in item


def test_the_doctor_says_that_a_table_is_shared(dynamodb: Tables) -> None:
    assert findings(dynamodb.shared_url)["shared"].found.startswith("beside items of a service")
    assert "shared" not in findings(dynamodb.url)


@pytest.mark.parametrize("keys", [{"pk": "pk"}, {"pk": "sk", "sk": "pk"}, {"pk": "id", "sk": "sk"}, {}])
def test_other_keys_than_those_of_the_table_are_refused(dynamodb: Tables, keys: dict[str, str]) -> None:
    url, _ = make_table(dynamodb, **keys)
    with pytest.raises(SchemaOutdated, match="nothing was changed"):
        DynamoStore(url).admin().migrate()
    assert findings(url)["schema"].verdict == "fix"


def test_a_key_that_is_no_text_is_refused(dynamodb: Tables) -> None:
    url, _ = make_table(dynamodb, sk_type="N", pk="pk", sk="sk")
    with pytest.raises(SchemaOutdated, match=r"have to be text"):
        DynamoStore(url).admin().migrate()


def test_no_index_of_the_service_holds_a_record(dynamodb: Tables) -> None:
    url, name = make_table(dynamodb, pk="pk", sk="sk")
    with Semel(url) as semel:
        semel.run("k", lambda: None, operation="o", fingerprint=None)
    assert any("semel_status" in item for item in dynamodb.items(url))
    assert dynamodb.client.scan(TableName=name, IndexName="by_status")["Items"] == []


def test_effect_and_record_are_written_together_beside_each_other(dynamodb: Tables) -> None:
    url, name = make_table(dynamodb, pk="pk", sk="sk")
    writes, key = Writes(dynamodb.client), {"pk": {"S": "asset#1"}, "sk": {"S": "energy"}}

    def add() -> None:
        added = {"UpdateExpression": "ADD kwh :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
        writes.add({"Update": {"TableName": name, "Key": key, **added}})

    with Semel(url) as semel:
        for _ in range(2):
            with semel.within(writes):
                semel.run("k", add, operation="o", fingerprint=None)
    assert dynamodb.client.get_item(TableName=name, Key=key)["Item"]["kwh"] == {"N": "1"}


def test_a_record_of_a_newer_release_hides_no_other_from_lists_and_sweeps(dynamodb: Tables) -> None:
    url = dynamodb.new_table()
    with Semel(url) as semel:
        for key in ("k-1", "k-2", "k-3"):
            semel.run(key, lambda: 1, operation="charge", fingerprint=None)
        record = semel.read("k-2", operation="charge")
        assert record is not None
        dynamodb.client.update_item(
            TableName=urlsplit(url).netloc,
            Key={"digest": {"B": record.key.digest}},
            UpdateExpression="SET #format = :newer",
            ExpressionAttributeNames={"#format": "format"},
            ExpressionAttributeValues={":newer": {"N": "99"}},
        )
        assert sorted(one.key.value for one in semel.records()) == ["k-1", "k-3"]
        assert semel.sweep().held == 0
        with pytest.raises(RecordUnreadable):
            semel.run("k-2", lambda: 1, operation="charge", fingerprint=None)
