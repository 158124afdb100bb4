"""Requests for a table that belongs to a service, and its replies: translated there and back."""

from __future__ import annotations

from typing import Any

import pytest

from semel.errors import UsageError
from semel.stores.dynamodb.commands import Call, CallerWrite, Cancelled, Refused
from semel.stores.dynamodb.layout import SharedLayout
from semel.stores.dynamodb.settings import Settings

LAYOUT = SharedLayout("pk", "sk")
DIGEST = bytes(range(32))
OWN_KEY = {"digest": {"B": DIGEST}}
THERE = {"pk": {"S": f"semel#{DIGEST.hex()}"}, "sk": {"S": "semel#"}}


def encoded(action: str, **parameters: Any) -> dict[str, Any]:
    return dict(LAYOUT.encode(Call(action, parameters)).parameters)


def test_a_key_is_one_that_no_item_of_the_service_has() -> None:
    assert encoded("get_item", Key=OWN_KEY)["Key"] == THERE


def test_a_table_without_a_sort_key_has_a_partition_key_alone() -> None:
    assert SharedLayout("id").key(DIGEST) == {"id": THERE["pk"]}


def test_an_item_comes_back_as_it_was_written() -> None:
    item = {**OWN_KEY, "status": {"S": "running"}, "ttl": {"N": "7"}, "version": {"N": "1"}}
    written = encoded("put_item", Item=item)["Item"]
    assert set(written) == {"pk", "sk", "semel_status", "semel_ttl", "semel_version"}
    assert LAYOUT.decode(Call("get_item", {}), {"Item": written})["Item"] == item


@pytest.mark.parametrize("names", [("status", "version", "expires_us"), ("digest", "ttl", "semel"), ("id", "", "gone")])
def test_keys_may_be_named_like_attributes_of_semel(names: tuple[str, str, str]) -> None:
    layout = SharedLayout(*names)
    item = {**OWN_KEY, **{name: {"S": name} for name in ("status", "version", "expires_us", "id", "ttl", "semel")}}
    written = layout.encode(Call("put_item", {"Item": item})).parameters["Item"]
    assert layout.decode(Call("get_item", {}), {"Item": written})["Item"] == item


def test_names_in_expressions_are_attributes_except_those_inside_one() -> None:
    names = {"#digest": "digest", "#steps": "steps", "#inner_0": "0", "#ttl": "ttl"}
    told = encoded("update_item", Key=OWN_KEY, ExpressionAttributeNames=names)["ExpressionAttributeNames"]
    assert told == {"#digest": "pk", "#steps": "semel_steps", "#inner_0": "0", "#ttl": "semel_ttl"}


def test_a_scan_finds_items_of_semel_alone() -> None:
    asked = encoded("scan", TableName="assets", FilterExpression="#a = :b OR #c = :d")
    assert asked["FilterExpression"] == "begins_with(#semel_key, :semel_key) AND (#a = :b OR #c = :d)"
    assert asked["ExpressionAttributeValues"] == {":semel_key": {"S": "semel#"}}


def test_a_scan_goes_on_behind_an_item_of_the_service() -> None:
    theirs = {"pk": {"S": "asset#pump-1"}, "sk": {"S": "energy"}}
    page = LAYOUT.decode(Call("scan", {}), {"Items": [], "LastEvaluatedKey": theirs})
    assert encoded("scan", ExclusiveStartKey=page["LastEvaluatedKey"])["ExclusiveStartKey"] == theirs


def test_a_query_goes_on_behind_the_entry_of_its_index() -> None:
    last = {**THERE, "semel_created_us": {"N": "5"}, "semel_subject_term": {"N": "6"}}
    page = LAYOUT.decode(Call("query", {}), {"Items": [last], "LastEvaluatedKey": last})
    assert page["LastEvaluatedKey"]["created_us"] == {"N": "5"}
    assert encoded("query", ExclusiveStartKey=page["LastEvaluatedKey"])["ExclusiveStartKey"] == last


def test_what_was_left_unread_or_undeleted_is_asked_for_again() -> None:
    keys = {"assets": {"Keys": [THERE]}}
    left = LAYOUT.decode(Call("batch_get_item", {}), {"Responses": {}, "UnprocessedKeys": keys})["UnprocessedKeys"]
    assert encoded("batch_get_item", RequestItems=left)["RequestItems"] == keys
    items = {"assets": [{"DeleteRequest": {"Key": THERE}}]}
    rest = LAYOUT.decode(Call("batch_write_item", {}), {"UnprocessedItems": items})["UnprocessedItems"]
    assert encoded("batch_write_item", RequestItems=rest)["RequestItems"] == items


def test_what_the_caller_adds_to_a_transaction_is_sent_as_it_is() -> None:
    theirs = CallerWrite({"Put": {"TableName": "files", "Item": {"digest": {"B": b"x"}, "status": {"S": "new"}}}})
    told = encoded("transact_write_items", TransactItems=[{"Put": {"Item": dict(OWN_KEY)}}, theirs])["TransactItems"]
    assert told == [{"Put": {"Item": THERE}}, dict(theirs)]


def test_what_stood_in_the_way_of_the_caller_is_told_as_it_is() -> None:
    call = Call("transact_write_items", {"TransactItems": [{"Put": {}}, CallerWrite({"Put": {}})]})
    found = {**THERE, "semel_status": {"S": "running"}}
    theirs = {"pk": {"S": "asset#1"}, "status": {"S": "new"}}
    reasons = ({"Code": "None", "Item": found}, {"Code": "ConditionalCheckFailed", "Item": theirs})
    told = LAYOUT.decode_refusal(call, Cancelled(reasons))
    assert [reason["Item"] for reason in told.reasons] == [{**OWN_KEY, "status": {"S": "running"}}, theirs]


def test_what_stood_in_the_way_is_told_as_plans_know_it() -> None:
    assert LAYOUT.decode_refusal(Call("put_item", {}), Refused(dict(THERE))) == Refused(OWN_KEY)
    assert LAYOUT.decode_refusal(Call("put_item", {}), Refused(None)) == Refused(None)


def test_requests_about_the_table_itself_stay_as_they_are() -> None:
    call = Call("describe_table", {"TableName": "assets"})
    assert LAYOUT.encode(call) == call
    assert LAYOUT.decode(call, {"Table": {"TableStatus": "ACTIVE"}}) == {"Table": {"TableStatus": "ACTIVE"}}


def test_a_url_names_the_keys_of_a_table() -> None:
    settings = Settings.of("dynamodb://assets?pk=PK&sk=SK&ttl=expires_at")
    assert settings.layout == SharedLayout("PK", "SK", "expires_at")
    assert settings.name == "dynamodb://assets?pk=PK&sk=SK"
    assert Settings.of("dynamodb://assets").layout is None


@pytest.mark.parametrize(
    "query", ["sk=sk", "ttl=gone", "pk=a&sk=a", "pk=a&ttl=a", "pk=semel_status", f"pk={'a' * 256}"]
)
def test_keys_that_cannot_be_are_refused(query: str) -> None:
    with pytest.raises(UsageError, match="nothing was opened"):
        Settings.of(f"dynamodb://assets?{query}")
