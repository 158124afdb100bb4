"""What errors of the SDK and of the service mean: every one is named here, or is a bug that stays one."""

from typing import Any

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError
from botocore.session import get_session

from semel.errors import SchemaOutdated, StoreMisconfigured, StoreUnavailable
from semel.stores.dynamodb.commands import Cancelled, Refused, TooLarge
from semel.stores.dynamodb.errors import AGAIN, error_kind_of, expected_reply, translate_error

ACTIONS = (
    "CreateTable",
    "DeleteItem",
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "PutItem",
    "Scan",
    "TransactWriteItems",
    "UpdateItem",
    "UpdateTimeToLive",
)
# Replies that plans reckon with.
NOT_TROUBLE = {"ConditionalCheckFailedException", "TransactionCanceledException"}
# What only a request of another kind can get: collections share an index, and a token here is made of the request.
NOT_OURS = {
    "IdempotentParameterMismatchException",
    "InvalidEndpointException",
    "ItemCollectionSizeLimitExceededException",
    "ReplicatedWriteConflictException",
}


def error(code: str, message: str = "no", status: int = 400, **rest: Any) -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}, **rest}
    return ClientError(response, "PutItem")


def test_every_error_that_the_service_declares_is_known() -> None:
    model = get_session().get_service_model("dynamodb")
    declared = {shape.name for action in ACTIONS for shape in model.operation_model(action).error_shapes}
    assert len(declared) > 5
    unknown = {name for name in declared if error_kind_of(error(name)) is None}
    assert unknown <= NOT_TROUBLE | NOT_OURS


def test_a_refusal_brings_what_stood_in_the_way() -> None:
    item = {"digest": {"B": b"x"}}
    assert expected_reply(error("ConditionalCheckFailedException", Item=item)) == Refused(item)
    assert expected_reply(error("ConditionalCheckFailedException")) == Refused(None)


@pytest.mark.parametrize(
    "message",
    ["Item size has exceeded the maximum allowed size", "Item size to update has exceeded the maximum allowed size"],
)
def test_an_item_that_is_too_large_is_a_reply(message: str) -> None:
    assert expected_reply(error("ValidationException", message)) == TooLarge()


def cancelled(*codes: str) -> ClientError:
    return error("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


def test_a_transaction_that_was_only_in_the_way_is_sent_again() -> None:
    assert error_kind_of(cancelled("None", "TransactionConflict")) in AGAIN
    assert expected_reply(cancelled("None", "TransactionConflict")) is None


def test_a_transaction_that_a_condition_refused_is_a_reply() -> None:
    reply = expected_reply(cancelled("ConditionalCheckFailed", "TransactionConflict"))
    assert isinstance(reply, Cancelled)
    assert [reason["Code"] for reason in reply.reasons] == ["ConditionalCheckFailed", "TransactionConflict"]


def test_a_mistake_of_ours_stays_one() -> None:
    mistake = error("ValidationException", "Invalid UpdateExpression")
    assert expected_reply(mistake) is None
    assert translate_error(mistake, "dynamodb://records") is mistake


@pytest.mark.parametrize(
    ("problem", "kind", "says"),
    [
        (error("ThrottlingException"), StoreUnavailable, "nothing was recorded"),
        (error("TransactionConflictException"), StoreUnavailable, "nothing was recorded"),
        (error("InternalServerError", status=500), StoreUnavailable, "whether it was recorded is not known"),
        (error("SomethingNew", status=503), StoreUnavailable, "whether it was recorded is not known"),
        (error("AccessDeniedException"), StoreUnavailable, "IAM"),
        (error("ResourceNotFoundException"), SchemaOutdated, "semel migrate"),
        (error("ValidationException", "The provided key element does not match the schema"), SchemaOutdated, "migrate"),
        (exceptions.ReadTimeoutError(endpoint_url="u"), StoreUnavailable, "whether it was recorded is not known"),
        (exceptions.EndpointConnectionError(endpoint_url="u"), StoreUnavailable, "did not answer"),
        (exceptions.ConnectionClosedError(endpoint_url="u"), StoreUnavailable, "did not answer"),
        (exceptions.NoCredentialsError(), StoreUnavailable, "credentials"),
        (exceptions.NoRegionError(), StoreMisconfigured, "region"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_trouble_says_what_to_do_and_carries_its_cause(problem: Exception, kind: type, says: str) -> None:
    known = translate_error(problem, "dynamodb://records")
    assert isinstance(known, kind)
    assert says in str(known)
    assert known.__cause__ is problem
