"""Which troubles of a store are conflicts: it answered, and somebody else was in the way; they count as answers."""

import pickle
import sqlite3

import pytest
from botocore.exceptions import ClientError

from semel.errors import StoreUnavailable
from semel.stores.dynamodb.errors import translate_error as translated_of_dynamodb
from semel.stores.sql.errors import ErrorKind, RowLocked, translate_error
from semel.stores.sqlite.errors import WriteLocked
from semel.stores.sqlite.errors import translate_error as translated_of_sqlite

AWAY = [ErrorKind.SLOW, ErrorKind.LOST, ErrorKind.DENIED, ErrorKind.READ_ONLY, ErrorKind.FULL]


@pytest.mark.parametrize("trouble", [ErrorKind.CONFLICT, ErrorKind.LOCKED])
def test_somebody_in_the_way_is_a_conflict(trouble: ErrorKind) -> None:
    error = translate_error(OSError("x"), trouble, "postgresql://x")
    assert isinstance(error, StoreUnavailable)
    assert error.conflict


@pytest.mark.parametrize("trouble", AWAY)
def test_a_server_that_cannot_serve_is_none(trouble: ErrorKind) -> None:
    error = translate_error(OSError("x"), trouble, "postgresql://x")
    assert isinstance(error, StoreUnavailable)
    assert not error.conflict


def test_a_row_that_a_transaction_holds_is_a_conflict() -> None:
    assert RowLocked("ab" * 32).conflict


@pytest.mark.parametrize(
    ("code", "conflict"), [(sqlite3.SQLITE_BUSY, True), (sqlite3.SQLITE_LOCKED, True), (sqlite3.SQLITE_FULL, False)]
)
def test_a_file_that_somebody_else_writes_is_a_conflict(code: int, conflict: bool) -> None:
    cause = sqlite3.OperationalError("x")
    cause.sqlite_errorcode = code
    error = translated_of_sqlite(cause, "sqlite:///x")
    assert isinstance(error, StoreUnavailable)
    assert error.conflict is conflict


def of_dynamodb(code: str, *reasons: str) -> ClientError:
    response = {"Error": {"Code": code, "Message": "no"}, "CancellationReasons": [{"Code": one} for one in reasons]}
    return ClientError(response, "PutItem")


@pytest.mark.parametrize(
    ("cause", "conflict"),
    [
        (of_dynamodb("TransactionConflictException"), True),
        (of_dynamodb("TransactionInProgressException"), True),
        (of_dynamodb("TransactionCanceledException", "None", "TransactionConflict"), True),
        (of_dynamodb("TransactionCanceledException", "ThrottlingError", "None"), False),
        (of_dynamodb("ThrottlingException"), False),
        (of_dynamodb("InternalServerError"), False),
    ],
    ids=["conflict", "in progress", "cancelled", "cancelled at the limit", "throttled", "internal"],
)
def test_an_item_that_another_transaction_writes_is_a_conflict(cause: ClientError, conflict: bool) -> None:
    error = translated_of_dynamodb(cause, "dynamodb://records")
    assert isinstance(error, StoreUnavailable)
    assert error.conflict is conflict


def test_a_conflict_survives_the_way_through_a_process_pool() -> None:
    error = pickle.loads(pickle.dumps(WriteLocked("The file was locked.")))  # noqa: S301 - just made here
    assert (type(error), error.conflict, error.asked) == (WriteLocked, True, True)
